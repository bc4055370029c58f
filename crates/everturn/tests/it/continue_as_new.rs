//! Continue-as-new: what the next execution inherits and what it does not.

use std::time::Duration;

use everturn::providers::{Provider, WorkItem};
use everturn::runtime::VersionPolicy;
use everturn::runtime::registry::OrchestrationRegistry;
use everturn::{Client, ErrorDetails, EventKind, OrchestrationContext, OrchestrationStatus, RuntimeOptions};
use everturn_provider::testing::TableAccess as _;

use crate::node_under_test::{NodeUnderTest, echo, memory, quick, until};
use crate::stores::{TestStore, on_every_store};
use crate::tampering_store::TamperingStore;
use crate::turn_by_hand::{commit, commit_without_messages, continued};

on_every_store!(
    the_old_execution_ends_with_the_next_input,
    the_new_execution_has_a_history_of_its_own,
    without_a_version_the_policy_decides_again,
    a_named_version_is_taken_exactly,
    the_parent_link_is_carried,
    custom_status_and_key_values_are_carried,
    completions_for_the_old_execution_are_ignored,
    signals_are_not_carried,
    children_are_left_running,
    work_of_the_last_turn_is_recorded_but_not_dispatched,
    continue_as_new_needs_no_await_and_wins_over_the_return,
    the_first_of_two_continuations_wins,
    without_unread_messages_the_start_event_carries_none,
);

fn orchestrations() -> OrchestrationRegistry {
    OrchestrationRegistry::builder()
        .register("Once", |ctx: OrchestrationContext, input: String| async move {
            if input == "next" {
                return Ok(format!("{} {}", ctx.execution_id(), ctx.orchestration_version()));
            }
            ctx.schedule_activity("Echo", "").await?;
            ctx.continue_as_new("next").await
        })
        .register_versioned("Once", "2.0.0", |ctx: OrchestrationContext, input: String| async move {
            if input == "next" || input == "back" {
                return Ok(format!("{} {}", ctx.execution_id(), ctx.orchestration_version()));
            }
            ctx.continue_as_new_versioned("1.0.0", "next").await
        })
        .register("Parent", |ctx: OrchestrationContext, _: String| async move {
            ctx.schedule_sub_orchestration_versioned_with_id("Once", Some("1.0.0".to_owned()), "child", "")
                .await
        })
        .register("Carries", |ctx: OrchestrationContext, input: String| async move {
            if input == "next" {
                return Ok(format!("{:?} {:?}", ctx.get_custom_status(), ctx.get_kv_value("k")));
            }
            ctx.set_custom_status("kept");
            ctx.set_kv_value("k", "v");
            ctx.continue_as_new("next").await
        })
        .register("Stale", |ctx: OrchestrationContext, input: String| async move {
            // Event 2 in both executions. Only the test completes it.
            let call = ctx.schedule_activity("Echo", "").with_tag("unserved");
            let timer = ctx.schedule_timer(Duration::from_secs(600));
            if input == "next" {
                ctx.set_custom_status("second");
                drop(timer);
                return call.await;
            }
            ctx.schedule_wait("go").await;
            ctx.continue_as_new("next").await
        })
        .register("Signals", |ctx: OrchestrationContext, input: String| async move {
            if input == "next" {
                let wait = ctx.schedule_wait("s");
                ctx.set_custom_status("second");
                return Ok(wait.await);
            }
            // The first execution has no wait for `s`.
            ctx.schedule_wait("go").await;
            ctx.continue_as_new("next").await
        })
        .register("LeavesAChild", |ctx: OrchestrationContext, input: String| async move {
            if input == "next" {
                return Ok(ctx.schedule_wait("end").await);
            }
            let _child = ctx.schedule_sub_orchestration_with_id("Waits", "child", "");
            ctx.schedule_wait("go").await;
            ctx.continue_as_new("next").await
        })
        .register("Waits", |ctx: OrchestrationContext, _: String| async move {
            Ok(ctx.schedule_wait("end").await)
        })
        .merge(how_to_continue())
        .build()
}

/// Orchestrations that also do other things in the turn that continues as new.
fn how_to_continue() -> OrchestrationRegistry {
    OrchestrationRegistry::builder()
        .register("LastTurn", |ctx: OrchestrationContext, input: String| async move {
            if input == "next" {
                return Ok(ctx.schedule_wait("end").await);
            }
            let _activity = ctx.schedule_activity("Echo", "");
            let _timer = ctx.schedule_timer(Duration::ZERO);
            let _child = ctx.schedule_sub_orchestration_with_id("Waits", "child", "");
            ctx.schedule_orchestration("Waits", "detached", "");
            ctx.continue_as_new("next").await
        })
        .register("NoAwait", |ctx: OrchestrationContext, input: String| async move {
            match input.as_str() {
                "ok" => drop(ctx.continue_as_new("second")),
                "second" => {
                    drop(ctx.continue_as_new("third"));
                    return Err("ignored".to_owned());
                }
                _ => {}
            }
            Ok(input)
        })
        .register("Twice", |ctx: OrchestrationContext, input: String| async move {
            if input.is_empty() {
                drop(ctx.continue_as_new("first"));
                return ctx.continue_as_new("second").await;
            }
            Ok(input)
        })
        .build()
}

async fn node_on(store: &TestStore) -> NodeUnderTest {
    NodeUnderTest::start(store.provider(), echo(), orchestrations(), quick()).await
}

async fn run(node: &NodeUnderTest, instance: &str, orchestration: &str) -> String {
    node.client.start_orchestration(instance, orchestration, "").await.unwrap();
    node.output_of(instance).await
}

async fn the_old_execution_ends_with_the_next_input(store: TestStore) {
    let node = node_on(&store).await;
    run(&node, "i", "Carries").await;
    let last = node.history("i", 1).await.pop().unwrap();
    assert!(matches!(last.kind, EventKind::OrchestrationContinuedAsNew { input } if input == "next"));
    let info = node.client.get_execution_info("i", 1).await.unwrap();
    assert_eq!((info.status.as_str(), info.output.as_deref()), ("ContinuedAsNew", Some("next")));
    node.runtime.shutdown(None).await;
}

async fn the_new_execution_has_a_history_of_its_own(store: TestStore) {
    let node = node_on(&store).await;
    run(&node, "i", "Carries").await;
    assert_eq!(node.client.list_executions("i").await.unwrap(), [1, 2]);
    let history = node.history("i", 2).await;
    assert_eq!((history[0].event_id, history[0].execution_id), (1, 2));
    assert!(matches!(&history[0].kind, EventKind::OrchestrationStarted { input, .. } if input == "next"));
    assert_eq!(history.len(), 2);
    node.runtime.shutdown(None).await;
}

async fn without_a_version_the_policy_decides_again(store: TestStore) {
    let node = node_on(&store).await;
    node.client.start_orchestration_versioned("i", "Once", "1.0.0", "").await.unwrap();
    assert_eq!(node.output_of("i").await, "2 2.0.0");
    node.runtime.shutdown(None).await;

    let pinned = orchestrations();
    pinned.set_version_policy("Once", VersionPolicy::Exact("1.0.0".parse().unwrap()));
    let node = NodeUnderTest::start(store.provider(), echo(), pinned, quick()).await;
    assert_eq!(run(&node, "j", "Once").await, "2 1.0.0");
    node.runtime.shutdown(None).await;
}

async fn a_named_version_is_taken_exactly(store: TestStore) {
    let node = node_on(&store).await;
    assert_eq!(run(&node, "i", "Once").await, "2 1.0.0");
    node.runtime.shutdown(None).await;
}

async fn the_parent_link_is_carried(store: TestStore) {
    let node = node_on(&store).await;
    assert_eq!(run(&node, "p", "Parent").await, "2 2.0.0");
    let start = node.history("child", 2).await.remove(0);
    let EventKind::OrchestrationStarted { parent_instance, parent_id, parent_execution_id, .. } = start.kind
    else {
        panic!("{start:?}")
    };
    assert_eq!((parent_instance.as_deref(), parent_id, parent_execution_id), (Some("p"), Some(2), Some(1)));
    node.runtime.shutdown(None).await;
}

async fn custom_status_and_key_values_are_carried(store: TestStore) {
    let node = node_on(&store).await;
    assert_eq!(run(&node, "i", "Carries").await, "Some(\"kept\") Some(\"v\")");
    let start = node.history("i", 2).await.remove(0);
    assert!(matches!(&start.kind,
        EventKind::OrchestrationStarted { initial_custom_status: Some(status), .. } if status == "kept"));
    let status = node.client.get_orchestration_status("i").await.unwrap();
    assert!(
        matches!(status, OrchestrationStatus::Completed { custom_status: Some(status), .. } if status == "kept")
    );
    node.runtime.shutdown(None).await;
}

async fn completions_for_the_old_execution_are_ignored(store: TestStore) {
    let node = node_on(&store).await;
    node.client.start_orchestration("i", "Stale", "").await.unwrap();
    node.committed("i").await;
    node.client.raise_event("i", "go", "").await.unwrap();
    node.until_status("i", "second").await;
    let answer = |execution_id, result: &str| WorkItem::ActivityCompleted {
        instance: "i".into(),
        execution_id,
        id: 2,
        result: result.into(),
    };
    let timer = WorkItem::TimerFired { instance: "i".into(), execution_id: 1, id: 3, fire_at_ms: 0 };
    let child = WorkItem::SubOrchCompleted {
        parent_instance: "i".into(),
        parent_execution_id: 1,
        parent_id: 2,
        result: "stale".into(),
    };
    for message in [answer(1, "stale"), timer, child, answer(2, "fresh")] {
        store.provider().enqueue_for_orchestrator(message, None).await.unwrap();
    }
    assert_eq!(node.output_of("i").await, "fresh");
    node.runtime.shutdown(None).await;
}

async fn signals_are_not_carried(store: TestStore) {
    let node = node_on(&store).await;
    node.client.start_orchestration("i", "Signals", "").await.unwrap();
    node.committed("i").await;
    node.client.raise_event("i", "s", "early").await.unwrap();
    node.client.raise_event("i", "go", "").await.unwrap();
    node.until_status("i", "second").await;
    node.client.raise_event("i", "s", "again").await.unwrap();
    assert_eq!(node.output_of("i").await, "again");
    let first = node.history("i", 1).await;
    assert!(
        first
            .iter()
            .any(|event| matches!(&event.kind, EventKind::ExternalEvent { data, .. } if data == "early"))
    );
    node.runtime.shutdown(None).await;
}

async fn children_are_left_running(store: TestStore) {
    let node = node_on(&store).await;
    node.client.start_orchestration("i", "LeavesAChild", "").await.unwrap();
    node.committed("child").await;
    node.client.raise_event("i", "go", "").await.unwrap();
    until("the successor runs", async || !node.history("i", 2).await.is_empty()).await;
    let child = node.client.get_orchestration_status("child").await.unwrap();
    assert!(matches!(child, OrchestrationStatus::Running { .. }), "{child:?}");
    // The successor ignores its result.
    node.client.raise_event("child", "end", "late").await.unwrap();
    assert_eq!(node.output_of("child").await, "late");
    node.client.raise_event("i", "end", "done").await.unwrap();
    assert_eq!(node.output_of("i").await, "done");
    node.runtime.shutdown(None).await;
}

async fn work_of_the_last_turn_is_recorded_but_not_dispatched(store: TestStore) {
    let node = node_on(&store).await;
    node.client.start_orchestration("i", "LastTurn", "").await.unwrap();
    node.committed("detached").await;
    until("the successor runs", async || !node.history("i", 2).await.is_empty()).await;
    let recorded: Vec<EventKind> = node.history("i", 1).await.into_iter().map(|event| event.kind).collect();
    assert!(matches!(recorded[1], EventKind::ActivityScheduled { .. }));
    assert!(matches!(recorded[2], EventKind::TimerCreated { .. }));
    assert!(matches!(recorded[3], EventKind::SubOrchestrationScheduled { .. }));
    let child = node.client.get_orchestration_status("child").await.unwrap();
    assert_eq!(child, OrchestrationStatus::NotFound);
    assert_eq!(node.runtime.metrics_snapshot().unwrap().activity_success, 0);
    let depths = node.client.get_queue_depths().await.unwrap();
    assert_eq!((depths.orchestrator_queue, depths.worker_queue), (0, 0));
    node.runtime.shutdown(None).await;
}

async fn continue_as_new_needs_no_await_and_wins_over_the_return(store: TestStore) {
    let node = node_on(&store).await;
    node.client.start_orchestration("i", "NoAwait", "ok").await.unwrap();
    assert_eq!(node.output_of("i").await, "third");
    assert_eq!(node.client.list_executions("i").await.unwrap(), [1, 2, 3]);
    node.runtime.shutdown(None).await;
}

async fn the_first_of_two_continuations_wins(store: TestStore) {
    let node = node_on(&store).await;
    assert_eq!(run(&node, "i", "Twice").await, "first");
    node.runtime.shutdown(None).await;
}

async fn without_unread_messages_the_start_event_carries_none(store: TestStore) {
    let node = node_on(&store).await;
    run(&node, "i", "Carries").await;
    let start = node.history("i", 2).await.remove(0);
    assert!(matches!(start.kind, EventKind::OrchestrationStarted { carry_forward_events: None, .. }));
    node.runtime.shutdown(None).await;
}

#[tokio::test]
async fn more_than_64_mebibytes_of_unread_messages_fail_the_instance() {
    let keeps_messages = OrchestrationRegistry::builder()
        .register("KeepsMessages", |ctx: OrchestrationContext, _: String| async move {
            ctx.schedule_wait("go").await;
            ctx.continue_as_new("").await
        })
        .build();
    let node = NodeUnderTest::start(memory(), echo(), keeps_messages, RuntimeOptions::default()).await;
    node.client.start_orchestration("i", "KeepsMessages", "").await.unwrap();
    node.committed("i").await;
    let message = "x".repeat(8 * 1024 * 1024);
    for _ in 0..8 {
        node.client.enqueue_event("i", "q", message.clone()).await.unwrap();
    }
    node.client.raise_event("i", "go", "").await.unwrap();
    // The eight one-byte names exceed the limit.
    let text = "Carried queue messages (67108872 bytes) exceed limit (67108864 bytes)";
    assert_eq!(node.failure_of("i").await, ErrorDetails::orchestration_failed(text));
    node.runtime.shutdown(None).await;
}

/// Messages that arrive before the successor's start wait for it, whichever execution they are for.
#[tokio::test]
async fn messages_that_come_before_the_successor_wait_for_it() {
    let store = TamperingStore::new(memory(), |_| None);
    let client = Client::new(store.clone());
    client.start_orchestration("i", "ReadsOne", "").await.unwrap();
    commit(&*store, vec![]).await;
    client.raise_event("i", "go", "").await.unwrap();
    commit_without_messages(&*store, continued("again")).await;
    client.enqueue_event("i", "q", "early").await.unwrap();
    let completion = |execution_id| WorkItem::ActivityCompleted {
        instance: "i".into(),
        execution_id,
        id: 7,
        result: String::new(),
    };
    store.enqueue_for_orchestrator(completion(1), None).await.unwrap();
    let orchestrations = OrchestrationRegistry::builder()
        .register("ReadsOne", |ctx: OrchestrationContext, _: String| async move {
            Ok(ctx.dequeue_event("q").await)
        })
        .build();
    let options = RuntimeOptions { max_attempts: 1_000, ..quick() };
    let node = NodeUnderTest::start(store.clone(), echo(), orchestrations, options).await;
    let abandons = || store.count("abandon_turn");
    until("the batch is abandoned", async || abandons() >= 2).await;
    // A completion for an execution that has not started is abandoned like the others.
    store.enqueue_for_orchestrator(completion(2), None).await.unwrap();
    let before = abandons();
    until("it is abandoned again", async || abandons() >= before + 2).await;
    let status = client.get_orchestration_status("i").await.unwrap();
    assert!(matches!(status, OrchestrationStatus::Running { .. }), "{status:?}");
    assert_eq!(client.list_executions("i").await.unwrap(), [1]);
    node.runtime.shutdown(None).await;
}

#[tokio::test]
async fn the_successor_reads_what_came_before_its_start() {
    let store = memory();
    let client = Client::new(store.clone());
    client.start_orchestration("i", "ReadsOne", "").await.unwrap();
    commit(&*store, vec![]).await;
    client.raise_event("i", "go", "").await.unwrap();
    let successor = commit_without_messages(&*store, continued("again")).await;
    client.enqueue_event("i", "q", "early").await.unwrap();
    let orchestrations = OrchestrationRegistry::builder()
        .register("ReadsOne", |ctx: OrchestrationContext, _: String| async move {
            Ok(ctx.dequeue_event("q").await)
        })
        .build();
    let options = RuntimeOptions { max_attempts: 1_000, ..quick() };
    let node = NodeUnderTest::start(store.clone(), echo(), orchestrations, options).await;
    until("the message was tried", async || store.message_attempts("i").iter().any(|tries| *tries >= 2))
        .await;
    for item in successor {
        store.enqueue_for_orchestrator(item, None).await.unwrap();
    }
    assert_eq!(node.output_of("i").await, "early");
    node.runtime.shutdown(None).await;
}
