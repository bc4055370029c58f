//! Log events: target, level, message and fields.

use std::sync::Arc;
use std::time::Duration;

use everturn::providers::ProviderError;
use everturn::runtime::registry::{ActivityRegistry, OrchestrationRegistry};
use everturn::{ActivityContext, OrchestrationContext, RuntimeOptions};
use tokio::sync::Semaphore;
use tracing::Level;

use crate::log_lines::{LogLine, LogLines};
use crate::node_under_test::{NodeUnderTest, memory, quick, until};
use crate::tampering_store::TamperingStore;

const OF_AN_EXECUTION: [&str; 4] =
    ["execution_id", "instance_id", "orchestration_name", "orchestration_version"];

fn orchestrations() -> OrchestrationRegistry {
    OrchestrationRegistry::builder()
        .register("Traces", |ctx: OrchestrationContext, _: String| async move {
            ctx.trace_info("info");
            ctx.trace_warn("warn");
            ctx.trace_error("error");
            ctx.trace_debug("debug");
            ctx.trace("wArN", "any case");
            ctx.trace("loud", "no such level");
            ctx.schedule_activity("Traces", "").await?;
            ctx.trace_info("after");
            ctx.schedule_activity("Traces", "").await
        })
        .register("Calls", |ctx: OrchestrationContext, activity: String| async move {
            ctx.schedule_activity(activity, "in").with_tag("t").await
        })
        .register("Continues", |ctx: OrchestrationContext, left: String| async move {
            if left.is_empty() { Ok(left) } else { ctx.continue_as_new("").await }
        })
        .register("Fails", |_: OrchestrationContext, text: String| async move { Err(text) })
        .register("Waits for go", |ctx: OrchestrationContext, _: String| async move {
            Ok(ctx.schedule_wait("go").await)
        })
        .register("Races", |ctx: OrchestrationContext, _: String| async move {
            Ok(format!(
                "{:?}",
                ctx.select2(ctx.schedule_activity("Waits", ""), ctx.schedule_wait("go")).await
            ))
        })
        .build()
}

fn activities() -> ActivityRegistry {
    ActivityRegistry::builder()
        .register("Traces", |ctx: ActivityContext, _: String| async move {
            ctx.trace_info("activity info");
            ctx.trace_warn("activity warn");
            ctx.trace_error("activity error");
            ctx.trace_debug("activity debug");
            Ok("three".to_owned())
        })
        .register("Fails", |_: ActivityContext, _: String| async move { Err("no luck".to_owned()) })
        .build()
}

fn any_tag() -> RuntimeOptions {
    RuntimeOptions {
        worker_tag_filter: everturn::TagFilter::any(),
        worker_node_id: Some("n".into()),
        ..quick()
    }
}

/// Runs one instance to its end and returns the log lines.
async fn lines_of(orchestration: &str, input: &str, options: RuntimeOptions) -> LogLines {
    let (lines, _guard) = LogLines::capture();
    let node = NodeUnderTest::start(memory(), activities(), orchestrations(), options).await;
    node.client.start_orchestration("i", orchestration, input).await.unwrap();
    node.end_of("i").await;
    // Lines about a commit are written after it. Shutdown waits for the slots that write them.
    node.runtime.shutdown(None).await;
    lines
}

fn is(line: &LogLine, level: Level, target: &str) {
    assert_eq!((line.level, line.target.as_str()), (level, target), "{line:?}");
}

fn has(line: &LogLine, fields: &[(&str, &str)]) {
    for (name, value) in fields {
        assert_eq!(line.field(name), *value, "{name} of {line:?}");
    }
}

#[tokio::test]
async fn log_lines_of_an_orchestration_carry_its_identity() {
    let lines = lines_of("Traces", "", quick()).await;
    for (message, level) in [
        ("info", Level::INFO),
        ("warn", Level::WARN),
        ("error", Level::ERROR),
        ("debug", Level::DEBUG),
        ("any case", Level::WARN),
        ("after", Level::INFO),
    ] {
        let line = lines.only(message);
        is(&line, level, "everturn::orchestration");
        assert_eq!(line.field_names(), OF_AN_EXECUTION);
        let identity = [("instance_id", "i"), ("execution_id", "1")];
        has(&line, &identity);
        has(&line, &[("orchestration_name", "Traces"), ("orchestration_version", "1.0.0")]);
    }
}

#[tokio::test]
async fn an_unknown_level_goes_to_trace_and_is_a_field() {
    let lines = lines_of("Traces", "", quick()).await;
    let line = lines.only("no such level");
    is(&line, Level::TRACE, "everturn::orchestration");
    assert_eq!(line.field("level"), "loud");
}

#[tokio::test]
async fn a_replaying_orchestration_writes_nothing_twice() {
    // Without a cache every turn runs the code from its beginning.
    let lines = lines_of("Traces", "", RuntimeOptions { warm_instances_max: 0, ..quick() }).await;
    for message in ["info", "warn", "error", "debug", "any case", "no such level", "after"] {
        lines.only(message);
    }
}

#[tokio::test]
async fn log_lines_of_an_activity_carry_its_identity() {
    let lines = lines_of("Calls", "Traces", any_tag()).await;
    for (message, level) in [
        ("activity info", Level::INFO),
        ("activity warn", Level::WARN),
        ("activity error", Level::ERROR),
        ("activity debug", Level::DEBUG),
    ] {
        let line = lines.only(message);
        is(&line, level, "everturn::activity");
        let names = [
            "activity_id",
            "activity_name",
            "execution_id",
            "instance_id",
            "orchestration_name",
            "orchestration_version",
            "worker_id",
        ];
        assert_eq!(line.field_names(), names);
        has(&line, &[("instance_id", "i"), ("execution_id", "1"), ("orchestration_name", "Calls")]);
        has(&line, &[("orchestration_version", "1.0.0"), ("activity_name", "Traces"), ("activity_id", "2")]);
        let worker = line.field("worker_id");
        assert!(worker.starts_with("work-") && worker.ends_with("-n"), "{worker}");
    }
}

#[tokio::test]
async fn start_and_end_of_an_execution_are_logged() {
    let lines = lines_of("Continues", "once", quick()).await;
    let started = lines.containing("Orchestration started");
    assert_eq!(started.len(), 2, "once per execution");
    // Each execution has two events, its start and its end.
    for (line, execution_id) in [
        (&started[0], "1"),
        (&lines.only("Orchestration continued as new"), "1"),
        (&started[1], "2"),
        (&lines.only("Orchestration completed"), "2"),
    ] {
        is(line, Level::DEBUG, "everturn::runtime");
        has(line, &[("instance_id", "i"), ("execution_id", execution_id)]);
        has(line, &[("orchestration_name", "Continues"), ("orchestration_version", "1.0.0")]);
        has(line, &[("history_events", "2")]);
        assert!(line.field("worker_id").starts_with("orch-"), "{line:?}");
    }
}

#[tokio::test]
async fn the_end_of_an_execution_says_how_many_events_it_has_also_if_a_step_ended_it() {
    for warm_instances_max in [0, 1_000] {
        let options = RuntimeOptions { warm_instances_max, ..quick() };
        let lines = lines_of("Traces", "", options).await;
        // Its start, two activities with their outcomes, its end.
        has(&lines.only("Orchestration completed"), &[("history_events", "6")]);
    }
}

#[tokio::test]
async fn a_failure_of_the_users_code_is_a_warning() {
    let lines = lines_of("Fails", "bad luck", quick()).await;
    let line = lines.only("Orchestration failed (application error)");
    is(&line, Level::WARN, "everturn::runtime");
    has(&line, &[("instance_id", "i"), ("error_type", "application"), ("error", "bad luck")]);
}

#[tokio::test]
async fn a_failure_of_the_engine_or_its_configuration_is_an_error() {
    let (lines, _guard) = LogLines::capture();
    let store = memory();
    let node = NodeUnderTest::start(store.clone(), activities(), orchestrations(), quick()).await;
    node.client.start_orchestration("i", "Waits for go", "").await.unwrap();
    node.committed("i").await;
    node.runtime.shutdown(None).await;
    let changed = OrchestrationRegistry::builder()
        .register("Waits for go", |ctx: OrchestrationContext, _: String| async move {
            Ok(ctx.schedule_wait("renamed").await)
        })
        .build();
    let node = NodeUnderTest::start(store, activities(), changed, quick()).await;
    node.client.raise_event("i", "go", "").await.unwrap();
    node.failure_of("i").await;
    node.runtime.shutdown(None).await;
    let line = lines.only("Orchestration failed");
    is(&line, Level::ERROR, "everturn::runtime");
    has(&line, &[("instance_id", "i"), ("error_type", "configuration")]);
    assert!(line.field("error").starts_with("nondeterministic: schedule mismatch"), "{line:?}");
}

#[tokio::test]
async fn start_and_end_of_an_activity_are_logged() {
    let lines = lines_of("Calls", "Traces", any_tag()).await;
    for message in ["Activity started", "Activity completed"] {
        let line = lines.only(message);
        is(&line, Level::DEBUG, "everturn::runtime");
        has(&line, &[("instance_id", "i"), ("execution_id", "1"), ("activity_name", "Traces")]);
        has(&line, &[("activity_id", "2"), ("activity_tag", "t")]);
        assert!(line.field("worker_id").starts_with("work-"), "{line:?}");
    }
    let completed = lines.only("Activity completed");
    has(&completed, &[("outcome", "success"), ("result_size", "5")]);
    completed.field("duration_ms").parse::<u64>().unwrap();
}

#[tokio::test]
async fn an_activity_that_fails_is_a_warning() {
    let lines = lines_of("Calls", "Fails", any_tag()).await;
    let line = lines.only("Activity failed (application error)");
    is(&line, Level::WARN, "everturn::runtime");
    has(&line, &[("activity_name", "Fails"), ("outcome", "app_error"), ("error", "no luck")]);
    line.field("duration_ms").parse::<u64>().unwrap();
}

#[tokio::test]
async fn the_wait_for_a_cancelled_activity_is_logged() {
    let (lines, _guard) = LogLines::capture();
    let started = Arc::new(Semaphore::new(0));
    let entered = Arc::clone(&started);
    let activities = ActivityRegistry::builder()
        .register("Waits", move |_: ActivityContext, _: String| {
            let started = Arc::clone(&entered);
            async move {
                started.add_permits(1);
                std::future::pending::<()>().await;
                Ok(String::new())
            }
        })
        .build();
    let options = RuntimeOptions { activity_cancellation_grace_period: Duration::from_millis(5), ..quick() };
    let node = NodeUnderTest::start(memory(), activities, orchestrations(), options).await;
    node.client.start_orchestration("i", "Races", "").await.unwrap();
    started.acquire().await.unwrap().forget();
    node.client.raise_event("i", "go", "").await.unwrap();
    until("the wait is logged", async || {
        lines.all().iter().any(|line| {
            line.level == Level::INFO && line.target == "everturn::runtime" && line.message.contains("grace")
        })
    })
    .await;
    node.runtime.shutdown(None).await;
}

#[tokio::test]
async fn lock_errors_are_logged_by_the_worker() {
    let (lines, _guard) = LogLines::capture();
    let store = TamperingStore::new(memory(), |operation| match operation {
        "renew/sessions" => Some(ProviderError::retryable("renew", "busy")),
        _ => None,
    });
    let options = RuntimeOptions { session_lock_timeout: Duration::from_millis(200), ..quick() };
    let node = NodeUnderTest::start(store, activities(), orchestrations(), options).await;
    until("the error is logged", async || !lines.containing("session leases").is_empty()).await;
    let line = lines.containing("session leases").remove(0);
    is(&line, Level::WARN, "everturn::runtime::worker");
    has(&line, &[("error", "renew: busy")]);
    node.runtime.shutdown(None).await;
}
