//! Races and dropped futures, with instances kept in memory and with every turn replayed.

use std::time::Duration;

use everturn::runtime::registry::OrchestrationRegistry;
use everturn::{Either2, EventKind, OrchestrationContext, OrchestrationStatus, RuntimeOptions};

use crate::node_under_test::{NodeUnderTest, PATIENCE, echo, quick, until};
use crate::stores::{TestStore, on_every_store};

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
    queue_order_is_kept_when_reads_lose_races,
    unread_messages_are_carried_exactly_with_held_and_non_prefix_reads,
    positional_round_trips_with_a_losing_timer_replay_identically,
);

const NEVER: Duration = Duration::from_secs(600);

/// Every turn replays the whole history.
fn cold() -> RuntimeOptions {
    RuntimeOptions { warm_instances_max: 0, ..quick() }
}

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

async fn a_dropped_read_gives_up_its_place_in_the_queue(store: TestStore) {
    warm_and_cold(&store, async |node, instance| {
        begin(node, instance, "DropsARead").await;
        node.client.raise_event(instance, "drop", "").await.unwrap();
        node.until_status(instance, "dropped").await;
        node.client.enqueue_event(instance, "q", "first").await.unwrap();
        assert_eq!(node.output_of(instance).await, "first");
    })
    .await;
}

async fn a_dropped_unbound_read_gives_up_its_place_when_it_is_bound(store: TestStore) {
    warm_and_cold(&store, async |node, instance| {
        begin(node, instance, "DropsAnUnboundRead").await;
        node.client.enqueue_event(instance, "q", "first").await.unwrap();
        assert_eq!(node.output_of(instance).await, "first");
    })
    .await;
}

async fn a_dropped_wait_gives_up_its_place(store: TestStore) {
    warm_and_cold(&store, async |node, instance| {
        begin(node, instance, "DropsAWait").await;
        node.client.raise_event(instance, "drop", "").await.unwrap();
        node.until_status(instance, "dropped").await;
        node.client.raise_event(instance, "s", "one").await.unwrap();
        assert_eq!(node.output_of(instance).await, "one");
    })
    .await;
}

async fn a_value_of_a_dropped_wait_is_discarded(store: TestStore) {
    warm_and_cold(&store, async |node, instance| {
        begin(node, instance, "DropsAWait").await;
        node.client.raise_event(instance, "s", "for the first").await.unwrap();
        node.client.raise_event(instance, "drop", "").await.unwrap();
        node.until_status(instance, "dropped").await;
        node.client.raise_event(instance, "s", "for the second").await.unwrap();
        assert_eq!(node.output_of(instance).await, "for the second");
    })
    .await;
}

/// The dropped wait is recorded as cancelled in the same turn, so it receives no later signal.
async fn a_dropped_unbound_wait_keeps_its_place_until_its_event(store: TestStore) {
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

async fn the_first_completion_in_history_wins_whatever_the_argument_order(store: TestStore) {
    // Both signals are queued before the runtime starts, so it fetches them in one batch.
    for (instance, first, second, output) in
        [("ab", "a", "b", "First(\"x\")"), ("ba", "b", "a", "Second(\"x\")")]
    {
        let node = NodeUnderTest::start(store.provider(), echo(), orchestrations(), quick()).await;
        node.client.start_orchestration(instance, "SelectWaits", "").await.unwrap();
        node.until_status(instance, "waiting").await;
        node.runtime.shutdown(None).await;
        node.client.raise_event(instance, first, "x").await.unwrap();
        node.client.raise_event(instance, second, "y").await.unwrap();
        let node = NodeUnderTest::start(store.provider(), echo(), orchestrations(), quick()).await;
        assert_eq!(node.output_of(instance).await, output);
        node.runtime.shutdown(None).await;
    }
}

async fn of_two_that_are_ready_at_the_same_poll_the_first_argument_wins(store: TestStore) {
    warm_and_cold(&store, async |node, instance| {
        begin(node, instance, "SelectReady").await;
        for signal in ["a", "b", "go"] {
            node.client.raise_event(instance, signal, signal).await.unwrap();
        }
        assert_eq!(node.output_of(instance).await, "First(\"b\")");
    })
    .await;
}

async fn a_winner_is_never_cancelled_by_a_later_drop(store: TestStore) {
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

async fn a_forgotten_future_is_not_cancelled(store: TestStore) {
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

async fn unread_arrivals_are_carried_whatever_was_dropped(store: TestStore) {
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

/// A read that loses against its deadline must not consume a message.
async fn queue_order_is_kept_when_reads_lose_races(store: TestStore) {
    let races = OrchestrationRegistry::builder()
        .register("Races", |ctx: OrchestrationContext, _: String| async move {
            let (mut read, mut lost) = (Vec::new(), 0);
            while read.len() < 20 {
                let deadline = ctx.schedule_timer(Duration::from_millis(1));
                match ctx.select2(ctx.dequeue_event("q"), deadline).await {
                    Either2::First(message) => read.push(message),
                    Either2::Second(()) => {
                        lost += 1;
                        // The next message may arrive now.
                        ctx.schedule_wait("more").await;
                    }
                }
                ctx.set_custom_status(format!("{} {lost}", read.len()));
            }
            Ok(read.join(" "))
        })
        .build();
    let expected = (0..20).map(|number| number.to_string()).collect::<Vec<_>>().join(" ");
    for (instance, options) in [("warm", quick()), ("cold", cold())] {
        let node = NodeUnderTest::start(store.provider(), echo(), races.clone(), options).await;
        node.client.start_orchestration(instance, "Races", "").await.unwrap();
        let client = node.client.clone();
        let sending = tokio::spawn(async move {
            for number in 0..20 {
                client.enqueue_event(instance, "q", number.to_string()).await.unwrap();
                client.raise_event(instance, "more", "").await.unwrap();
            }
        });
        sending.await.unwrap();
        // A signal that arrives before its wait is not delivered, so it is sent until the instance ends.
        until("all are read", async || {
            node.client.raise_event(instance, "more", "").await.unwrap();
            let status = node.client.get_orchestration_status(instance).await.unwrap();
            !matches!(status, OrchestrationStatus::Running { .. } | OrchestrationStatus::NotFound)
        })
        .await;
        assert_eq!(node.output_of(instance).await, expected);
        node.runtime.shutdown(None).await;
    }
}

async fn unread_messages_are_carried_exactly_with_held_and_non_prefix_reads(store: TestStore) {
    let holds = OrchestrationRegistry::builder()
        .register("Holds", |ctx: OrchestrationContext, execution: String| async move {
            if execution == "second" {
                let mut read = Vec::new();
                for _ in 0..3 {
                    read.push(ctx.dequeue_event("q").await);
                }
                return Ok(read.join(" "));
            }
            // The first two places are held and never read; the third is read.
            let held = (ctx.dequeue_event("q"), ctx.dequeue_event("q"));
            let third = ctx.dequeue_event("q").await;
            ctx.set_custom_status(third);
            ctx.schedule_wait("go").await;
            drop(held);
            ctx.continue_as_new("second").await
        })
        .build();
    for (instance, options) in [("warm", quick()), ("cold", cold())] {
        let node = NodeUnderTest::start(store.provider(), echo(), holds.clone(), options).await;
        node.client.start_orchestration(instance, "Holds", "").await.unwrap();
        node.committed(instance).await;
        for message in ["1", "2", "3", "4"] {
            node.client.enqueue_event(instance, "q", message).await.unwrap();
        }
        node.until_status(instance, "3").await;
        node.client.raise_event(instance, "go", "").await.unwrap();
        assert_eq!(node.output_of(instance).await, "1 2 4");
        node.runtime.shutdown(None).await;
    }
}

async fn positional_round_trips_with_a_losing_timer_replay_identically(store: TestStore) {
    let round_trips = OrchestrationRegistry::builder()
        .register("RoundTrips", |ctx: OrchestrationContext, _: String| async move {
            let mut received = Vec::new();
            for round in 0..6 {
                let wait = ctx.schedule_wait("s");
                ctx.set_custom_status(format!("round {round}"));
                match ctx.select2(wait, ctx.schedule_timer(NEVER)).await {
                    Either2::First(signal) => received.push(ctx.schedule_activity("Echo", signal).await?),
                    Either2::Second(()) => return Err("too late".to_owned()),
                }
            }
            Ok(received.join(" "))
        })
        .build();
    let mut histories = Vec::new();
    for (instance, options) in [("warm", quick()), ("cold", cold())] {
        let mut node =
            NodeUnderTest::start(store.provider(), echo(), round_trips.clone(), options.clone()).await;
        node.client.start_orchestration(instance, "RoundTrips", "").await.unwrap();
        for round in 0..6 {
            node.until_status(instance, &format!("round {round}")).await;
            if round == 3 {
                // Another runtime takes over in the middle.
                node.runtime.shutdown(None).await;
                node = NodeUnderTest::start(store.provider(), echo(), round_trips.clone(), options.clone())
                    .await;
            }
            node.client.raise_event(instance, "s", format!("signal {round}")).await.unwrap();
        }
        let output = node.client.wait_for_orchestration_typed::<String>(instance, PATIENCE).await.unwrap();
        assert_eq!(output, Ok("signal 0 signal 1 signal 2 signal 3 signal 4 signal 5".to_owned()));
        let kinds: Vec<EventKind> = node
            .history(instance, 1)
            .await
            .into_iter()
            .map(|event| event.kind)
            .filter(|kind| !matches!(kind, EventKind::TimerCreated { .. }))
            .collect();
        histories.push(kinds);
        node.runtime.shutdown(None).await;
    }
    assert_eq!(histories[0], histories[1]);
}
