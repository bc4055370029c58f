//! Races and dropped futures.

use std::time::Duration;

use everturn_core::WorkItem;
use everturn_core::turn::TurnOutcome;

use crate::harness::{Harness, activity_completed, queue_message, signal, summarize, timer_fired};

fn completed(output: &str) -> TurnOutcome {
    TurnOutcome::Completed { output: output.to_owned() }
}

#[test]
fn bound_read_stops_reserving_when_it_is_dropped() {
    let mut harness = Harness::new(|ctx, _| async move {
        let given_up = ctx.dequeue_event("q");
        let mut kept = ctx.dequeue_event("q");
        ctx.select2(ctx.schedule_activity("A", ""), &mut kept).await;
        drop(given_up);
        Ok(kept.await)
    });
    harness.turn([]);
    assert_eq!(
        harness.turn([activity_completed(4, ""), queue_message("q", "mine")]).outcome,
        completed("mine")
    );
}

#[test]
fn unbound_read_stops_reserving_when_it_is_bound() {
    let mut harness = Harness::new(|ctx, _| async move {
        drop(ctx.dequeue_event("q"));
        Ok(ctx.dequeue_event("q").await)
    });
    let turn = harness.turn([queue_message("q", "mine")]);
    assert_eq!(turn.outcome, completed("mine"));
    assert_eq!(
        summarize(&turn.history_delta)[2..],
        ["3 dequeue q", "4 dequeue q", "5<3 dequeue-cancelled dropped_future", "6 completed mine"]
    );
}

#[test]
fn bound_wait_frees_its_place_when_it_is_dropped() {
    let mut harness = Harness::new(|ctx, _| async move {
        let given_up = ctx.schedule_wait("s");
        let kept = ctx.schedule_wait("s");
        ctx.schedule_timer(Duration::ZERO).await;
        drop(given_up);
        Ok(kept.await)
    });
    harness.turn([]);
    assert_eq!(harness.turn([timer_fired(4), signal("s", "mine")]).outcome, completed("mine"));
}

#[test]
fn value_of_a_dropped_wait_is_discarded() {
    let mut harness = Harness::new(|ctx, _| async move {
        let holding = ctx.schedule_wait("s");
        let kept = ctx.schedule_wait("s");
        ctx.schedule_timer(Duration::ZERO).await;
        drop(holding);
        Ok(kept.await)
    });
    harness.turn([]);
    harness.turn([signal("s", "discarded")]);
    harness.turn([timer_fired(4)]);
    assert_eq!(harness.turn([signal("s", "mine")]).outcome, completed("mine"));
}

#[test]
fn unbound_wait_is_cancelled_only_by_its_event() {
    let mut harness = Harness::new(|ctx, _| async move {
        drop(ctx.schedule_wait("s"));
        Ok(ctx.schedule_wait("s").await)
    });
    assert_eq!(
        summarize(&harness.turn([]).history_delta),
        ["1 started", "2 wait s", "3 wait s", "4<2 wait-cancelled dropped_future"]
    );
    assert_eq!(harness.turn([signal("s", "mine")]).outcome, completed("mine"));
}

#[test]
fn wait_that_got_its_signal_behind_a_dropped_one_is_not_closed_at_the_end() {
    let mut harness = Harness::new(|ctx, _| async move {
        let given_up = ctx.schedule_wait("s");
        let kept = ctx.schedule_wait("s");
        ctx.schedule_timer(Duration::ZERO).await;
        drop(given_up);
        kept.await;
        Ok(ctx.schedule_wait("end").await)
    });
    harness.turn([]);
    harness.turn([timer_fired(4), signal("s", "mine")]);
    assert_eq!(
        summarize(&harness.turn([signal("end", "x")]).history_delta),
        ["9 signal end x", "10 completed x"]
    );
}

#[test]
fn turn_that_continues_as_new_closes_the_dropped_subscription_and_not_the_answered_one() {
    let mut harness = Harness::new(|ctx, _| async move {
        let given_up = (ctx.schedule_wait("s"), ctx.dequeue_event("q"));
        let kept = (ctx.schedule_wait("s"), ctx.dequeue_event("q"));
        ctx.schedule_timer(Duration::ZERO).await;
        drop(given_up);
        ctx.join2(kept.0, kept.1).await;
        ctx.continue_as_new("next").await
    });
    harness.turn([]);
    assert_eq!(
        summarize(&harness.turn([timer_fired(6), signal("s", ""), queue_message("q", "")]).history_delta)
            [3..],
        [
            "11<2 wait-cancelled orchestration_terminal",
            "12<3 dequeue-cancelled orchestration_terminal",
            "13 continued next"
        ]
    );
}

/// The messages that a successor gets.
fn carried(mut turn: everturn_core::turn::Turn) -> Vec<(String, String)> {
    match turn.orchestrator_items.remove(0) {
        WorkItem::ContinueAsNew { carry_forward_events, .. } => carry_forward_events,
        other => panic!("{other:?}"),
    }
}

#[test]
fn successor_gets_exactly_the_messages_that_no_read_returned() {
    let mut harness = Harness::new(|ctx, _| async move {
        let _held = ctx.dequeue_event("q");
        ctx.dequeue_event("q").await;
        drop(ctx.dequeue_event("q"));
        ctx.continue_as_new("").await
    });
    let turn = harness.turn([queue_message("q", "1"), queue_message("q", "2"), queue_message("q", "3")]);
    assert_eq!(carried(turn), [("q".to_owned(), "1".to_owned()), ("q".to_owned(), "3".to_owned())]);
}

#[test]
fn messages_are_carried_in_order_of_arrival_across_queues() {
    let mut harness = Harness::new(|ctx, _| async move {
        ctx.dequeue_event("b").await;
        ctx.continue_as_new("").await
    });
    harness.turn([queue_message("a", "1")]);
    let turn = harness.turn([
        queue_message("c", "2"),
        queue_message("b", "read"),
        queue_message("a", "3"),
        queue_message("b", "4"),
    ]);
    let expected = [("a", "1"), ("c", "2"), ("a", "3"), ("b", "4")];
    assert_eq!(carried(turn), expected.map(|(name, data)| (name.to_owned(), data.to_owned())));
}

#[test]
fn messages_after_the_return_of_the_code_are_carried_too() {
    let mut harness = Harness::new(|ctx, _| async move {
        ctx.dequeue_event("q").await;
        drop(ctx.continue_as_new(""));
        Ok("returned".into())
    });
    harness.turn([]);
    let turn = harness.turn([queue_message("q", "read"), queue_message("q", "late")]);
    assert_eq!(carried(turn), [("q".to_owned(), "late".to_owned())]);
}
