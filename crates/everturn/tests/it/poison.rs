//! Work that was fetched too often, and histories that cannot be read, fail for good.

use everturn::providers::Provider;
use everturn::runtime::registry::{ActivityRegistry, OrchestrationRegistry};
use everturn::{
    ErrorDetails, Event, EventKind, OrchestrationContext, OrchestrationStatus, PoisonMessageType,
    RuntimeOptions,
};
use everturn_provider::testing::TableAccess as _;
use tracing::Level;

use crate::log_lines::LogLines;
use crate::node_under_test::{NodeUnderTest, memory, quick, until};

fn orchestrations() -> OrchestrationRegistry {
    OrchestrationRegistry::builder()
        .register("CallsActivity", |ctx: OrchestrationContext, name: String| async move {
            ctx.schedule_activity(name, "in").await
        })
        .register("CallsChild", |ctx: OrchestrationContext, name: String| async move {
            ctx.schedule_sub_orchestration(name, "in").await
        })
        .register("Vanishes", |ctx: OrchestrationContext, _: String| async move {
            ctx.continue_as_new_versioned("9.0.0", "next").await
        })
        .register(
            "Waits",
            |ctx: OrchestrationContext, _: String| async move { Ok(ctx.schedule_wait("go").await) },
        )
        .build()
}

fn poison_options() -> RuntimeOptions {
    RuntimeOptions { max_attempts: 2, ..quick() }
}

async fn node() -> NodeUnderTest {
    NodeUnderTest::start(memory(), ActivityRegistry::default(), orchestrations(), poison_options()).await
}

#[tokio::test]
async fn an_unregistered_orchestration_is_poisoned_with_its_batch() {
    let node = node().await;
    node.client.start_orchestration("i", "Unregistered", "in").await.unwrap();
    let details = node.failure_of("i").await;
    let ErrorDetails::Poison { attempt_count: 3, max_attempts: 2, message_type, message } = &details else {
        panic!("{details:?}")
    };
    assert_eq!(message_type, &PoisonMessageType::Orchestration { instance: "i".into(), execution_id: 1 });
    let (reason, json) = message.split_once('\n').expect("a reason and the batch");
    assert!(json.starts_with("[{\"StartOrchestration\""), "{message}");
    assert!(reason.starts_with("no runtime has registered orchestration Unregistered; "), "{message}");
    let text = format!("poison: orchestration i exceeded 3 attempts (max 2): {reason}");
    assert_eq!(details.display_message(), text);
    let history = node.history("i", 1).await;
    assert!(matches!(&history[0].kind,
        EventKind::OrchestrationStarted { name, input, .. } if name == "Unregistered" && input == "in"));
    assert_eq!(history.len(), 2);
    assert_eq!(node.runtime.metrics_snapshot().unwrap().orch_poison, 1);
    node.runtime.shutdown(None).await;
}

#[tokio::test]
async fn another_node_with_the_handler_picks_the_work_up() {
    let store = memory();
    let without = NodeUnderTest::start(
        store.clone(),
        ActivityRegistry::default(),
        OrchestrationRegistry::default(),
        RuntimeOptions { max_attempts: 1_000_000, ..quick() },
    )
    .await;
    without.client.start_orchestration("i", "Waits", "").await.unwrap();
    until("the node without the handler has fetched it", async || {
        store.message_attempts("i").iter().any(|n| *n > 1)
    })
    .await;
    without.runtime.shutdown(None).await;
    let options = RuntimeOptions { max_attempts: 1_000_000, ..quick() };
    let with = NodeUnderTest::start(store, ActivityRegistry::default(), orchestrations(), options).await;
    with.committed("i").await;
    with.client.raise_event("i", "go", "picked up").await.unwrap();
    assert_eq!(with.output_of("i").await, "picked up");
    with.runtime.shutdown(None).await;
}

#[tokio::test]
async fn an_unregistered_activity_poisons_its_orchestration() {
    let node = node().await;
    node.client.start_orchestration("i", "CallsActivity", "Unregistered").await.unwrap();
    let details = node.failure_of("i").await;
    let ErrorDetails::Poison { message, .. } = &details else { panic!("{details:?}") };
    let (reason, json) = message.split_once('\n').expect("a reason and the activity");
    assert!(json.starts_with("{\"ActivityExecute\""), "{message}");
    assert!(
        reason.starts_with("no runtime has registered activity Unregistered, waiting since 2"),
        "{message}"
    );
    let text = format!("poison: activity Unregistered#2 exceeded 3 attempts (max 2): {reason}");
    assert_eq!(details.display_message(), text);
    let snapshot = node.runtime.metrics_snapshot().unwrap();
    assert_eq!((snapshot.activity_poison, snapshot.orch_poison), (1, 0));
    node.runtime.shutdown(None).await;
}

#[tokio::test]
async fn an_unregistered_child_fails_its_parent_with_its_own_poison() {
    let node = node().await;
    node.client.start_orchestration("p", "CallsChild", "Unregistered").await.unwrap();
    let details = node.failure_of("p").await;
    let text = details.display_message();
    let expected = "poison: orchestration p::sub::2 exceeded 3 attempts (max 2): no runtime has registered \
                    orchestration Unregistered; this one has registered CallsActivity 1.0.0, ";
    assert!(text.starts_with(expected), "{text}");
    assert_eq!(node.failure_of("p::sub::2").await, details);
    node.runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_poisoned_successor_is_an_execution_of_its_own() {
    let node = node().await;
    node.client.start_orchestration("i", "Vanishes", "").await.unwrap();
    let details = node.failure_of("i").await;
    assert!(matches!(details, ErrorDetails::Poison { .. }));
    let successor = node.history("i", 2).await;
    assert!(matches!(&successor[0].kind, EventKind::OrchestrationStarted { input, .. } if input == "next"));
    assert!(matches!(successor[1].kind, EventKind::OrchestrationFailed { .. }));
    let first = node.history("i", 1).await;
    assert!(matches!(first.last().unwrap().kind, EventKind::OrchestrationContinuedAsNew { .. }));
    node.runtime.shutdown(None).await;
}

#[tokio::test]
async fn zero_attempts_mean_poison_at_the_first_fetch() {
    let options = RuntimeOptions { max_attempts: 0, ..quick() };
    let node = NodeUnderTest::start(memory(), ActivityRegistry::default(), orchestrations(), options).await;
    node.client.start_orchestration("i", "Waits", "").await.unwrap();
    let details = node.failure_of("i").await;
    let ErrorDetails::Poison { attempt_count: 1, message, .. } = &details else { panic!("{details:?}") };
    assert!(message.starts_with("[{\"StartOrchestration\""), "no handler is missing: {message}");
    // Later messages are acknowledged and dropped.
    node.client.raise_event("i", "go", "too late").await.unwrap();
    node.client.start_orchestration("j", "Waits", "").await.unwrap();
    node.failure_of("j").await;
    assert_eq!(node.history("i", 1).await.len(), 2);
    node.runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_history_that_cannot_be_read_is_poisoned_at_a_fixed_event_id() {
    let store = memory();
    let before =
        NodeUnderTest::start(store.clone(), ActivityRegistry::default(), orchestrations(), quick()).await;
    before.client.start_orchestration("i", "Waits", "").await.unwrap();
    before.committed("i").await;
    before.runtime.shutdown(None).await;
    assert!(store.damage_event("i", 1, 2));

    let options = RuntimeOptions { max_attempts: 0, ..quick() };
    let node =
        NodeUnderTest::start(store.clone(), ActivityRegistry::default(), orchestrations(), options).await;
    node.client.raise_event("i", "go", "x").await.unwrap();
    until("the failure is recorded", async || {
        let info = node.client.get_instance_info("i").await.unwrap();
        info.status == "Failed"
    })
    .await;
    // A second message finds the failure recorded, and is dropped.
    node.client.raise_event("i", "go", "y").await.unwrap();
    until("the message is deleted", async || store.message_attempts("i").is_empty()).await;
    node.runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_taken_event_id_for_the_failure_deletes_no_message() {
    let (lines, _guard) = LogLines::capture();
    let store = memory();
    let before =
        NodeUnderTest::start(store.clone(), ActivityRegistry::default(), orchestrations(), quick()).await;
    before.client.start_orchestration("i", "Waits", "").await.unwrap();
    before.committed("i").await;
    before.runtime.shutdown(None).await;
    // A history so long that an ordinary event already has the id of the failure event.
    let ordinary = EventKind::ExternalEvent { name: "other".into(), data: String::new() };
    let event = Event::with_event_id(99_999, "i", 1, None, ordinary);
    store.append_with_execution("i", 1, vec![event]).await.unwrap();
    assert!(store.damage_event("i", 1, 2));

    let options = RuntimeOptions { max_attempts: 0, ..quick() };
    let node =
        NodeUnderTest::start(store.clone(), ActivityRegistry::default(), orchestrations(), options).await;
    node.client.raise_event("i", "go", "x").await.unwrap();
    until("the error is logged", async || !lines.containing("cannot be read was refused").is_empty()).await;
    node.runtime.shutdown(None).await;
    let line = lines.containing("cannot be read was refused").remove(0);
    assert_eq!((line.level, line.target.as_str()), (Level::ERROR, "everturn::runtime"));
    assert_eq!(line.field("instance_id"), "i");
    assert_eq!(store.message_attempts("i").len(), 1, "the message is kept");
    assert_eq!(node.client.get_instance_info("i").await.unwrap().status, "Running");
}

#[tokio::test]
async fn a_message_that_cannot_be_read_does_not_undo_a_completed_instance() {
    let store = memory();
    let options = RuntimeOptions { max_attempts: 0, ..quick() };
    let before =
        NodeUnderTest::start(store.clone(), ActivityRegistry::default(), orchestrations(), quick()).await;
    before.client.start_orchestration("i", "Waits", "").await.unwrap();
    before.committed("i").await;
    before.client.raise_event("i", "go", "done").await.unwrap();
    before.output_of("i").await;
    before.runtime.shutdown(None).await;
    before.client.raise_event("i", "go", "late").await.unwrap();
    assert_eq!(store.damage_messages("i"), 1);

    let node =
        NodeUnderTest::start(store.clone(), ActivityRegistry::default(), orchestrations(), options).await;
    until("the message is deleted", async || store.message_attempts("i").is_empty()).await;
    let status = node.client.get_orchestration_status("i").await.unwrap();
    assert!(matches!(status, OrchestrationStatus::Completed { output, .. } if output == "done"));
    node.runtime.shutdown(None).await;
}
