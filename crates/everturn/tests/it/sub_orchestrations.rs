//! Sub-orchestrations and detached starts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use everturn::providers::{ProviderError, WorkItem};
use everturn::runtime::registry::OrchestrationRegistry;
use everturn::{
    AppErrorKind, ErrorDetails, EventKind, OrchestrationContext, OrchestrationStatus, RuntimeOptions,
};

use crate::node_under_test::{NodeUnderTest, echo, quick, until};
use crate::stores::{TestStore, on_every_store};
use crate::tampering_store::TamperingStore;
use crate::turn_by_hand::child_start;

on_every_store!(
    children_are_named_after_their_parent_its_execution_and_their_event,
    an_explicit_id_is_used_as_it_is,
    an_explicit_id_with_the_reserved_marker_is_an_error_and_records_nothing,
    a_detached_id_with_the_reserved_marker_panics,
    a_child_of_a_named_version_runs_that_version,
    a_childs_failure_is_an_error_its_parent_can_handle,
    a_child_answers_the_execution_that_called_it,
    a_child_that_continues_as_new_in_its_first_turn_answers_its_parent,
    a_child_cancelled_by_a_client_is_an_error_its_parent_can_handle,
    a_start_of_a_running_instance_is_reported_to_the_scheduling_parent,
    a_start_of_a_finished_instance_is_reported_to_the_scheduling_parent,
    the_same_call_delivered_twice_is_no_collision,
    a_collision_is_reported_even_if_the_turn_cannot_be_committed,
    an_unregistered_child_fails_its_parent_with_its_poison,
    detached_starts_of_an_ending_turn_are_honoured,
    detached_starts_of_a_cancelled_turn_are_not,
);

fn orchestrations() -> OrchestrationRegistry {
    OrchestrationRegistry::builder()
        .register("Child", |ctx: OrchestrationContext, input: String| async move {
            match input.as_str() {
                "fail" => Err("sorry".to_owned()),
                "panic" => panic!("oh no"),
                "wait" => Ok(ctx.schedule_wait("end").await),
                "continue" => ctx.continue_as_new("continued").await,
                _ => Ok(format!("{input} {} {}", ctx.instance_id(), ctx.orchestration_version())),
            }
        })
        .register_versioned("Child", "2.0.0", |_: OrchestrationContext, input: String| async move {
            Ok(format!("{input} by 2.0.0"))
        })
        .register("Names", |ctx: OrchestrationContext, execution: String| async move {
            let name = one(&ctx, "x").await?;
            if execution == "second" { Ok(name) } else { ctx.continue_as_new("second").await }
        })
        .register("Explicit", |ctx: OrchestrationContext, id: String| async move {
            let version = Some("1.0.0".to_owned());
            ctx.schedule_sub_orchestration_versioned_with_id("Child", version, id, "x").await
        })
        .register("Calls", |ctx: OrchestrationContext, input: String| async move {
            Ok(match one(&ctx, &input).await {
                Ok(output) => output,
                Err(error) => format!("error: {error}"),
            })
        })
        .register("Latest", |ctx: OrchestrationContext, input: String| async move {
            ctx.schedule_sub_orchestration("Child", input).await
        })
        .register("CallsUnregistered", |ctx: OrchestrationContext, _: String| async move {
            Ok(ctx.schedule_sub_orchestration("Unregistered", "").await.unwrap_or_else(|error| error))
        })
        .register("Adopts", |ctx: OrchestrationContext, id: String| async move {
            let version = Some("1.0.0".to_owned());
            let child = ctx.schedule_sub_orchestration_versioned_with_id("Child", version, id, "wait");
            Ok(child.await.unwrap_or_else(|error| error))
        })
        .register("LeavesOne", |ctx: OrchestrationContext, execution: String| async move {
            if execution == "second" {
                // Event 2 here too.
                return one(&ctx, "y").await;
            }
            let version = Some("1.0.0".to_owned());
            let _child = ctx.schedule_sub_orchestration_versioned_with_id("Child", version, "left", "wait");
            ctx.schedule_wait("go").await;
            ctx.continue_as_new("second").await
        })
        .register("Detaches", |ctx: OrchestrationContext, how: String| async move {
            if how == "cancel" {
                ctx.schedule_wait("go").await;
            }
            let reserved = how.contains("sub::");
            ctx.schedule_orchestration(
                "Child",
                if reserved { how.clone() } else { format!("from {how}") },
                "x",
            );
            match how.as_str() {
                "fail" => Err("sorry".to_owned()),
                "continue" => ctx.continue_as_new("done").await,
                _ => Ok(how),
            }
        })
        .build()
}

/// Calls version 1.0.0 of the child.
async fn one(ctx: &OrchestrationContext, input: &str) -> Result<String, String> {
    ctx.schedule_sub_orchestration_versioned("Child", Some("1.0.0".to_owned()), input).await
}

async fn node_on(store: &TestStore) -> NodeUnderTest {
    NodeUnderTest::start(store.provider(), echo(), orchestrations(), quick()).await
}

async fn run(node: &NodeUnderTest, instance: &str, orchestration: &str, input: &str) -> String {
    node.client.start_orchestration(instance, orchestration, input).await.unwrap();
    node.output_of(instance).await
}

async fn begin(node: &NodeUnderTest, instance: &str, orchestration: &str, input: &str) {
    node.client.start_orchestration(instance, orchestration, input).await.unwrap();
    node.committed(instance).await;
}

async fn children_are_named_after_their_parent_its_execution_and_their_event(store: TestStore) {
    let node = node_on(&store).await;
    assert_eq!(run(&node, "p", "Names", "").await, "x p::sub::2_2 1.0.0");
    node.output_of("p::sub::2").await;
    let names: Vec<String> = [node.history("p", 1).await, node.history("p", 2).await]
        .concat()
        .into_iter()
        .filter_map(|event| match event.kind {
            EventKind::SubOrchestrationScheduled { instance, .. } => Some(instance),
            _ => None,
        })
        .collect();
    assert_eq!(names, ["sub::2", "sub::2_2"]);
    node.runtime.shutdown(None).await;
}

async fn an_explicit_id_is_used_as_it_is(store: TestStore) {
    let node = node_on(&store).await;
    for (parent, id) in [("p1", "plain"), ("p2", "a::b"), ("p3", "x::sub::7")] {
        assert_eq!(run(&node, parent, "Explicit", id).await, format!("x {id} 1.0.0"));
    }
    node.runtime.shutdown(None).await;
}

async fn an_explicit_id_with_the_reserved_marker_is_an_error_and_records_nothing(store: TestStore) {
    let node = node_on(&store).await;
    node.client.start_orchestration("p", "Explicit", "sub::7").await.unwrap();
    let text = node.failure_of("p").await.display_message();
    assert!(text.contains("reserved marker") && text.contains("sub::7"), "{text}");
    assert_eq!(node.history("p", 1).await.len(), 2);
    node.runtime.shutdown(None).await;
}

async fn a_detached_id_with_the_reserved_marker_panics(store: TestStore) {
    let node = node_on(&store).await;
    for (instance, id) in [("a", "sub::7"), ("b", "x::sub::7")] {
        node.client.start_orchestration(instance, "Detaches", id).await.unwrap();
        let details = node.failure_of(instance).await;
        assert!(
            matches!(&details, ErrorDetails::Application { kind: AppErrorKind::Panicked, message, .. }
                if message.contains("reserved sub-orchestration marker")),
            "{details:?}"
        );
    }
    node.runtime.shutdown(None).await;
}

async fn a_child_of_a_named_version_runs_that_version(store: TestStore) {
    let node = node_on(&store).await;
    assert_eq!(run(&node, "p", "Calls", "x").await, "x p::sub::2 1.0.0");
    assert_eq!(run(&node, "q", "Latest", "x").await, "x by 2.0.0");
    node.runtime.shutdown(None).await;
}

async fn a_childs_failure_is_an_error_its_parent_can_handle(store: TestStore) {
    let node = node_on(&store).await;
    assert_eq!(run(&node, "p", "Calls", "fail").await, "error: sorry");
    assert_eq!(run(&node, "q", "Calls", "panic").await, "error: orchestration panicked: oh no");
    node.runtime.shutdown(None).await;
}

async fn a_child_answers_the_execution_that_called_it(store: TestStore) {
    let node = node_on(&store).await;
    begin(&node, "p", "LeavesOne", "").await;
    node.committed("left").await;
    let start = node.history("left", 1).await.remove(0);
    assert!(matches!(start.kind, EventKind::OrchestrationStarted { parent_execution_id: Some(1), .. }));
    node.runtime.shutdown(None).await;
    // The result of the first execution's child, event 2, arrives while the second execution has its own event 2 open.
    node.client.raise_event("p", "go", "").await.unwrap();
    node.client.raise_event("left", "end", "for the first execution").await.unwrap();
    let node = node_on(&store).await;
    assert_eq!(node.output_of("left").await, "for the first execution");
    assert_eq!(node.output_of("p").await, "y p::sub::2_2 1.0.0");
    node.runtime.shutdown(None).await;
}

async fn a_child_that_continues_as_new_in_its_first_turn_answers_its_parent(store: TestStore) {
    let node = node_on(&store).await;
    assert_eq!(run(&node, "p", "Calls", "continue").await, "continued by 2.0.0");
    assert_eq!(node.client.list_executions("p::sub::2").await.unwrap(), [1, 2]);
    node.runtime.shutdown(None).await;
}

async fn a_child_cancelled_by_a_client_is_an_error_its_parent_can_handle(store: TestStore) {
    let node = node_on(&store).await;
    begin(&node, "p", "Calls", "wait").await;
    node.committed("p::sub::2").await;
    node.client.cancel_instance("p::sub::2", "not needed").await.unwrap();
    assert_eq!(node.output_of("p").await, "error: canceled: not needed");
    let history = node.history("p", 1).await;
    assert!(history.iter().any(|event| matches!(
        &event.kind,
        EventKind::SubOrchestrationFailed { details: ErrorDetails::Application { .. } }
    )));
    node.runtime.shutdown(None).await;
}

async fn a_start_of_a_running_instance_is_reported_to_the_scheduling_parent(store: TestStore) {
    let node = node_on(&store).await;
    node.client.start_orchestration_versioned("taken", "Child", "1.0.0", "wait").await.unwrap();
    node.committed("taken").await;
    let text = "sub-orchestration instance id 'taken' already exists";
    assert_eq!(run(&node, "p", "Adopts", "taken").await, text);
    // The running instance is not affected.
    node.client.raise_event("taken", "end", "mine").await.unwrap();
    assert_eq!(node.output_of("taken").await, "mine");
    node.runtime.shutdown(None).await;
}

async fn a_start_of_a_finished_instance_is_reported_to_the_scheduling_parent(store: TestStore) {
    let node = node_on(&store).await;
    run(&node, "taken", "Child", "x").await;
    let before = node.history("taken", 1).await;
    let text = "sub-orchestration instance id 'taken' already exists and is terminal";
    assert_eq!(run(&node, "p", "Adopts", "taken").await, text);
    assert_eq!(node.history("taken", 1).await, before);
    node.runtime.shutdown(None).await;
}

async fn the_same_call_delivered_twice_is_no_collision(store: TestStore) {
    let node = node_on(&store).await;
    begin(&node, "p", "Adopts", "c").await;
    node.committed("c").await;
    // The call of p, execution 1, event 2, is delivered a second time.
    store.provider().enqueue_for_orchestrator(child_start("p", "c"), None).await.unwrap();
    until("it is processed", async || node.client.get_queue_depths().await.unwrap().orchestrator_queue == 0)
        .await;
    node.client.raise_event("c", "end", "answer").await.unwrap();
    assert_eq!(node.output_of("p").await, "answer");
    node.runtime.shutdown(None).await;
}

async fn a_collision_is_reported_even_if_the_turn_cannot_be_committed(store: TestStore) {
    let node = node_on(&store).await;
    node.client.start_orchestration_versioned("taken", "Child", "1.0.0", "wait").await.unwrap();
    node.committed("taken").await;
    node.runtime.shutdown(None).await;
    // One batch holds the signal that ends the instance and the colliding start of a parent.
    node.client.raise_event("taken", "end", "never stored").await.unwrap();
    let parent = WorkItem::StartOrchestration {
        instance: "taken".into(),
        orchestration: "Child".into(),
        input: "wait".into(),
        version: Some("1.0.0".into()),
        parent_instance: Some("p".into()),
        parent_id: Some(2),
        parent_execution_id: Some(1),
        execution_id: 1,
    };
    store.provider().enqueue_for_orchestrator(parent, None).await.unwrap();
    let refused = Arc::new(AtomicBool::new(false));
    let once = Arc::clone(&refused);
    let refusing = TamperingStore::new(store.provider(), move |operation| {
        let first = operation == "commit_turn" && !once.swap(true, Ordering::SeqCst);
        first.then(|| ProviderError::permanent("commit_turn", "disk error"))
    });
    let one_slot = RuntimeOptions { orchestration_concurrency: 1, ..quick() };
    let node = NodeUnderTest::start(refusing, echo(), orchestrations(), one_slot).await;
    let details = node.failure_of("taken").await;
    assert!(matches!(&details, ErrorDetails::Infrastructure { message, .. } if message == "disk error"));
    node.runtime.shutdown(None).await;
    // The notice stays queued: its parent does not exist.
    let waiting = node.client.get_queue_depths().await.unwrap().orchestrator_queue;
    assert_eq!(waiting, 1);
}

async fn an_unregistered_child_fails_its_parent_with_its_poison(store: TestStore) {
    let options = RuntimeOptions { max_attempts: 2, ..quick() };
    let node = NodeUnderTest::start(store.provider(), echo(), orchestrations(), options).await;
    node.client.start_orchestration("p", "CallsUnregistered", "").await.unwrap();
    let details = node.failure_of("p").await;
    assert!(matches!(details, ErrorDetails::Poison { .. }), "{details:?}");
    assert_eq!(node.failure_of("p::sub::2").await, details);
    node.runtime.shutdown(None).await;
}

async fn detached_starts_of_an_ending_turn_are_honoured(store: TestStore) {
    let node = node_on(&store).await;
    for how in ["complete", "fail", "continue"] {
        node.client.start_orchestration(how, "Detaches", how).await.unwrap();
        assert_eq!(node.output_of(&format!("from {how}")).await, "x by 2.0.0");
        node.end_of(how).await;
    }
    let info = node.client.get_instance_info("from complete").await.unwrap();
    assert_eq!(info.parent_instance_id, None);
    node.runtime.shutdown(None).await;
}

async fn detached_starts_of_a_cancelled_turn_are_not(store: TestStore) {
    let node = node_on(&store).await;
    begin(&node, "i", "Detaches", "cancel").await;
    node.runtime.shutdown(None).await;
    node.client.raise_event("i", "go", "").await.unwrap();
    node.client.cancel_instance("i", "enough").await.unwrap();
    let node = node_on(&store).await;
    assert_eq!(node.failure_of("i").await.display_message(), "canceled: enough");
    until("the queue is empty", async || {
        node.client.get_queue_depths().await.unwrap().orchestrator_queue == 0
    })
    .await;
    let detached = node.client.get_orchestration_status("from cancel").await.unwrap();
    assert_eq!(detached, OrchestrationStatus::NotFound);
    node.runtime.shutdown(None).await;
}
