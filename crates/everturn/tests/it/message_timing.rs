//! Messages that arrive early, late, or while their instance is locked.

use std::sync::Arc;
use std::time::Duration;

use everturn::providers::WorkItem;
use everturn::runtime::registry::OrchestrationRegistry;
use everturn::{Client, Event, EventKind, OrchestrationContext, Receipt, RuntimeOptions, TagFilter};

use crate::node_under_test::{NodeUnderTest, echo};
use crate::stores::{TestStore, on_every_store};
use crate::turn_by_hand::commit;

/// Longer than any of these tests takes.
const LOCK: Duration = Duration::from_secs(60);

on_every_store!(
    a_completion_that_arrives_while_its_instance_is_locked_comes_with_the_next_fetch,
    a_queue_message_right_behind_the_start_is_kept,
    a_cancel_sent_before_the_start_leaves_the_instance_alone,
    a_cancel_sent_right_behind_the_start_cancels_the_instance,
    a_queue_message_for_an_unknown_instance_is_dropped,
    messages_after_the_end_change_nothing,
    a_thousand_unread_messages_survive_continue_as_new_in_order,
    messages_sent_during_continue_as_new_are_not_lost,
    messages_for_instances_that_never_start_do_not_starve_others,
);

fn drain(count: usize) -> OrchestrationRegistry {
    OrchestrationRegistry::builder()
        .register("Drain", move |ctx: OrchestrationContext, _: String| async move {
            let mut read = Vec::with_capacity(count);
            while read.len() < count {
                read.push(ctx.dequeue_event("inbox").await);
            }
            Ok(read.join(","))
        })
        .build()
}

fn numbers(range: std::ops::Range<usize>) -> String {
    range.map(|number| number.to_string()).collect::<Vec<_>>().join(",")
}

/// The turn was fetched before the completion arrived: its commit must leave the completion in the queue.
async fn a_completion_that_arrives_while_its_instance_is_locked_comes_with_the_next_fetch(store: TestStore) {
    let store = store.provider();
    let client = Client::new(Arc::clone(&store));
    client.start_orchestration("one", "order", "").await.unwrap();
    let scheduled = EventKind::ActivityScheduled {
        name: "pay".to_owned(),
        input: String::new(),
        session_id: None,
        tag: None,
    };
    commit(&*store, vec![scheduled]).await;
    let activity = WorkItem::ActivityExecute {
        instance: "one".to_owned(),
        execution_id: 1,
        id: 2,
        name: "pay".to_owned(),
        input: String::new(),
        session_id: None,
        tag: None,
    };
    store.enqueue_for_worker(activity).await.unwrap();
    client.raise_event("one", "first", "").await.unwrap();
    client.raise_event("one", "second", "").await.unwrap();

    let fetch = async || store.fetch_orchestration_item(LOCK, Duration::ZERO, None).await.unwrap();
    let (turn, turn_token, _) = fetch().await.expect("the signals");
    assert_eq!(turn.messages.len(), 2);
    let fetched = store.fetch_work_item(LOCK, Duration::ZERO, None, &TagFilter::Any).await.unwrap();
    let (_, work_token, _) = fetched.expect("the activity");
    let completion = WorkItem::ActivityCompleted {
        instance: "one".to_owned(),
        execution_id: 1,
        id: 2,
        result: "paid".to_owned(),
    };
    store.ack_work_item(&work_token, Some(completion.clone())).await.unwrap();
    assert!(fetch().await.is_none(), "the instance is locked");

    let signal = EventKind::ExternalEvent { name: "first".to_owned(), data: String::new() };
    let delta = vec![Event::with_event_id(3, "one", 1, None, signal)];
    store
        .ack_orchestration_item(&turn_token, 1, delta, vec![], vec![], Default::default(), vec![])
        .await
        .unwrap();
    // The two signals were fetched and are deleted. The completion was not fetched and stays.
    let (next, next_token, attempts) = fetch().await.expect("the completion");
    assert_eq!((next.messages, attempts), (vec![completion], 1));
    assert_eq!(next.history.len(), 3);
    store
        .ack_orchestration_item(&next_token, 1, vec![], vec![], vec![], Default::default(), vec![])
        .await
        .unwrap();
    assert!(fetch().await.is_none());
}

async fn a_queue_message_right_behind_the_start_is_kept(store: TestStore) {
    let client = Client::new(store.provider());
    client.start_orchestration("one", "Drain", "").await.unwrap();
    client.enqueue_event("one", "inbox", "0").await.unwrap();
    let node = NodeUnderTest::start(store.provider(), echo(), drain(1), RuntimeOptions::default()).await;
    assert_eq!(node.output_of("one").await, "0");
    node.runtime.shutdown(None).await;
}

async fn a_cancel_sent_before_the_start_leaves_the_instance_alone(store: TestStore) {
    let client = Client::new(store.provider());
    let receipt = client.cancel_instance_with_receipt("one", "too early").await.unwrap();
    assert_eq!(receipt, Receipt::Dropped, "there is nothing to cancel");
    client.cancel_instance("one", "too early").await.unwrap();
    client.start_orchestration("one", "Drain", "").await.unwrap();
    client.enqueue_event("one", "inbox", "0").await.unwrap();
    let node = NodeUnderTest::start(store.provider(), echo(), drain(1), RuntimeOptions::default()).await;
    assert_eq!(node.output_of("one").await, "0");
    node.runtime.shutdown(None).await;
}

async fn a_cancel_sent_right_behind_the_start_cancels_the_instance(store: TestStore) {
    let client = Client::new(store.provider());
    client.start_orchestration("one", "Drain", "").await.unwrap();
    let receipt = client.cancel_instance_with_receipt("one", "changed my mind").await.unwrap();
    assert_eq!(receipt, Receipt::Queued);
    let node = NodeUnderTest::start(store.provider(), echo(), drain(1), RuntimeOptions::default()).await;
    assert_eq!(node.failure_of("one").await.display_message(), "canceled: changed my mind");
    node.runtime.shutdown(None).await;
}

async fn a_queue_message_for_an_unknown_instance_is_dropped(store: TestStore) {
    let node = NodeUnderTest::start(store.provider(), echo(), drain(1), RuntimeOptions::default()).await;
    node.client.enqueue_event("one", "inbox", "lost").await.unwrap();
    // A later instance is served after the orphaned message was examined.
    node.client.start_orchestration("other", "Drain", "").await.unwrap();
    node.client.enqueue_event("other", "inbox", "x").await.unwrap();
    assert_eq!(node.output_of("other").await, "x");
    node.client.start_orchestration("one", "Drain", "").await.unwrap();
    node.client.enqueue_event("one", "inbox", "kept").await.unwrap();
    assert_eq!(node.output_of("one").await, "kept");
    node.runtime.shutdown(None).await;
}

async fn messages_after_the_end_change_nothing(store: TestStore) {
    let node = NodeUnderTest::start(store.provider(), echo(), drain(1), RuntimeOptions::default()).await;
    node.client.start_orchestration("one", "Drain", "").await.unwrap();
    node.client.enqueue_event("one", "inbox", "0").await.unwrap();
    assert_eq!(node.output_of("one").await, "0");
    let before = node.history("one", 1).await;
    node.client.enqueue_event("one", "inbox", "late").await.unwrap();
    node.client.raise_event("one", "late", "").await.unwrap();
    node.client.cancel_instance("one", "late").await.unwrap();
    node.client.start_orchestration("one", "Drain", "again").await.unwrap();
    while node.client.get_queue_depths().await.unwrap().orchestrator_queue > 0 {
        tokio::task::yield_now().await;
    }
    // Queued behind the late messages, so they are processed when this instance ends.
    node.client.start_orchestration("two", "Drain", "").await.unwrap();
    node.client.enqueue_event("two", "inbox", "0").await.unwrap();
    node.end_of("two").await;
    assert_eq!(node.history("one", 1).await, before);
    assert_eq!(node.client.list_executions("one").await.unwrap(), [1]);
    node.runtime.shutdown(None).await;
}

async fn a_thousand_unread_messages_survive_continue_as_new_in_order(store: TestStore) {
    let orchestrations = OrchestrationRegistry::builder()
        .register("Test", |ctx: OrchestrationContext, input: String| async move {
            if input == "first" {
                ctx.set_custom_status("ready");
                ctx.schedule_wait("go").await;
                return ctx.continue_as_new("second").await;
            }
            let mut read = Vec::new();
            for _ in 0..1000 {
                read.push(ctx.dequeue_event("inbox").await);
            }
            Ok(read.join(","))
        })
        .build();
    let node =
        NodeUnderTest::start(store.provider(), echo(), orchestrations, RuntimeOptions::default()).await;
    node.client.start_orchestration("one", "Test", "first").await.unwrap();
    node.until_status("one", "ready").await;
    for number in 0..1000 {
        node.client.enqueue_event("one", "inbox", number.to_string()).await.unwrap();
    }
    node.client.raise_event("one", "go", "").await.unwrap();
    assert_eq!(node.output_of("one").await, numbers(0..1000));
    // All were carried and read in the successor's first turn.
    let history = node.history("one", 2).await;
    let EventKind::OrchestrationStarted { carry_forward_events: Some(carried), .. } = &history[0].kind else {
        panic!("nothing was carried: {:?}", history[0]);
    };
    assert_eq!(carried.len(), 1000);
    node.runtime.shutdown(None).await;
}

async fn messages_sent_during_continue_as_new_are_not_lost(store: TestStore) {
    // Each execution reads one message and continues; the client sends without waiting.
    let orchestrations = OrchestrationRegistry::builder()
        .register("Test", |ctx: OrchestrationContext, input: String| async move {
            let read = ctx.dequeue_event("inbox").await;
            let all = if input.is_empty() { read } else { format!("{input},{read}") };
            if all.split(',').count() == 100 { Ok(all) } else { ctx.continue_as_new(all).await }
        })
        .build();
    let node =
        NodeUnderTest::start(store.provider(), echo(), orchestrations, RuntimeOptions::default()).await;
    node.client.start_orchestration("one", "Test", "").await.unwrap();
    for number in 0..100 {
        node.client.enqueue_event("one", "inbox", number.to_string()).await.unwrap();
    }
    assert_eq!(node.output_of("one").await, numbers(0..100));
    node.runtime.shutdown(None).await;
}

async fn messages_for_instances_that_never_start_do_not_starve_others(store: TestStore) {
    let node = NodeUnderTest::start(store.provider(), echo(), drain(1), RuntimeOptions::default()).await;
    for number in 0..50 {
        node.client.raise_event(format!("never-started-{number}"), "hello", "").await.unwrap();
        node.client.cancel_instance(format!("never-started-{number}"), "").await.unwrap();
    }
    node.client.start_orchestration("one", "Drain", "").await.unwrap();
    node.client.enqueue_event("one", "inbox", "0").await.unwrap();
    let ended = node.client.wait_for_orchestration("one", Duration::from_secs(10)).await;
    assert!(ended.is_ok(), "starved: {ended:?}");
    node.runtime.shutdown(None).await;
}
