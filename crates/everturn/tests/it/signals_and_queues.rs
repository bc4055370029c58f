//! Signals are matched by position, queue messages are read in the order of their arrival.

use everturn::runtime::registry::OrchestrationRegistry;
use everturn::{AppErrorKind, ErrorDetails, EventKind, OrchestrationContext, RuntimeOptions};
use serde::{Deserialize, Serialize};

use crate::node_under_test::{NodeUnderTest, echo, quick};
use crate::stores::{TestStore, on_every_store};

on_every_store!(
    the_nth_wait_gets_the_nth_signal_and_equal_signals_are_not_merged,
    a_signal_without_a_wait_is_recorded_and_not_delivered,
    messages_are_buffered_until_they_are_read,
    a_wait_and_a_queue_of_the_same_name_are_independent,
    typed_messages_arrive_as_they_were_sent,
    a_message_that_does_not_decode_panics,
);

#[derive(Debug, Serialize, Deserialize)]
struct Order {
    item: String,
    pieces: u32,
}

fn orchestrations() -> OrchestrationRegistry {
    OrchestrationRegistry::builder()
        .register("ThreeWaits", |ctx: OrchestrationContext, _: String| async move {
            let waits = (0..3).map(|_| ctx.schedule_wait("s")).collect();
            Ok(ctx.join(waits).await.join(" "))
        })
        .register("Late", |ctx: OrchestrationContext, _: String| async move {
            ctx.schedule_wait("first").await;
            let wait = ctx.schedule_wait("s");
            ctx.set_custom_status("waiting");
            Ok(wait.await)
        })
        .register("LateReader", |ctx: OrchestrationContext, _: String| async move {
            ctx.schedule_wait("first").await;
            let mut read = Vec::new();
            for _ in 0..3 {
                read.push(ctx.dequeue_event("q").await);
            }
            Ok(read.join(" "))
        })
        .register("Both", |ctx: OrchestrationContext, _: String| async move {
            let (signal, message) = ctx.join2(ctx.schedule_wait("x"), ctx.dequeue_event("x")).await;
            Ok(format!("{signal} {message}"))
        })
        .register("Typed", |ctx: OrchestrationContext, _: String| async move {
            let wait = ctx.schedule_wait_typed::<Order>("x");
            let (signal, message) = ctx.join2(wait, ctx.dequeue_event_typed::<Vec<u8>>("x")).await;
            Ok(format!("{} {} {message:?}", signal.item, signal.pieces))
        })
        .build()
}

/// Runs the case twice: with instances kept in memory, and with every turn replayed.
async fn warm_and_cold(store: &TestStore, case: impl AsyncFn(&NodeUnderTest, &str)) {
    for (instance, warm_instances_max) in [("warm", 100), ("cold", 0)] {
        let options = RuntimeOptions { warm_instances_max, ..quick() };
        let node = NodeUnderTest::start(store.provider(), echo(), orchestrations(), options).await;
        case(&node, instance).await;
        node.runtime.shutdown(None).await;
    }
}

async fn begin(node: &NodeUnderTest, instance: &str, orchestration: &str) {
    node.client.start_orchestration(instance, orchestration, "").await.unwrap();
    node.committed(instance).await;
}

async fn the_nth_wait_gets_the_nth_signal_and_equal_signals_are_not_merged(store: TestStore) {
    warm_and_cold(&store, async |node, instance| {
        begin(node, instance, "ThreeWaits").await;
        for data in ["same", "same", "other"] {
            node.client.raise_event(instance, "s", data).await.unwrap();
        }
        assert_eq!(node.output_of(instance).await, "same same other");
    })
    .await;
}

async fn a_signal_without_a_wait_is_recorded_and_not_delivered(store: TestStore) {
    warm_and_cold(&store, async |node, instance| {
        begin(node, instance, "Late").await;
        node.client.raise_event(instance, "s", "early").await.unwrap();
        node.client.raise_event(instance, "first", "").await.unwrap();
        node.until_status(instance, "waiting").await;
        node.client.raise_event(instance, "s", "in time").await.unwrap();
        assert_eq!(node.output_of(instance).await, "in time");
        let history = node.history(instance, 1).await;
        let signals = history.iter().filter(|event| matches!(event.kind, EventKind::ExternalEvent { .. }));
        assert_eq!(signals.count(), 3);
    })
    .await;
}

async fn messages_are_buffered_until_they_are_read(store: TestStore) {
    warm_and_cold(&store, async |node, instance| {
        begin(node, instance, "LateReader").await;
        for data in ["1", "1", "2"] {
            node.client.enqueue_event(instance, "q", data).await.unwrap();
        }
        node.client.raise_event(instance, "first", "").await.unwrap();
        assert_eq!(node.output_of(instance).await, "1 1 2");
    })
    .await;
}

async fn a_wait_and_a_queue_of_the_same_name_are_independent(store: TestStore) {
    warm_and_cold(&store, async |node, instance| {
        begin(node, instance, "Both").await;
        node.client.enqueue_event(instance, "x", "message").await.unwrap();
        node.client.raise_event(instance, "x", "signal").await.unwrap();
        assert_eq!(node.output_of(instance).await, "signal message");
    })
    .await;
}

async fn typed_messages_arrive_as_they_were_sent(store: TestStore) {
    warm_and_cold(&store, async |node, instance| {
        begin(node, instance, "Typed").await;
        let order = Order { item: "cup".to_owned(), pieces: 3 };
        node.client.raise_event_typed(instance, "x", &order).await.unwrap();
        node.client.enqueue_event_typed(instance, "x", &[1_u8, 2]).await.unwrap();
        assert_eq!(node.output_of(instance).await, "cup 3 [1, 2]");
    })
    .await;
}

async fn a_message_that_does_not_decode_panics(store: TestStore) {
    warm_and_cold(&store, async |node, instance| {
        for (suffix, queue) in [("signal", false), ("message", true)] {
            let instance = format!("{instance} {suffix}");
            begin(node, &instance, "Typed").await;
            if queue {
                node.client.enqueue_event(&instance, "x", "nonsense").await.unwrap();
            } else {
                node.client.raise_event(&instance, "x", "nonsense").await.unwrap();
            }
            let details = node.failure_of(&instance).await;
            assert!(
                matches!(details, ErrorDetails::Application { kind: AppErrorKind::Panicked, .. }),
                "{details:?}"
            );
        }
    })
    .await;
}
