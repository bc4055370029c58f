//! Names and labels of metrics, the snapshot, and that each occurrence is counted once.

use std::sync::Arc;
use std::time::Duration;

use everturn::providers::ProviderError;
use everturn::runtime::observability::{
    ActivityOutcome, CompletionStatus, InitiatedBy, MetricsProvider, MetricsSnapshot, ObservabilityConfig,
    ObservabilityHandle,
};
use everturn::runtime::registry::{ActivityRegistry, OrchestrationRegistry};
use everturn::{ActivityContext, AppErrorKind, ErrorDetails, OrchestrationContext};
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use tokio::sync::Notify;

use crate::node_under_test::{NodeUnderTest, memory, quick, until};

/// What `record` writes to a recorder: `name{label=value,...}` and the value.
fn recorded(record: impl FnOnce(&MetricsProvider)) -> Vec<(String, f64)> {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || record(&counting()));
    let snapshot = snapshotter.snapshot().into_vec();
    snapshot
        .into_iter()
        .map(|(key, _, _, value)| {
            let labels: Vec<_> = key.key().labels().map(|l| format!("{}={}", l.key(), l.value())).collect();
            let value = match value {
                DebugValue::Counter(count) => count as f64,
                DebugValue::Gauge(value) => value.into_inner(),
                DebugValue::Histogram(values) => values.iter().map(|value| value.into_inner()).sum(),
            };
            (format!("{}{{{}}}", key.key().name(), labels.join(",")), value)
        })
        .collect()
}

fn counting() -> MetricsProvider {
    MetricsProvider::new(&ObservabilityConfig::default()).unwrap()
}

fn one(name: &str, value: f64) -> Vec<(String, f64)> {
    vec![(name.to_owned(), value)]
}

fn cancelled() -> ErrorDetails {
    ErrorDetails::Application {
        kind: AppErrorKind::Cancelled { reason: "r".into() },
        message: String::new(),
        retryable: false,
    }
}

#[test]
fn metrics_of_orchestrations_have_their_names_and_labels() {
    let second = Duration::from_secs(1);
    assert_eq!(
        recorded(|m| m.record_orchestration_start("o", "1.0.0", InitiatedBy::ContinueAsNew)),
        one(
            "everturn_orchestration_starts_total{orchestration_name=o,version=1.0.0,initiated_by=continueAsNew}",
            1.0
        )
    );
    assert_eq!(
        recorded(|m| m.record_orchestration_completion("o", "1.0.0", CompletionStatus::Success, 7)),
        one(
            "everturn_orchestration_completions_total\
             {orchestration_name=o,version=1.0.0,status=success,final_turn_count=6-10}",
            1.0
        )
    );
    assert_eq!(
        recorded(|m| m.record_orchestration_duration("o", "1.0.0", CompletionStatus::Failed, second)),
        one("everturn_orchestration_duration_seconds{orchestration_name=o,version=1.0.0,status=failed}", 1.0)
    );
    assert_eq!(
        recorded(|m| m.record_orchestration_turns("o", 7)),
        one("everturn_orchestration_turns{orchestration_name=o}", 7.0)
    );
    assert_eq!(
        recorded(|m| m.record_orchestration_history_size("o", 9)),
        one("everturn_orchestration_history_size{orchestration_name=o}", 9.0)
    );
    assert_eq!(
        recorded(|m| m.record_orchestration_failure("o", "1.0.0", &cancelled())),
        one(
            "everturn_orchestration_failures_total\
             {orchestration_name=o,version=1.0.0,error_type=app_error,error_category=cancelled}",
            1.0
        )
    );
    assert_eq!(
        recorded(|m| m.record_orchestration_infrastructure_error("o", "infrastructure")),
        one(
            "everturn_orchestration_infrastructure_errors_total{orchestration_name=o,error_category=infrastructure}",
            1.0
        )
    );
    assert_eq!(
        recorded(|m| m.record_orchestration_continue_as_new("o")),
        one("everturn_orchestration_continue_as_new_total{orchestration_name=o}", 1.0)
    );
    assert_eq!(
        recorded(|m| m.record_suborchestration_call("o", "c")),
        one("everturn_suborchestration_calls_total{parent_orchestration=o,child_orchestration=c}", 1.0)
    );
    assert_eq!(
        recorded(MetricsProvider::record_orchestration_item_fetched),
        one("everturn_orchestration_dispatcher_items_fetched{}", 1.0)
    );
}

#[test]
fn metrics_of_activities_have_their_names_and_labels() {
    assert_eq!(
        recorded(|m| m.record_activity_execution("a", ActivityOutcome::Success, 0, None)),
        one(
            "everturn_activity_executions_total{activity_name=a,outcome=success,retry_attempt=0,tag=default}",
            1.0
        )
    );
    assert_eq!(
        recorded(|m| m.record_activity_duration(
            "a",
            ActivityOutcome::Cancelled,
            Some("gpu"),
            Duration::from_millis(500)
        )),
        one("everturn_activity_duration_seconds{activity_name=a,outcome=cancelled,tag=gpu}", 0.5)
    );
    assert_eq!(
        recorded(|m| m.record_activity_infrastructure_error("a")),
        one("everturn_activity_infrastructure_errors_total{activity_name=a}", 1.0)
    );
    assert_eq!(
        recorded(MetricsProvider::record_worker_item_fetched),
        one("everturn_worker_dispatcher_items_fetched{}", 1.0)
    );
    assert_eq!(
        recorded(MetricsProvider::record_activity_poison),
        one("everturn_activity_poison_total{}", 1.0)
    );
}

#[test]
fn metrics_of_the_provider_have_their_names_and_labels() {
    assert_eq!(
        recorded(|m| m.record_provider_operation("read", false, Duration::from_secs(2))),
        one("everturn_provider_operation_duration_seconds{operation=read,status=error}", 2.0)
    );
    let error = ProviderError::retryable("read", "Connection reset");
    assert_eq!(
        recorded(|m| m.record_provider_error("read", &error)),
        one("everturn_provider_errors_total{operation=read,error_type=connection}", 1.0)
    );
}

#[test]
fn gauges_hold_what_was_set_last() {
    let mut gauges = recorded(|m| {
        m.update_queue_depths(3, 4);
        assert_eq!(m.get_queue_depths(), (3, 4));
        m.set_active_orchestrations(1);
        m.increment_active_orchestrations();
        assert_eq!(m.get_active_orchestrations(), 2);
    });
    gauges.sort_by(|a, b| a.0.cmp(&b.0));
    let expected = [
        ("everturn_active_orchestrations{}".to_owned(), 2.0),
        ("everturn_orchestrator_queue_depth{}".to_owned(), 3.0),
        ("everturn_worker_queue_depth{}".to_owned(), 4.0),
    ];
    assert_eq!(gauges, expected);
}

#[test]
fn active_orchestrations_never_fall_below_zero() {
    let metrics = counting();
    metrics.decrement_active_orchestrations();
    metrics.increment_active_orchestrations();
    assert_eq!(metrics.get_active_orchestrations(), 1);
}

#[test]
fn every_record_bumps_its_counter_by_one() {
    let metrics = counting();
    assert_eq!(metrics.snapshot(), MetricsSnapshot::default());
    metrics.record_orchestration_start("o", "1.0.0", InitiatedBy::Client);
    metrics.record_orchestration_completion("o", "1.0.0", CompletionStatus::Success, 1);
    metrics.record_orchestration_failure("o", "1.0.0", &cancelled());
    metrics.record_orchestration_infrastructure_error("o", "infrastructure");
    metrics.record_orchestration_configuration_error("o", "nondeterminism");
    metrics.record_orchestration_poison();
    metrics.record_activity_execution("a", ActivityOutcome::Success, 0, None);
    metrics.record_activity_execution("a", ActivityOutcome::AppError, 0, None);
    metrics.record_activity_execution("a", ActivityOutcome::Cancelled, 0, None);
    metrics.record_activity_infrastructure_error("a");
    metrics.record_activity_configuration_error("a");
    metrics.record_activity_poison();
    metrics.record_orchestration_continue_as_new("o");
    metrics.record_suborchestration_call("o", "c");
    metrics.record_orchestration_item_fetched();
    metrics.record_worker_item_fetched();
    metrics.record_messages_dead_lettered(1);
    metrics.record_provider_error("read", &ProviderError::permanent("read", "disk full"));
    let expected = MetricsSnapshot {
        orch_starts: 1,
        orch_completions: 1,
        orch_failures: 1,
        orch_application_errors: 1,
        orch_infrastructure_errors: 1,
        orch_configuration_errors: 1,
        orch_poison: 1,
        activity_success: 1,
        activity_app_errors: 1,
        activity_infra_errors: 1,
        activity_config_errors: 1,
        activity_poison: 1,
        orch_continue_as_new: 1,
        suborchestration_calls: 1,
        orch_dispatcher_items_fetched: 1,
        worker_dispatcher_items_fetched: 1,
        provider_errors: 1,
        messages_dead_lettered: 1,
    };
    assert_eq!(metrics.snapshot(), expected);
}

#[tokio::test]
async fn a_handle_shares_its_counters() {
    let handle = ObservabilityHandle::init(&ObservabilityConfig::default()).unwrap();
    handle.metrics_provider().record_orchestration_poison();
    assert_eq!(handle.metrics_snapshot().orch_poison, 1);
    handle.shutdown().await;
}

#[tokio::test]
async fn every_start_end_and_activity_is_counted_once() {
    let activities = ActivityRegistry::builder()
        .register("Echo", |_ctx: ActivityContext, input: String| async move { Ok(input) })
        .register("Fails", |_ctx: ActivityContext, _: String| async move { Err("no".to_owned()) })
        .build();
    let orchestrations = OrchestrationRegistry::builder()
        .register("Works", |ctx: OrchestrationContext, _: String| async move {
            ctx.schedule_activity("Echo", "a").await?;
            ctx.schedule_activity("Echo", "b").await
        })
        .register("Fails", |ctx: OrchestrationContext, _: String| async move {
            ctx.schedule_activity("Fails", "").await
        })
        .register("Again", |ctx: OrchestrationContext, input: String| async move {
            if input == "once" { ctx.continue_as_new("twice").await } else { Ok(input) }
        })
        .build();
    let node = NodeUnderTest::start(memory(), activities, orchestrations, quick()).await;
    for name in ["Works", "Fails", "Again"] {
        node.client.start_orchestration(name, name, "once").await.unwrap();
        node.end_of(name).await;
    }
    // Counters change after the commit that the client saw.
    until("everything is counted", async || {
        let snapshot = node.runtime.metrics_snapshot().unwrap();
        snapshot.orch_completions == 4 && snapshot.activity_success == 2 && snapshot.activity_app_errors == 1
    })
    .await;
    let metrics = node.runtime.observability_handle().unwrap().metrics_provider();
    assert_eq!(metrics.get_active_orchestrations(), 0);
    node.runtime.clone().shutdown(None).await;
    let snapshot = node.runtime.metrics_snapshot().unwrap();
    assert_eq!(snapshot.orch_starts, 4);
    assert_eq!(snapshot.orch_completions, 4);
    assert_eq!(snapshot.orch_failures, 1);
    assert_eq!(snapshot.orch_application_errors, 1);
    assert_eq!(snapshot.orch_continue_as_new, 1);
    assert_eq!(snapshot.activity_success, 2);
    assert_eq!(snapshot.activity_app_errors, 1);
    assert_eq!(snapshot.provider_errors, 0);
}

/// The starts that a recorder has seen, with what initiated them.
fn initiators(snapshotter: &Snapshotter) -> Vec<String> {
    let snapshot = snapshotter.snapshot().into_vec();
    let starts = snapshot.iter().map(|(key, ..)| key.key());
    let mut initiators: Vec<String> = starts
        .filter(|key| key.name() == "everturn_orchestration_starts_total")
        .map(|key| {
            let labels = key.labels().filter(|label| label.key() != "version");
            labels.map(|label| label.value().to_owned()).collect::<Vec<_>>().join(" ")
        })
        .collect();
    initiators.sort();
    initiators
}

#[test]
fn a_healthy_run_counts_fetches_calls_and_initiators_and_no_errors() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let snapshot = metrics::with_local_recorder(&recorder, || runtime.block_on(healthy_run()));
    assert_eq!(
        initiators(&snapshotter),
        ["Again client", "Again continueAsNew", "Child parent", "Parent client"]
    );
    assert_eq!(snapshot.suborchestration_calls, 2);
    assert_eq!(
        snapshot.worker_dispatcher_items_fetched, 2,
        "the activity that won and the one that was cancelled"
    );
    // Each instance needs at least one turn per execution, and a parent one more per child. The turn on the outcome of the
    // activity is not fetched.
    assert!(snapshot.orch_dispatcher_items_fetched >= 7, "{snapshot:?}");
    assert_eq!(snapshot.provider_errors, 0, "a cancelled activity is no error of the store");
}

/// A parent with two children, an execution that continues as new, and an activity that loses a race.
async fn healthy_run() -> MetricsSnapshot {
    let slow_runs = Arc::new(Notify::new());
    let (begins, begun) = (Arc::clone(&slow_runs), slow_runs);
    let activities = ActivityRegistry::builder()
        .register("Quick", move |_ctx: ActivityContext, input: String| {
            let begun = Arc::clone(&begun);
            async move {
                begun.notified().await;
                Ok(input)
            }
        })
        .register("Slow", move |ctx: ActivityContext, _: String| {
            begins.notify_one();
            async move {
                ctx.cancelled().await;
                Ok(String::new())
            }
        })
        .build();
    let orchestrations = OrchestrationRegistry::builder()
        .register("Child", |_ctx: OrchestrationContext, input: String| async move { Ok(input) })
        .register("Parent", |ctx: OrchestrationContext, _: String| async move {
            ctx.schedule_sub_orchestration("Child", "1").await?;
            ctx.schedule_sub_orchestration("Child", "2").await?;
            let slow = ctx.schedule_activity("Slow", "");
            let quick = ctx.schedule_activity("Quick", "");
            ctx.select2(slow, quick).await;
            Ok(String::new())
        })
        .register("Again", |ctx: OrchestrationContext, input: String| async move {
            if input == "once" { ctx.continue_as_new("twice").await } else { Ok(input) }
        })
        .build();
    let node = NodeUnderTest::start(memory(), activities, orchestrations, quick()).await;
    for name in ["Parent", "Again"] {
        node.client.start_orchestration(name, name, "once").await.unwrap();
        node.end_of(name).await;
    }
    let runtime = node.runtime.clone();
    node.runtime.shutdown(None).await;
    runtime.metrics_snapshot().unwrap()
}
