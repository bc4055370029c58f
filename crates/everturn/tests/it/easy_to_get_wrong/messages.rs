//! Messages that come early, late, or in between.

use std::time::Duration;

use everturn::runtime::registry::OrchestrationRegistry;
use everturn::{EventKind, OrchestrationContext, RuntimeOptions};

use crate::node_under_test::{NodeUnderTest, echo};
use crate::stores::{Store, on_every_store};

on_every_store!(
    a_message_that_arrives_while_its_instance_is_locked_waits_for_the_next_turn,
    a_queue_message_right_behind_the_start_is_kept,
    a_cancel_sent_before_the_start_cancels_the_instance,
    a_queue_message_for_an_unknown_instance_is_dropped,
    messages_after_the_end_change_nothing,
    a_thousand_unread_messages_survive_continue_as_new_in_order,
    messages_sent_during_continue_as_new_are_not_lost,
    a_message_for_an_instance_that_was_never_started_starves_nobody,
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

async fn a_message_that_arrives_while_its_instance_is_locked_waits_for_the_next_turn(store: Store) {
    let node = NodeUnderTest::start(store.provider(), echo(), drain(200), RuntimeOptions::default()).await;
    node.client.start_orchestration("one", "Drain", "").await.unwrap();
    // Sent one by one while turns are under way: some find the instance locked.
    for number in 0..200 {
        node.client.enqueue_event("one", "inbox", number.to_string()).await.unwrap();
    }
    assert_eq!(node.output_of("one").await, numbers(0..200));
    node.runtime.shutdown(None).await;
}

async fn a_queue_message_right_behind_the_start_is_kept(store: Store) {
    let engine_less = everturn::Client::new(store.provider());
    engine_less.start_orchestration("one", "Drain", "").await.unwrap();
    engine_less.enqueue_event("one", "inbox", "0").await.unwrap();
    let node = NodeUnderTest::start(store.provider(), echo(), drain(1), RuntimeOptions::default()).await;
    assert_eq!(node.output_of("one").await, "0");
    node.runtime.shutdown(None).await;
}

async fn a_cancel_sent_before_the_start_cancels_the_instance(store: Store) {
    let client = everturn::Client::new(store.provider());
    client.cancel_instance("one", "too early").await.unwrap();
    client.start_orchestration("one", "Drain", "").await.unwrap();
    let node = NodeUnderTest::start(store.provider(), echo(), drain(1), RuntimeOptions::default()).await;
    assert_eq!(node.failure_of("one").await.display_message(), "canceled: too early");
    node.runtime.shutdown(None).await;
}

async fn a_queue_message_for_an_unknown_instance_is_dropped(store: Store) {
    let node = NodeUnderTest::start(store.provider(), echo(), drain(1), RuntimeOptions::default()).await;
    node.client.enqueue_event("one", "inbox", "lost").await.unwrap();
    // A later instance is served after the orphan was looked at.
    node.client.start_orchestration("other", "Drain", "").await.unwrap();
    node.client.enqueue_event("other", "inbox", "x").await.unwrap();
    assert_eq!(node.output_of("other").await, "x");
    node.client.start_orchestration("one", "Drain", "").await.unwrap();
    node.client.enqueue_event("one", "inbox", "kept").await.unwrap();
    assert_eq!(node.output_of("one").await, "kept");
    node.runtime.shutdown(None).await;
}

async fn messages_after_the_end_change_nothing(store: Store) {
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
    // Behind the late messages in the queue, so they were handled when this one ended.
    node.client.start_orchestration("two", "Drain", "").await.unwrap();
    node.client.enqueue_event("two", "inbox", "0").await.unwrap();
    node.end_of("two").await;
    assert_eq!(node.history("one", 1).await, before);
    assert_eq!(node.client.list_executions("one").await.unwrap(), [1]);
    node.runtime.shutdown(None).await;
}

async fn a_thousand_unread_messages_survive_continue_as_new_in_order(store: Store) {
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
    node.says("one", "ready").await;
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

async fn messages_sent_during_continue_as_new_are_not_lost(store: Store) {
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

async fn a_message_for_an_instance_that_was_never_started_starves_nobody(store: Store) {
    let node = NodeUnderTest::start(store.provider(), echo(), drain(1), RuntimeOptions::default()).await;
    for number in 0..50 {
        node.client.raise_event(format!("ghost-{number}"), "hello", "").await.unwrap();
        node.client.cancel_instance(format!("ghost-{number}"), "").await.unwrap();
    }
    node.client.start_orchestration("one", "Drain", "").await.unwrap();
    node.client.enqueue_event("one", "inbox", "0").await.unwrap();
    let ended = node.client.wait_for_orchestration("one", Duration::from_secs(10)).await;
    assert!(ended.is_ok(), "starved: {ended:?}");
    node.runtime.shutdown(None).await;
}
