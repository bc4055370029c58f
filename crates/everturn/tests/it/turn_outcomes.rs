//! What the outcome of a turn does to activities, children and waits that are still open.

use std::sync::Arc;
use std::time::Duration;

use everturn::runtime::registry::{ActivityRegistry, OrchestrationRegistry};
use everturn::{
    AppErrorKind, Either2, ErrorDetails, EventKind, OrchestrationContext, OrchestrationStatus, RuntimeOptions,
};

use crate::node_under_test::{NodeUnderTest, echo, quick, until};
use crate::stores::{TestStore, on_every_store};

on_every_store!(
    a_cancelled_instance_cancels_its_open_children,
    a_panicking_instance_cancels_its_open_children,
    a_nondeterministic_instance_cancels_its_open_children,
    a_child_that_lost_a_race_is_cancelled,
    a_return_cancels_only_the_children_whose_futures_were_dropped,
    open_waits_and_reads_are_closed_at_the_end,
    activities_left_open_are_cancelled_after_the_end_is_written,
    work_of_the_turn_that_ends_is_not_dispatched,
    a_cancel_beats_the_return_of_the_same_turn,
    cancelling_is_idempotent_and_does_nothing_to_finished_or_unknown_instances,
    a_cancel_applies_to_the_current_execution,
    a_system_failure_of_an_activity_fails_the_instance_without_reaching_its_code,
    an_activity_dropped_in_its_own_turn_never_runs,
);

fn orchestrations() -> OrchestrationRegistry {
    OrchestrationRegistry::builder()
        .register("Waits", |ctx: OrchestrationContext, _: String| async move {
            Ok(ctx.schedule_wait("end").await)
        })
        .register("Holds", |ctx: OrchestrationContext, child: String| async move {
            let held = ctx.schedule_sub_orchestration_with_id("Waits", child, "");
            match ctx.schedule_wait("go").await.as_str() {
                "panic" => panic!("on request"),
                "drop" => drop(held),
                _ => std::mem::forget(held),
            }
            Ok(String::new())
        })
        .register("Races", |ctx: OrchestrationContext, child: String| async move {
            let child = ctx.schedule_sub_orchestration_with_id("Waits", child, "");
            match ctx.select2(child, ctx.schedule_wait("go")).await {
                Either2::First(result) => result,
                Either2::Second(_) => Ok(ctx.schedule_wait("end").await),
            }
        })
        .register("LeavesOpen", |ctx: OrchestrationContext, _: String| async move {
            std::mem::forget(ctx.schedule_activity("Echo", "").with_tag("unserved"));
            std::mem::forget(ctx.dequeue_event("q"));
            std::mem::forget(ctx.schedule_wait("s"));
            Ok(ctx.schedule_wait("go").await)
        })
        .register("SchedulesAndEnds", |ctx: OrchestrationContext, how: String| async move {
            std::mem::forget(ctx.schedule_activity("Echo", ""));
            std::mem::forget(ctx.schedule_timer(Duration::ZERO));
            std::mem::forget(ctx.schedule_sub_orchestration_with_id("Waits", format!("child {how}"), ""));
            if how == "complete" { Ok(how) } else { Err(how) }
        })
        .register("Continues", |ctx: OrchestrationContext, execution: String| async move {
            ctx.schedule_wait("go").await;
            ctx.continue_as_new(format!("{execution}+")).await
        })
        .register("Handles", |ctx: OrchestrationContext, _: String| async move {
            Ok(ctx.schedule_activity("Unregistered", "").await.unwrap_or_else(|error| error))
        })
        .register("Drops", |ctx: OrchestrationContext, _: String| async move {
            drop(ctx.schedule_activity("Echo", "dropped"));
            ctx.schedule_activity("Echo", "kept").await
        })
        .build()
}

async fn node_on(store: &TestStore) -> NodeUnderTest {
    NodeUnderTest::start(store.provider(), echo(), orchestrations(), quick()).await
}

async fn begin(node: &NodeUnderTest, instance: &str, orchestration: &str, input: &str) {
    node.client.start_orchestration(instance, orchestration, input).await.unwrap();
    node.committed(instance).await;
}

async fn with_a_child(store: &TestStore, orchestration: &str) -> NodeUnderTest {
    let node = node_on(store).await;
    begin(&node, "p", orchestration, "child").await;
    node.committed("child").await;
    node
}

async fn a_cancelled_instance_cancels_its_open_children(store: TestStore) {
    let node = with_a_child(&store, "Holds").await;
    node.client.cancel_instance("p", "enough").await.unwrap();
    let details = node.failure_of("p").await;
    assert!(matches!(&details,
        ErrorDetails::Application { kind: AppErrorKind::Cancelled { reason }, .. } if reason == "enough"));
    assert_eq!(node.failure_of("child").await.display_message(), "canceled: parent canceled");
    node.runtime.shutdown(None).await;
}

async fn a_panicking_instance_cancels_its_open_children(store: TestStore) {
    let node = with_a_child(&store, "Holds").await;
    node.client.raise_event("p", "go", "panic").await.unwrap();
    let details = node.failure_of("p").await;
    assert!(matches!(&details, ErrorDetails::Application { kind: AppErrorKind::Panicked, .. }));
    assert_eq!(details.display_message(), "orchestration panicked: on request");
    assert_eq!(node.failure_of("child").await.display_message(), "canceled: parent failed");
    node.runtime.shutdown(None).await;
}

async fn a_nondeterministic_instance_cancels_its_open_children(store: TestStore) {
    let node = with_a_child(&store, "Holds").await;
    node.runtime.shutdown(None).await;
    let changed = OrchestrationRegistry::builder()
        .merge(orchestrations_without_holds())
        .register(
            "Holds",
            |ctx: OrchestrationContext, _: String| async move { Ok(ctx.schedule_wait("go").await) },
        )
        .build();
    let node = NodeUnderTest::start(store.provider(), echo(), changed, quick()).await;
    node.client.raise_event("p", "go", "").await.unwrap();
    assert!(node.failure_of("p").await.display_message().starts_with("nondeterministic: "));
    assert_eq!(node.failure_of("child").await.display_message(), "canceled: parent failed");
    node.runtime.shutdown(None).await;
}

fn orchestrations_without_holds() -> OrchestrationRegistry {
    OrchestrationRegistry::builder()
        .register("Waits", |ctx: OrchestrationContext, _: String| async move {
            Ok(ctx.schedule_wait("end").await)
        })
        .build()
}

async fn a_child_that_lost_a_race_is_cancelled(store: TestStore) {
    let node = with_a_child(&store, "Races").await;
    node.client.raise_event("p", "go", "").await.unwrap();
    let text = "canceled: parent dropped sub-orchestration future";
    assert_eq!(node.failure_of("child").await.display_message(), text);
    let history = node.history("p", 1).await;
    assert!(history.iter().any(|event| matches!(&event.kind,
        EventKind::SubOrchestrationCancelRequested { reason } if reason == "dropped_future")));
    node.client.raise_event("p", "end", "on").await.unwrap();
    assert_eq!(node.output_of("p").await, "on");
    node.runtime.shutdown(None).await;
}

async fn a_return_cancels_only_the_children_whose_futures_were_dropped(store: TestStore) {
    let node = node_on(&store).await;
    for how in ["drop", "forget"] {
        begin(&node, &format!("p {how}"), "Holds", how).await;
        node.committed(how).await;
        node.client.raise_event(format!("p {how}"), "go", how).await.unwrap();
        node.output_of(&format!("p {how}")).await;
    }
    let text = "canceled: parent dropped sub-orchestration future";
    assert_eq!(node.failure_of("drop").await.display_message(), text);
    node.client.raise_event("forget", "end", "still here").await.unwrap();
    assert_eq!(node.output_of("forget").await, "still here");
    node.runtime.shutdown(None).await;
}

async fn open_waits_and_reads_are_closed_at_the_end(store: TestStore) {
    let node = node_on(&store).await;
    for (instance, cancel) in [("completes", false), ("is cancelled", true)] {
        begin(&node, instance, "LeavesOpen", "").await;
        if cancel {
            node.client.cancel_instance(instance, "").await.unwrap();
        } else {
            node.client.raise_event(instance, "go", "").await.unwrap();
        }
        node.end_of(instance).await;
        let history = node.history(instance, 1).await;
        let end = history.iter().position(everturn::Event::is_terminal).unwrap();
        let closed: Vec<Option<u64>> = history[..end]
            .iter()
            .filter(|event| {
                matches!(&event.kind, EventKind::ExternalSubscribedCancelled { reason }
                    | EventKind::QueueSubscriptionCancelled { reason } if reason == "orchestration_terminal")
            })
            .map(|event| event.source_event_id)
            .collect();
        // Waits first, then reads. The wait for `go` is still open only if the instance was cancelled.
        let expected: &[_] = if cancel { &[Some(4), Some(5), Some(3)] } else { &[Some(4), Some(3)] };
        assert_eq!(closed, expected, "{instance}");
    }
    node.runtime.shutdown(None).await;
}

async fn activities_left_open_are_cancelled_after_the_end_is_written(store: TestStore) {
    let node = node_on(&store).await;
    begin(&node, "i", "LeavesOpen", "").await;
    assert_eq!(node.client.get_queue_depths().await.unwrap().worker_queue, 1);
    node.client.raise_event("i", "go", "").await.unwrap();
    node.output_of("i").await;
    let history = node.history("i", 1).await;
    let last = history.last().unwrap();
    assert!(
        matches!(&last.kind, EventKind::ActivityCancelRequested { reason }
            if reason.starts_with("orchestration_terminal_")),
        "{last:?}"
    );
    assert_eq!(last.source_event_id, Some(2));
    assert!(matches!(history[history.len() - 2].kind, EventKind::OrchestrationCompleted { .. }));
    assert_eq!(node.client.get_queue_depths().await.unwrap().worker_queue, 0);
    node.runtime.shutdown(None).await;
}

async fn work_of_the_turn_that_ends_is_not_dispatched(store: TestStore) {
    let node = node_on(&store).await;
    for how in ["complete", "fail"] {
        node.client.start_orchestration(how, "SchedulesAndEnds", how).await.unwrap();
        node.end_of(how).await;
        let child = node.client.get_orchestration_status(&format!("child {how}")).await.unwrap();
        assert_eq!(child, OrchestrationStatus::NotFound);
        let scheduled = node.history(how, 1).await;
        assert!(scheduled.iter().any(|event| matches!(event.kind, EventKind::ActivityScheduled { .. })));
    }
    let depths = node.client.get_queue_depths().await.unwrap();
    assert_eq!((depths.orchestrator_queue, depths.worker_queue), (0, 0));
    assert_eq!(node.runtime.metrics_snapshot().unwrap().activity_success, 0);
    node.runtime.shutdown(None).await;
}

async fn a_cancel_beats_the_return_of_the_same_turn(store: TestStore) {
    let node = node_on(&store).await;
    begin(&node, "i", "Waits", "").await;
    node.runtime.shutdown(None).await;
    node.client.raise_event("i", "end", "too late").await.unwrap();
    node.client.cancel_instance("i", "first").await.unwrap();
    node.client.cancel_instance("i", "second").await.unwrap();
    let node = node_on(&store).await;
    assert_eq!(node.failure_of("i").await.display_message(), "canceled: first");
    node.runtime.shutdown(None).await;
}

async fn cancelling_is_idempotent_and_does_nothing_to_finished_or_unknown_instances(store: TestStore) {
    let node = node_on(&store).await;
    begin(&node, "i", "Waits", "").await;
    node.client.raise_event("i", "end", "done").await.unwrap();
    node.output_of("i").await;
    let before = node.history("i", 1).await;
    for instance in ["i", "i", "unknown"] {
        node.client.cancel_instance(instance, "too late").await.unwrap();
    }
    begin(&node, "later", "Waits", "").await;
    until("the cancels of i are processed", async || {
        // The cancel for the unknown instance stays queued: that instance may still be started.
        node.client.get_queue_depths().await.unwrap().orchestrator_queue <= 1
    })
    .await;
    assert_eq!(node.history("i", 1).await, before);
    assert_eq!(node.client.get_orchestration_status("unknown").await.unwrap(), OrchestrationStatus::NotFound);
    node.runtime.shutdown(None).await;
}

async fn a_cancel_applies_to_the_current_execution(store: TestStore) {
    let node = node_on(&store).await;
    begin(&node, "i", "Continues", "").await;
    node.client.raise_event("i", "go", "").await.unwrap();
    until("the successor runs", async || !node.history("i", 2).await.is_empty()).await;
    node.client.cancel_instance("i", "enough").await.unwrap();
    assert_eq!(node.failure_of("i").await.display_message(), "canceled: enough");
    assert_eq!(node.client.get_execution_info("i", 1).await.unwrap().status, "ContinuedAsNew");
    assert_eq!(node.client.get_execution_info("i", 2).await.unwrap().status, "Failed");
    node.runtime.shutdown(None).await;
}

async fn a_system_failure_of_an_activity_fails_the_instance_without_reaching_its_code(store: TestStore) {
    let options = RuntimeOptions { max_attempts: 1, ..quick() };
    let none = ActivityRegistry::default();
    let node = NodeUnderTest::start(store.provider(), none, orchestrations(), options).await;
    node.client.start_orchestration("i", "Handles", "").await.unwrap();
    assert!(matches!(node.failure_of("i").await, ErrorDetails::Poison { .. }));
    let history = node.history("i", 1).await;
    assert!(
        history.iter().any(|event| matches!(
            &event.kind,
            EventKind::ActivityFailed { details: ErrorDetails::Poison { .. } }
        )),
        "it is recorded: {history:?}"
    );
    node.runtime.shutdown(None).await;
}

async fn an_activity_dropped_in_its_own_turn_never_runs(store: TestStore) {
    let node = node_on(&store).await;
    node.client.start_orchestration("i", "Drops", "").await.unwrap();
    assert_eq!(node.output_of("i").await, "kept");
    let runtime = Arc::clone(&node.runtime);
    node.runtime.shutdown(None).await;
    assert_eq!(runtime.metrics_snapshot().unwrap().activity_success, 1);
    let history = node.client.read_execution_history("i", 1).await.unwrap();
    assert!(matches!(&history[1].kind, EventKind::ActivityScheduled { input, .. } if input == "dropped"));
}
