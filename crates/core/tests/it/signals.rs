//! Positional signals.

use std::time::Duration;

use everturn_core::turn::TurnOutcome;

use crate::harness::{Harness, activity_completed, signal, summarize, timer_fired};

fn completed(output: &str) -> TurnOutcome {
    TurnOutcome::Completed { output: output.to_owned() }
}

#[test]
fn nth_wait_gets_the_nth_signal() {
    let mut harness = Harness::new(|ctx, _| async move {
        let (first, second) = (ctx.schedule_wait("s"), ctx.schedule_wait("s"));
        let (second, first) = ctx.join2(second, first).await;
        Ok(format!("{first} {second}"))
    });
    harness.turn([]);
    assert_eq!(harness.turn([signal("s", "one")]).outcome, TurnOutcome::Continue);
    assert_eq!(harness.turn([signal("s", "two")]).outcome, completed("one two"));
}

#[test]
fn signal_that_finds_no_wait_is_recorded_and_lost() {
    let mut harness = Harness::new(|ctx, _| async move {
        ctx.schedule_timer(Duration::ZERO).await;
        Ok(ctx.schedule_wait("s").await)
    });
    harness.turn([]);
    assert_eq!(summarize(&harness.turn([signal("s", "early")]).history_delta), ["3 signal s early"]);
    harness.turn([timer_fired(2)]);
    assert_eq!(harness.turn([signal("s", "in time")]).outcome, completed("in time"));
}

#[test]
fn signal_sent_with_the_start_comes_too_early() {
    let mut harness = Harness::new(|ctx, _| async move { Ok(ctx.schedule_wait("s").await) });
    let turn = harness.turn([signal("s", "early")]);
    assert_eq!(summarize(&turn.history_delta), ["1 started", "2 signal s early", "3 wait s"]);
    assert_eq!(harness.turn([signal("s", "late")]).outcome, completed("late"));
}

#[test]
fn second_signal_of_a_batch_is_lost_if_its_wait_is_not_bound_yet() {
    let mut harness = Harness::new(|ctx, _| async move {
        let first = ctx.schedule_wait("s").await;
        let second = ctx.schedule_wait("s").await;
        Ok(format!("{first} {second}"))
    });
    harness.turn([]);
    let turn = harness.turn([signal("s", "1"), signal("s", "2")]);
    assert_eq!(summarize(&turn.history_delta), ["3 signal s 1", "4 signal s 2", "5 wait s"]);
    assert_eq!(harness.turn([signal("s", "3")]).outcome, completed("1 3"));
}

#[test]
fn signals_of_another_name_go_elsewhere() {
    let mut harness = Harness::new(|ctx, _| async move {
        let (a, b) = ctx.join2(ctx.schedule_wait("a"), ctx.schedule_wait("b")).await;
        Ok(format!("{a}{b}"))
    });
    harness.turn([]);
    assert_eq!(harness.turn([signal("b", "B"), signal("c", "C"), signal("a", "A")]).outcome, completed("AB"));
}

#[test]
fn cancelled_wait_occupies_no_place() {
    let mut harness = Harness::new(|ctx, _| async move {
        let given_up = ctx.schedule_wait("s");
        let kept = ctx.schedule_wait("s");
        ctx.schedule_activity("A", "").await?;
        drop(given_up);
        Ok(kept.await)
    });
    harness.turn([]);
    let turn = harness.turn([activity_completed(4, "")]);
    assert_eq!(
        summarize(&turn.history_delta),
        ["5<4 activity-completed ", "6<2 wait-cancelled dropped_future"]
    );
    assert_eq!(harness.turn([signal("s", "mine")]).outcome, completed("mine"));
}

#[test]
fn dropped_wait_discards_the_signal_it_already_had() {
    let mut harness = Harness::new(|ctx, _| async move {
        let holding = ctx.schedule_wait("s");
        let kept = ctx.schedule_wait("s");
        ctx.schedule_activity("A", "").await?;
        drop(holding);
        Ok(kept.await)
    });
    harness.turn([]);
    assert_eq!(
        harness.turn([signal("s", "discarded"), activity_completed(4, "")]).outcome,
        TurnOutcome::Continue
    );
    assert_eq!(harness.turn([signal("s", "second")]).outcome, completed("second"));
}

#[test]
fn place_is_free_the_moment_the_wait_is_dropped() {
    let mut harness = Harness::new(|ctx, _| async move {
        let given_up = ctx.schedule_wait("s");
        let kept = ctx.schedule_wait("s");
        ctx.schedule_activity("A", "").await?;
        drop(given_up);
        Ok(kept.await)
    });
    harness.turn([]);
    assert_eq!(
        harness.turn([activity_completed(4, ""), signal("s", "same batch")]).outcome,
        completed("same batch")
    );
}

#[test]
fn equal_signals_are_not_deduplicated() {
    let mut harness = Harness::new(|ctx, _| async move {
        let (a, b) = ctx.join2(ctx.schedule_wait("s"), ctx.schedule_wait("s")).await;
        Ok(format!("{a}{b}"))
    });
    harness.turn([]);
    let turn = harness.turn([signal("s", "x"), signal("s", "x")]);
    assert_eq!(turn.outcome, completed("xx"));
}

#[test]
fn signal_for_a_wait_resolves_it_after_a_race_was_lost_once() {
    let mut harness = Harness::new(|ctx, _| async move {
        let lost = ctx.select2(ctx.schedule_wait("s"), ctx.schedule_timer(Duration::ZERO)).await;
        let next = ctx.schedule_wait("s").await;
        Ok(format!("{} {next}", lost.index()))
    });
    harness.turn([]);
    harness.turn([timer_fired(3)]);
    assert_eq!(harness.turn([signal("s", "now")]).outcome, completed("1 now"));
}
