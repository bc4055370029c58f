//! 03 §7, 01 §5: races and dropped futures, in one process and across a restart.

use everturn::runtime::registry::OrchestrationRegistry;
use everturn::{Either2, EventKind, OrchestrationContext, RuntimeOptions};

use crate::node_under_test::{NodeUnderTest, echo, quick};
use crate::stores::{Store, on_every_store};

on_every_store!(
    a_dropped_read_gives_up_its_place_in_the_queue,
    a_dropped_unbound_read_gives_up_its_place_when_it_is_bound,
    a_dropped_wait_gives_up_its_place,
    a_value_of_a_dropped_wait_is_discarded,
    a_dropped_unbound_wait_keeps_its_place_until_its_event,
    the_first_completion_in_history_wins_whatever_the_argument_order,
    of_two_that_are_ready_at_the_same_poll_the_first_argument_wins,
    a_winner_is_never_cancelled_by_a_later_drop,
    a_forgotten_future_is_not_cancelled,
    unread_arrivals_are_carried_whatever_was_dropped,
);

fn orchestrations() -> OrchestrationRegistry {
    OrchestrationRegistry::builder()
        .register("DropsARead", |ctx: OrchestrationContext, _: String| async move {
            let first = ctx.dequeue_event("q");
            let second = ctx.dequeue_event("q");
            ctx.schedule_wait("drop").await;
            drop(first);
            ctx.set_custom_status("dropped");
            Ok(second.await)
        })
        .register("DropsAnUnboundRead", |ctx: OrchestrationContext, _: String| async move {
            drop(ctx.dequeue_event("q"));
            Ok(ctx.dequeue_event("q").await)
        })
        .register("DropsAWait", |ctx: OrchestrationContext, _: String| async move {
            let first = ctx.schedule_wait("s");
            let second = ctx.schedule_wait("s");
            ctx.schedule_wait("drop").await;
            drop(first);
            ctx.set_custom_status("dropped");
            Ok(second.await)
        })
        .register("DropsAnUnboundWait", |ctx: OrchestrationContext, _: String| async move {
            drop(ctx.schedule_wait("s"));
            let second = ctx.schedule_wait("s");
            ctx.set_custom_status("dropped");
            Ok(second.await)
        })
        .register("SelectWaits", |ctx: OrchestrationContext, _: String| async move {
            let (a, b) = (ctx.schedule_wait("a"), ctx.schedule_wait("b"));
            ctx.set_custom_status("waiting");
            Ok(format!("{:?}", ctx.select2(a, b).await))
        })
        .register("SelectReady", |ctx: OrchestrationContext, _: String| async move {
            let (a, b) = (ctx.schedule_wait("a"), ctx.schedule_wait("b"));
            ctx.schedule_wait("go").await;
            Ok(format!("{:?}", ctx.select2(b, a).await))
        })
        .register("DropsTheWinner", |ctx: OrchestrationContext, _: String| async move {
            let mut won = ctx.schedule_activity("Echo", "won");
            let never = ctx.schedule_wait("never");
            let first = matches!(ctx.select2(&mut won, never).await, Either2::First(_));
            drop(won);
            Ok(format!("{first} {}", ctx.schedule_activity("Echo", "after").await?))
        })
        .register("Forgets", |ctx: OrchestrationContext, _: String| async move {
            std::mem::forget(ctx.schedule_wait("never"));
            std::mem::forget(ctx.dequeue_event("never"));
            ctx.schedule_activity("Echo", "x").await
        })
        .register("CarriesOn", |ctx: OrchestrationContext, execution: String| async move {
            if execution == "second" {
                let (a, b) = (ctx.dequeue_event("a").await, ctx.dequeue_event("b").await);
                return Ok(format!("{a} {b}"));
            }
            let unread = ctx.dequeue_event("a");
            ctx.schedule_wait("go").await;
            drop(unread);
            ctx.continue_as_new("second").await
        })
        .build()
}

/// Runs the case twice, with instances kept in memory and with everything replayed.
async fn warm_and_cold(store: &Store, case: impl AsyncFn(&NodeUnderTest, &str)) {
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

async fn a_dropped_read_gives_up_its_place_in_the_queue(store: Store) {
    warm_and_cold(&store, async |node, instance| {
        begin(node, instance, "DropsARead").await;
        node.client.raise_event(instance, "drop", "").await.unwrap();
        node.says(instance, "dropped").await;
        node.client.enqueue_event(instance, "q", "first").await.unwrap();
        assert_eq!(node.output_of(instance).await, "first");
    })
    .await;
}

async fn a_dropped_unbound_read_gives_up_its_place_when_it_is_bound(store: Store) {
    warm_and_cold(&store, async |node, instance| {
        begin(node, instance, "DropsAnUnboundRead").await;
        node.client.enqueue_event(instance, "q", "first").await.unwrap();
        assert_eq!(node.output_of(instance).await, "first");
    })
    .await;
}

async fn a_dropped_wait_gives_up_its_place(store: Store) {
    warm_and_cold(&store, async |node, instance| {
        begin(node, instance, "DropsAWait").await;
        node.client.raise_event(instance, "drop", "").await.unwrap();
        node.says(instance, "dropped").await;
        node.client.raise_event(instance, "s", "one").await.unwrap();
        assert_eq!(node.output_of(instance).await, "one");
    })
    .await;
}

async fn a_value_of_a_dropped_wait_is_discarded(store: Store) {
    warm_and_cold(&store, async |node, instance| {
        begin(node, instance, "DropsAWait").await;
        node.client.raise_event(instance, "s", "for the first").await.unwrap();
        node.client.raise_event(instance, "drop", "").await.unwrap();
        node.says(instance, "dropped").await;
        node.client.raise_event(instance, "s", "for the second").await.unwrap();
        assert_eq!(node.output_of(instance).await, "for the second");
    })
    .await;
}

/// Within its own turn the dropped wait is recorded as cancelled, so nothing sent later can be meant for it.
async fn a_dropped_unbound_wait_keeps_its_place_until_its_event(store: Store) {
    warm_and_cold(&store, async |node, instance| {
        begin(node, instance, "DropsAnUnboundWait").await;
        node.client.raise_event(instance, "s", "one").await.unwrap();
        assert_eq!(node.output_of(instance).await, "one");
        let history = node.history(instance, 1).await;
        let cancelled = history.iter().find(|event| {
            matches!(&event.kind, EventKind::ExternalSubscribedCancelled { reason } if reason == "dropped_future")
        });
        assert_eq!(cancelled.and_then(|event| event.source_event_id), Some(2));
    })
    .await;
}

async fn the_first_completion_in_history_wins_whatever_the_argument_order(store: Store) {
    // Both signals wait before any runtime looks, so they come in one batch.
    for (instance, first, second, output) in
        [("ab", "a", "b", "First(\"x\")"), ("ba", "b", "a", "Second(\"x\")")]
    {
        let node = NodeUnderTest::start(store.provider(), echo(), orchestrations(), quick()).await;
        node.client.start_orchestration(instance, "SelectWaits", "").await.unwrap();
        node.says(instance, "waiting").await;
        node.runtime.shutdown(None).await;
        node.client.raise_event(instance, first, "x").await.unwrap();
        node.client.raise_event(instance, second, "y").await.unwrap();
        let node = NodeUnderTest::start(store.provider(), echo(), orchestrations(), quick()).await;
        assert_eq!(node.output_of(instance).await, output);
        node.runtime.shutdown(None).await;
    }
}

async fn of_two_that_are_ready_at_the_same_poll_the_first_argument_wins(store: Store) {
    warm_and_cold(&store, async |node, instance| {
        begin(node, instance, "SelectReady").await;
        for signal in ["a", "b", "go"] {
            node.client.raise_event(instance, signal, signal).await.unwrap();
        }
        assert_eq!(node.output_of(instance).await, "First(\"b\")");
    })
    .await;
}

async fn a_winner_is_never_cancelled_by_a_later_drop(store: Store) {
    warm_and_cold(&store, async |node, instance| {
        begin(node, instance, "DropsTheWinner").await;
        assert_eq!(node.output_of(instance).await, "true after");
        let history = node.history(instance, 1).await;
        assert!(
            !history.iter().any(|event| matches!(event.kind, EventKind::ActivityCancelRequested { .. })),
            "{history:?}"
        );
    })
    .await;
}

async fn a_forgotten_future_is_not_cancelled(store: Store) {
    warm_and_cold(&store, async |node, instance| {
        begin(node, instance, "Forgets").await;
        assert_eq!(node.output_of(instance).await, "x");
        let history = node.history(instance, 1).await;
        let reasons: Vec<&str> = history
            .iter()
            .filter_map(|event| match &event.kind {
                EventKind::ExternalSubscribedCancelled { reason }
                | EventKind::QueueSubscriptionCancelled { reason } => Some(reason.as_str()),
                _ => None,
            })
            .collect();
        assert_eq!(reasons, ["orchestration_terminal", "orchestration_terminal"]);
    })
    .await;
}

async fn unread_arrivals_are_carried_whatever_was_dropped(store: Store) {
    warm_and_cold(&store, async |node, instance| {
        begin(node, instance, "CarriesOn").await;
        node.client.enqueue_event(instance, "b", "1").await.unwrap();
        node.client.enqueue_event(instance, "a", "2").await.unwrap();
        node.client.raise_event(instance, "go", "").await.unwrap();
        assert_eq!(node.output_of(instance).await, "2 1");
        let start = node.history(instance, 2).await.remove(0);
        let EventKind::OrchestrationStarted { carry_forward_events: Some(carried), .. } = start.kind else {
            panic!("{start:?}")
        };
        let expected = [("b".to_owned(), "1".to_owned()), ("a".to_owned(), "2".to_owned())];
        assert_eq!(carried, expected, "in order of arrival across queues");
    })
    .await;
}
