//! Messages that arrive after continue-as-new is committed and before the next execution's start is queued.

use std::time::Duration;

use everturn::providers::{ExecutionMetadata, WorkItem};
use everturn::runtime::registry::OrchestrationRegistry;
use everturn::{Client, Either2, ErrorDetails, Event, EventKind, OrchestrationContext, RuntimeOptions};

use crate::node_under_test::{NodeUnderTest, echo, quick, until};
use crate::stores::{TestStore, on_every_store};
use crate::turn_by_hand::child_start;

on_every_store!(
    inputs_survive_while_a_successors_start_is_hidden,
    a_poisoned_successor_is_an_execution_of_its_own,
    the_successors_start_wins_in_any_queue_order_and_a_colliding_parent_is_notified,
    queue_messages_survive_the_window_before_the_successor,
    signals_survive_the_window_before_the_successor,
    a_cancel_survives_the_window_before_the_successor,
    stale_completions_in_the_window_are_dropped,
    a_race_in_the_successor_sees_what_came_in_the_window,
);

fn unlimited_attempts() -> RuntimeOptions {
    RuntimeOptions { max_attempts: u32::MAX, ..quick() }
}

const NEVER: Duration = Duration::from_secs(600);

fn orchestrations() -> OrchestrationRegistry {
    OrchestrationRegistry::builder()
        .register(
            "Other",
            |_: OrchestrationContext, _: String| async move { Ok("the wrong handler".to_owned()) },
        )
        // The first execution of these is committed by hand.
        .register("Reads", |ctx: OrchestrationContext, input: String| async move {
            let (one, two) = (ctx.dequeue_event("q").await, ctx.dequeue_event("q").await);
            Ok(format!("{input} {one} {two}"))
        })
        .register("Waits", |ctx: OrchestrationContext, input: String| async move {
            let wait = ctx.schedule_wait("s");
            ctx.set_custom_status("waiting");
            Ok(format!("{input} {}", wait.await))
        })
        .register("Calls", |ctx: OrchestrationContext, input: String| async move {
            Ok(format!("{input} {}", ctx.schedule_activity("Echo", "fresh").await?))
        })
        .register("Races", |ctx: OrchestrationContext, input: String| async move {
            match ctx.select2(ctx.dequeue_event("q"), ctx.schedule_timer(NEVER)).await {
                Either2::First(message) => Ok(format!("{input} {message}")),
                Either2::Second(()) => Err("too late".to_owned()),
            }
        })
        .build()
}

/// Commits continue-as-new without queueing the successor's start, which is returned.
async fn in_the_window(store: &TestStore, orchestration: &str) -> WorkItem {
    let provider = store.provider();
    Client::new(store.provider()).start_orchestration("i", orchestration, "first").await.unwrap();
    let (_, token, _) =
        provider.fetch_orchestration_item(NEVER, Duration::ZERO, None).await.unwrap().unwrap();
    let events = continued(orchestration);
    let metadata = ExecutionMetadata {
        status: Some("ContinuedAsNew".to_owned()),
        output: Some("second".to_owned()),
        orchestration_name: Some(orchestration.to_owned()),
        orchestration_version: Some("1.0.0".to_owned()),
        ..ExecutionMetadata::default()
    };
    provider.ack_orchestration_item(&token, 1, events, vec![], vec![], metadata, vec![]).await.unwrap();
    successor(orchestration)
}

fn continued(orchestration: &str) -> Vec<Event> {
    let start = EventKind::OrchestrationStarted {
        name: orchestration.to_owned(),
        version: "1.0.0".to_owned(),
        input: "first".to_owned(),
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        carry_forward_events: None,
        initial_custom_status: None,
    };
    let end = EventKind::OrchestrationContinuedAsNew { input: "second".to_owned() };
    vec![Event::with_event_id(1, "i", 1, None, start), Event::with_event_id(2, "i", 1, None, end)]
}

fn successor(orchestration: &str) -> WorkItem {
    WorkItem::ContinueAsNew {
        instance: "i".into(),
        orchestration: orchestration.into(),
        input: "second".into(),
        version: Some("1.0.0".into()),
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        carry_forward_events: vec![("q".into(), "carried".into())],
        initial_custom_status: None,
    }
}

/// Delivers messages in the window, where a runtime can only abandon them; then queues the successor's start.
async fn through_the_window(
    store: TestStore,
    orchestration: &str,
    messages: Vec<WorkItem>,
) -> (TestStore, NodeUnderTest) {
    let (store, clock) = store.with_manual_clock().await;
    let start = in_the_window(&store, orchestration).await;
    for message in messages {
        store.provider().enqueue_for_orchestrator(message, None).await.unwrap();
    }
    // One slot works in order: when a later start is served, the messages were fetched and abandoned.
    let one_slot = RuntimeOptions { orchestration_concurrency: 1, ..unlimited_attempts() };
    let node = NodeUnderTest::start(store.provider(), echo(), orchestrations(), one_slot).await;
    node.client.start_orchestration("later", "Other", "").await.unwrap();
    node.output_of("later").await;
    node.runtime.shutdown(None).await;
    let tried = store.provider().fetch_orchestration_item(NEVER, Duration::ZERO, None).await.unwrap();
    assert!(tried.is_none(), "{tried:?}");
    store.provider().enqueue_for_orchestrator(start, None).await.unwrap();
    clock.advance(Duration::from_secs(1));
    let node = NodeUnderTest::start(store.provider(), echo(), orchestrations(), unlimited_attempts()).await;
    (store, node)
}

fn queued(data: &str) -> WorkItem {
    WorkItem::QueueMessage { instance: "i".into(), name: "q".into(), data: data.into() }
}

/// No handler for the successor's version is registered yet, so its start is abandoned repeatedly.
async fn inputs_survive_while_a_successors_start_is_hidden(store: TestStore) {
    let moves = |with_second: bool| {
        let builder = OrchestrationRegistry::builder().register(
            "Moves",
            |ctx: OrchestrationContext, _: String| async move {
                ctx.schedule_wait("go").await;
                ctx.continue_as_new_versioned("2.0.0", "").await
            },
        );
        let second = |ctx: OrchestrationContext, _: String| async move {
            let mut read = Vec::new();
            for _ in 0..3 {
                read.push(ctx.dequeue_event("q").await);
            }
            Ok(read.join(" "))
        };
        if with_second {
            builder.register_versioned("Moves", "2.0.0", second).build()
        } else {
            builder.build()
        }
    };
    let node = NodeUnderTest::start(store.provider(), echo(), moves(false), unlimited_attempts()).await;
    node.client.start_orchestration("i", "Moves", "").await.unwrap();
    node.committed("i").await;
    node.client.enqueue_event("i", "q", "before").await.unwrap();
    node.client.raise_event("i", "go", "").await.unwrap();
    until("it continued", async || {
        let last = node.history("i", 1).await.pop();
        last.is_some_and(|event| matches!(event.kind, EventKind::OrchestrationContinuedAsNew { .. }))
    })
    .await;
    for message in ["while", "hidden"] {
        node.client.enqueue_event("i", "q", message).await.unwrap();
    }
    let other = NodeUnderTest::start(store.provider(), echo(), moves(true), unlimited_attempts()).await;
    // Carried messages come first. Later messages were abandoned one by one, so their order may change.
    let output = other.output_of("i").await;
    assert!(["before while hidden", "before hidden while"].contains(&output.as_str()), "{output}");
    node.runtime.shutdown(None).await;
    other.runtime.shutdown(None).await;
}

async fn a_poisoned_successor_is_an_execution_of_its_own(store: TestStore) {
    let vanishes = OrchestrationRegistry::builder()
        .register("Vanishes", |ctx: OrchestrationContext, _: String| async move {
            ctx.continue_as_new_versioned("9.0.0", "next").await
        })
        .build();
    let options = RuntimeOptions { max_attempts: 2, ..quick() };
    let node = NodeUnderTest::start(store.provider(), echo(), vanishes, options).await;
    node.client.start_orchestration("i", "Vanishes", "").await.unwrap();
    assert!(matches!(node.failure_of("i").await, ErrorDetails::Poison { .. }));
    let successor = node.history("i", 2).await;
    assert!(matches!(&successor[0].kind, EventKind::OrchestrationStarted { input, .. } if input == "next"));
    assert!(matches!(successor[1].kind, EventKind::OrchestrationFailed { .. }));
    assert_eq!(successor.len(), 2);
    let statuses = [1, 2].map(|execution_id| node.client.get_execution_info("i", execution_id));
    let [first, second] = statuses;
    assert_eq!(first.await.unwrap().status, "ContinuedAsNew");
    assert_eq!(second.await.unwrap().status, "Failed");
    node.runtime.shutdown(None).await;
}

async fn the_successors_start_wins_in_any_queue_order_and_a_colliding_parent_is_notified(store: TestStore) {
    let start = in_the_window(&store, "Reads").await;
    let client = Client::new(store.provider());
    client.start_orchestration("p", "Waits", "").await.unwrap();
    // Queued before the successor's start: a client's start, a message and a parent's child start.
    client.start_orchestration("i", "Other", "theirs").await.unwrap();
    for message in [queued("new"), child_start("p", "i"), start] {
        store.provider().enqueue_for_orchestrator(message, None).await.unwrap();
    }
    let node = NodeUnderTest::start(store.provider(), echo(), orchestrations(), unlimited_attempts()).await;
    assert_eq!(node.output_of("i").await, "second carried new");
    // The parent's event 2 is no child call, so the notice fails the parent. `sub_orchestrations` checks the notice's text.
    let failure = node.failure_of("p").await.display_message();
    assert!(
        failure.contains("for sub-orchestration id=2") || failure.contains("completion kind mismatch"),
        "{failure}"
    );
    node.runtime.shutdown(None).await;
}

async fn queue_messages_survive_the_window_before_the_successor(store: TestStore) {
    let (_store, node) = through_the_window(store, "Reads", vec![queued("new"), queued("unread")]).await;
    assert_eq!(node.output_of("i").await, "second carried new");
    node.runtime.shutdown(None).await;
}

/// No wait is open when the signal is applied, so it is recorded but not delivered.
async fn signals_survive_the_window_before_the_successor(store: TestStore) {
    let signal =
        |data: &str| WorkItem::ExternalRaised { instance: "i".into(), name: "s".into(), data: data.into() };
    let (_store, node) = through_the_window(store, "Waits", vec![signal("early")]).await;
    node.until_status("i", "waiting").await;
    let history = node.history("i", 2).await;
    assert!(
        history
            .iter()
            .any(|event| matches!(&event.kind, EventKind::ExternalEvent { data, .. } if data == "early")),
        "{history:?}"
    );
    node.client.raise_event("i", "s", "in time").await.unwrap();
    assert_eq!(node.output_of("i").await, "second in time");
    node.runtime.shutdown(None).await;
}

async fn a_cancel_survives_the_window_before_the_successor(store: TestStore) {
    let cancel = WorkItem::CancelInstance { instance: "i".into(), reason: "enough".into() };
    let (_store, node) = through_the_window(store, "Waits", vec![cancel]).await;
    assert_eq!(node.failure_of("i").await.display_message(), "canceled: enough");
    assert_eq!(node.client.get_execution_info("i", 1).await.unwrap().status, "ContinuedAsNew");
    node.runtime.shutdown(None).await;
}

async fn stale_completions_in_the_window_are_dropped(store: TestStore) {
    let stale = vec![
        WorkItem::ActivityCompleted { instance: "i".into(), execution_id: 1, id: 2, result: "stale".into() },
        WorkItem::TimerFired { instance: "i".into(), execution_id: 1, id: 3, fire_at_ms: 0 },
    ];
    let (_store, node) = through_the_window(store, "Calls", stale).await;
    // The successor's own completion is delivered.
    assert_eq!(node.output_of("i").await, "second fresh");
    node.runtime.shutdown(None).await;
}

async fn a_race_in_the_successor_sees_what_came_in_the_window(store: TestStore) {
    let (_store, node) = through_the_window(store, "Races", vec![queued("new")]).await;
    assert_eq!(node.output_of("i").await, "second carried");
    node.runtime.shutdown(None).await;
}
