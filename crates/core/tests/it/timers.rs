//! Durable timers.

use std::time::Duration;

use everturn_core::WorkItem;
use everturn_core::turn::TurnOutcome;

use crate::harness::{Harness, sent, summarize, timer_fired};

fn sleeping(delay: Duration) -> Harness {
    Harness::new(move |ctx, _| async move {
        ctx.schedule_timer(delay).await;
        Ok("awake".to_owned())
    })
}

#[test]
fn timer_is_due_at_the_stores_time_of_the_poll_plus_its_delay() {
    let turn = sleeping(Duration::from_secs(3)).turn([]);
    assert_eq!(summarize(&turn.history_delta)[1], "2 timer 1003000");
    assert_eq!(
        turn.orchestrator_items,
        [WorkItem::TimerFired { instance: "order".into(), execution_id: 1, id: 2, fire_at_ms: 1_003_000 }]
    );
}

#[test]
fn delay_is_rounded_up_to_whole_milliseconds() {
    assert_eq!(sent(&sleeping(Duration::from_micros(1)).turn([])), ["fire 2 1000001"]);
    assert_eq!(sent(&sleeping(Duration::from_nanos(1_000_001)).turn([])), ["fire 2 1000002"]);
}

#[test]
fn endless_delay_saturates() {
    assert_eq!(sent(&sleeping(Duration::MAX).turn([])), [format!("fire 2 {}", u64::MAX)]);
}

#[test]
fn zero_delay_still_takes_a_round_trip() {
    let mut harness = sleeping(Duration::ZERO);
    assert_eq!(harness.turn([]).outcome, TurnOutcome::Continue);
    assert_eq!(harness.turn([timer_fired(2)]).outcome, TurnOutcome::Completed { output: "awake".into() });
}

#[test]
fn later_poll_reads_a_later_time() {
    let mut harness = Harness::new(|ctx, _| async move {
        ctx.schedule_timer(Duration::ZERO).await;
        ctx.schedule_timer(Duration::from_millis(1)).await;
        Ok(String::new())
    });
    harness.turn([]);
    assert_eq!(summarize(&harness.turn([timer_fired(2)]).history_delta), ["3<2 fired", "4 timer 2000001"]);
}

#[test]
fn changed_delay_is_not_noticed_on_replay() {
    let mut harness = sleeping(Duration::from_secs(1));
    harness.turn([]);
    harness.deploy(|ctx, _| async move {
        ctx.schedule_timer(Duration::from_secs(999)).await;
        Ok("later".to_owned())
    });
    assert_eq!(harness.turn([timer_fired(2)]).outcome, TurnOutcome::Completed { output: "later".into() });
}
