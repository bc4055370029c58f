//! Timers.

use std::time::Duration;

use everturn::runtime::registry::OrchestrationRegistry;
use everturn::{Either2, EventKind, OrchestrationContext};

use crate::node_under_test::{NodeUnderTest, echo, quick};
use crate::stores::{TestStore, on_every_store};

on_every_store!(
    a_timer_survives_a_restart,
    a_timer_never_fires_before_its_time_by_the_providers_clock,
    a_zero_timer_takes_a_round_trip,
    the_fire_time_is_the_providers_time_plus_the_delay_in_whole_milliseconds,
    timers_fire_in_the_order_of_their_times,
    timers_due_during_an_outage_fire_in_the_order_of_their_times,
    an_answer_in_time_beats_its_deadline_after_an_outage,
    a_timer_of_the_longest_delay_does_not_affect_other_instances,
);

const HOUR: Duration = Duration::from_secs(3_600);
const MILLISECOND: Duration = Duration::from_millis(1);

fn orchestrations() -> OrchestrationRegistry {
    OrchestrationRegistry::builder()
        .register("Sleep", |ctx: OrchestrationContext, micros: String| async move {
            let delay = micros.parse().map_or(Duration::MAX, Duration::from_micros);
            ctx.schedule_timer(delay).await;
            Ok("awake".to_owned())
        })
        .register("Echo", |ctx: OrchestrationContext, input: String| async move {
            ctx.schedule_activity("Echo", input).await
        })
        .register("TwoTimers", |ctx: OrchestrationContext, _: String| async move {
            let (late, early) = (ctx.schedule_timer(2 * HOUR), ctx.schedule_timer(HOUR));
            Ok(match ctx.select2(late, early).await {
                Either2::First(()) => "late",
                Either2::Second(()) => "early",
            }
            .to_owned())
        })
        .register("Deadline", |ctx: OrchestrationContext, _: String| async move {
            let (deadline, answer) = (ctx.schedule_timer(HOUR), ctx.schedule_wait("answer"));
            Ok(match ctx.select2(deadline, answer).await {
                Either2::First(()) => "too late".to_owned(),
                Either2::Second(answer) => answer,
            })
        })
        .build()
}

/// Runs the first turn of an instance; then there is an outage until the node is started again.
async fn before_the_outage(store: &TestStore, orchestration: &str) {
    let node = node_on(store).await;
    node.client.start_orchestration("i", orchestration, "").await.unwrap();
    node.committed("i").await;
    node.runtime.shutdown(None).await;
}

async fn node_on(store: &TestStore) -> NodeUnderTest {
    NodeUnderTest::start(store.provider(), echo(), orchestrations(), quick()).await
}

async fn a_timer_survives_a_restart(store: TestStore) {
    let (store, clock) = store.with_manual_clock().await;
    let node = node_on(&store).await;
    node.client.start_orchestration("i", "Sleep", HOUR.as_micros().to_string()).await.unwrap();
    node.committed("i").await;
    node.runtime.shutdown(None).await;
    drop(node.client);

    let store = store.reopened().await;
    clock.advance(HOUR);
    let node = node_on(&store).await;
    assert_eq!(node.output_of("i").await, "awake");
    node.runtime.shutdown(None).await;
}

async fn a_timer_never_fires_before_its_time_by_the_providers_clock(store: TestStore) {
    let (store, clock) = store.with_manual_clock().await;
    let node = node_on(&store).await;
    node.client.start_orchestration("i", "Sleep", HOUR.as_micros().to_string()).await.unwrap();
    node.committed("i").await;
    clock.advance(HOUR.checked_sub(MILLISECOND).unwrap());
    // A later start is served, so the timer was skipped.
    node.client.start_orchestration("other", "Echo", "x").await.unwrap();
    assert_eq!(node.output_of("other").await, "x");
    assert_eq!(node.history("i", 1).await.len(), 2);
    clock.advance(MILLISECOND);
    assert_eq!(node.output_of("i").await, "awake");
    node.runtime.shutdown(None).await;
}

async fn a_zero_timer_takes_a_round_trip(store: TestStore) {
    let (store, _clock) = store.with_manual_clock().await;
    let node = node_on(&store).await;
    node.client.start_orchestration("i", "Sleep", "0").await.unwrap();
    assert_eq!(node.output_of("i").await, "awake");
    let history = node.history("i", 1).await;
    assert!(matches!(history[1].kind, EventKind::TimerCreated { fire_at_ms: 1_000_000 }));
    assert!(matches!(history[2].kind, EventKind::TimerFired { fire_at_ms: 1_000_000 }));
    assert_eq!(history[2].source_event_id, Some(2));
    node.runtime.shutdown(None).await;
}

async fn the_fire_time_is_the_providers_time_plus_the_delay_in_whole_milliseconds(store: TestStore) {
    let (store, _clock) = store.with_manual_clock().await;
    let node = node_on(&store).await;
    for (instance, micros, fire_at) in
        [("a", "1000", 1_000_001), ("b", "1001", 1_000_002), ("c", "1", 1_000_001)]
    {
        node.client.start_orchestration(instance, "Sleep", micros).await.unwrap();
        node.committed(instance).await;
        let history = node.history(instance, 1).await;
        let EventKind::TimerCreated { fire_at_ms } = history[1].kind else { panic!("{history:?}") };
        assert_eq!(fire_at_ms, fire_at, "a delay of {micros} µs");
    }
    node.runtime.shutdown(None).await;
}

async fn timers_fire_in_the_order_of_their_times(store: TestStore) {
    let (store, clock) = store.with_manual_clock().await;
    let node = node_on(&store).await;
    node.client.start_orchestration("i", "TwoTimers", "").await.unwrap();
    node.committed("i").await;
    clock.advance(HOUR);
    assert_eq!(node.output_of("i").await, "early");
    node.runtime.shutdown(None).await;
}

async fn timers_due_during_an_outage_fire_in_the_order_of_their_times(store: TestStore) {
    let (store, clock) = store.with_manual_clock().await;
    before_the_outage(&store, "TwoTimers").await;
    clock.advance(3 * HOUR);
    let store = store.reopened().await;
    let node = node_on(&store).await;
    assert_eq!(node.output_of("i").await, "early");
    node.runtime.shutdown(None).await;
}

async fn an_answer_in_time_beats_its_deadline_after_an_outage(store: TestStore) {
    let (store, clock) = store.with_manual_clock().await;
    before_the_outage(&store, "Deadline").await;
    let client = everturn::Client::new(store.provider());
    client.raise_event("i", "answer", "in time").await.unwrap();
    drop(client);
    clock.advance(2 * HOUR);
    let store = store.reopened().await;
    let node = node_on(&store).await;
    assert_eq!(node.output_of("i").await, "in time");
    node.runtime.shutdown(None).await;
}

async fn a_timer_of_the_longest_delay_does_not_affect_other_instances(store: TestStore) {
    let node = node_on(&store).await;
    node.client.start_orchestration("i", "Sleep", "longest").await.unwrap();
    node.committed("i").await;
    let history = node.history("i", 1).await;
    assert!(matches!(history[1].kind, EventKind::TimerCreated { fire_at_ms: u64::MAX }), "{history:?}");
    node.client.start_orchestration("other", "Echo", "x").await.unwrap();
    assert_eq!(node.output_of("other").await, "x");
    node.client.cancel_instance("i", "enough").await.unwrap();
    assert_eq!(node.failure_of("i").await.display_message(), "canceled: enough");
    node.runtime.shutdown(None).await;
}
