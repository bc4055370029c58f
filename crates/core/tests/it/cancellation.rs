//! What each cause of a cancellation cancels.

use std::time::Duration;

use everturn_core::Event;
use everturn_core::turn::{Turn, TurnOutcome, fail_from_outside};

use crate::harness::{
    Harness, HarnessClock, activity_completed, activity_failed_with, cancel, child_completed, identity,
    infrastructure, queue_message, sent, signal, started, summarize, timer_fired,
};

/// Has an activity (2), a child (3), a wait (4) and a read (5) open, and ends as `end` says when it gets the signal `go` (6).
fn open_everything(end: &'static str) -> Harness {
    let mut harness = Harness::new(move |ctx, _| async move {
        let held = (
            ctx.schedule_activity("A", ""),
            ctx.schedule_sub_orchestration("C", ""),
            ctx.schedule_wait("s"),
            ctx.dequeue_event("q"),
        );
        ctx.schedule_wait("go").await;
        match end {
            "returns" => return Ok("x".into()),
            "returns, forgetting" => {
                std::mem::forget(held);
                return Ok("x".into());
            }
            "panics" => panic!("x"),
            "breaks a limit" => ctx.set_kv_value("k", "v".repeat(65_537)),
            "continues" => return ctx.continue_as_new("x").await,
            "drops" => drop(held),
            _ => {}
        }
        Ok(ctx.schedule_wait("end").await)
    });
    harness.turn([]);
    harness
}

fn closed(turn: &Turn) -> Vec<String> {
    let lines = summarize(&turn.history_delta).into_iter().filter(|line| line.contains("-cancelled"));
    lines.map(|line| line.split_once('<').unwrap().1.to_owned()).collect()
}

const WAITS_CLOSED: [&str; 2] =
    ["4 wait-cancelled orchestration_terminal", "5 dequeue-cancelled orchestration_terminal"];

#[test]
fn client_cancel_cancels_everything_open() {
    let turn = open_everything("").turn([cancel("stop")]);
    assert_eq!(
        closed(&turn),
        [
            "4 wait-cancelled orchestration_terminal",
            "6 wait-cancelled orchestration_terminal",
            "5 dequeue-cancelled orchestration_terminal",
            "2 activity-cancelled orchestration_terminal_failed"
        ]
    );
    assert_eq!(turn.cancelled_activities, [2]);
    assert_eq!(sent(&turn), ["cancel order::sub::3: parent canceled"]);
}

#[test]
fn own_return_cancels_what_was_dropped() {
    let turn = open_everything("returns").turn([signal("go", "")]);
    assert_eq!(
        closed(&turn),
        [
            "2 activity-cancelled dropped_future",
            "3 child-cancelled dropped_future",
            "4 wait-cancelled dropped_future",
            "5 dequeue-cancelled dropped_future"
        ]
    );
    assert_eq!(turn.cancelled_activities, [2]);
    assert_eq!(sent(&turn), ["cancel order::sub::3: parent dropped sub-orchestration future"]);
}

#[test]
fn own_return_leaves_a_child_alone_whose_future_was_not_dropped() {
    let turn = open_everything("returns, forgetting").turn([signal("go", "")]);
    assert_eq!(closed(&turn)[..2], WAITS_CLOSED);
    assert_eq!(closed(&turn)[2..], ["2 activity-cancelled orchestration_terminal_completed"]);
    assert_eq!(turn.cancelled_activities, [2]);
    assert!(sent(&turn).is_empty());
}

#[test]
fn panic_limit_and_nondeterminism_cancel_everything_open() {
    for end in ["panics", "breaks a limit", "is replaced"] {
        let mut harness = open_everything(end);
        if end == "is replaced" {
            harness.deploy(|ctx, _| async move { ctx.schedule_activity("Other", "").await });
        }
        let turn = harness.turn([signal("go", "")]);
        assert_eq!(closed(&turn)[..2], WAITS_CLOSED, "{end}");
        assert_eq!(closed(&turn)[2..], ["2 activity-cancelled orchestration_terminal_failed"], "{end}");
        assert_eq!(turn.cancelled_activities, [2], "{end}");
        assert_eq!(sent(&turn), ["cancel order::sub::3: parent failed"], "{end}");
    }
}

#[test]
fn aborted_turn_deletes_open_activities_and_closes_waits() {
    let mut harness = Harness::new(|ctx, _| async move {
        let (a, _b) = ctx.join2(ctx.schedule_activity("A", ""), ctx.schedule_activity("B", "")).await;
        a
    });
    harness.turn([]);
    let turn = harness.turn([activity_failed_with(2, infrastructure("x"))]);
    assert_eq!(turn.cancelled_activities, [3]);
    assert_eq!(closed(&turn), ["3 activity-cancelled orchestration_terminal_failed"]);
}

#[test]
fn continue_as_new_leaves_children_running() {
    let turn = open_everything("continues").turn([signal("go", "")]);
    assert_eq!(closed(&turn)[..2], WAITS_CLOSED);
    assert_eq!(closed(&turn)[2..], ["2 activity-cancelled orchestration_terminal_continued_as_new"]);
    assert_eq!(turn.cancelled_activities, [2]);
    assert_eq!(sent(&turn), ["successor x"]);
}

#[test]
fn explicit_drop_cancels_just_that() {
    let turn = open_everything("drops").turn([signal("go", "")]);
    assert_eq!(closed(&turn).len(), 4);
    assert_eq!(turn.cancelled_activities, [2]);
    assert_eq!(sent(&turn), ["cancel order::sub::3: parent dropped sub-orchestration future"]);
}

#[test]
fn select_loser_and_scope_exit_cancel_just_that() {
    let mut harness = Harness::new(|ctx, _| async move {
        let _kept = ctx.schedule_activity("Kept", "");
        ctx.select2(ctx.schedule_activity("Loser", ""), ctx.schedule_timer(Duration::ZERO)).await;
        {
            let _scoped = ctx.schedule_activity("Scoped", "");
        }
        Ok(ctx.schedule_wait("end").await)
    });
    harness.turn([]);
    assert_eq!(harness.turn([timer_fired(4)]).cancelled_activities, [3, 6]);
}

#[test]
fn finished_and_already_cancelled_work_is_left_alone() {
    let mut harness = Harness::new(|ctx, _| async move {
        let finished = (ctx.schedule_activity("A", ""), ctx.schedule_sub_orchestration("C", ""));
        drop((ctx.schedule_activity("B", ""), ctx.schedule_sub_orchestration("D", "")));
        let (a, _c) = ctx.join2(finished.0, finished.1).await;
        a?;
        Ok(ctx.schedule_wait("end").await)
    });
    harness.turn([]);
    harness.turn([activity_completed(2, ""), child_completed(3, "")]);
    let turn = harness.turn([cancel("stop")]);
    assert!(turn.cancelled_activities.is_empty());
    assert!(sent(&turn).is_empty());
}

#[test]
fn cancel_is_a_no_op_after_the_end() {
    let mut harness = Harness::new(|_, _| async move { Ok("x".into()) });
    harness.turn([]);
    let turn = harness.turn([cancel("late"), queue_message("q", "late")]);
    assert!(turn.history_delta.is_empty());
}

#[test]
fn completion_may_win_the_race_against_deletion() {
    let mut harness = Harness::new(|ctx, _| async move {
        ctx.select2(ctx.schedule_activity("A", ""), ctx.schedule_timer(Duration::ZERO)).await;
        Ok(ctx.schedule_wait("end").await)
    });
    harness.turn([]);
    harness.turn([timer_fired(3)]);
    assert_eq!(
        summarize(&harness.turn([activity_completed(2, "too late")]).history_delta),
        ["7<2 activity-completed too late"]
    );
}

/// The turn that fails an execution without its code.
fn failed_from_outside(history: &[Event], start: Option<Event>) -> Turn {
    let details = infrastructure("no such column");
    fail_from_outside(&identity(1), history, start, details, 1_000_000, &HarnessClock::of_turn(9))
}

#[test]
fn failure_from_outside_closes_everything_open() {
    let mut harness = Harness::new(|ctx, _| async move {
        let activities = (ctx.schedule_activity("A", ""), ctx.schedule_activity("B", ""));
        let children =
            (ctx.schedule_sub_orchestration("C", ""), ctx.schedule_sub_orchestration_with_id("D", "d", ""));
        let _waits = (ctx.schedule_wait("s"), ctx.schedule_wait("t"), ctx.dequeue_event("q"));
        ctx.join2(activities.0, children.1).await.0?;
        drop((activities.1, children.0));
        Ok(String::new())
    })
    .child_of("p", 7, Some(3));
    harness.turn([]);
    harness.turn([activity_completed(2, ""), signal("s", "")]);
    let turn = failed_from_outside(harness.history(), None);
    assert_eq!(
        summarize(&turn.history_delta),
        [
            "11<7 wait-cancelled orchestration_terminal",
            "12<8 dequeue-cancelled orchestration_terminal",
            "13 failed infrastructure:op: no such column",
            "14<3 activity-cancelled orchestration_terminal_failed"
        ]
    );
    assert_eq!(turn.cancelled_activities, [3]);
    assert_eq!(
        sent(&turn),
        [
            "notify p 7 failed infrastructure:op: no such column",
            "cancel order::sub::4: parent failed",
            "cancel d: parent failed"
        ]
    );
    assert_eq!(turn.outcome, TurnOutcome::Failed { details: infrastructure("no such column") });
}

#[test]
fn failure_from_outside_cancels_a_child_whose_call_is_the_last_event() {
    let mut harness = Harness::new(|ctx, _| async move { ctx.schedule_sub_orchestration("C", "").await });
    harness.turn([]);
    let history = summarize(harness.history());
    assert_eq!(
        history.last().map(String::as_str),
        Some("2 child C sub::2 "),
        "the history ends with the call"
    );
    let turn = failed_from_outside(harness.history(), None);
    assert_eq!(sent(&turn), ["cancel order::sub::2: parent failed"]);
}

#[test]
fn failure_from_outside_cancels_an_activity_whose_call_is_the_last_event() {
    let mut harness = Harness::new(|ctx, _| async move { ctx.schedule_activity("A", "").await });
    harness.turn([]);
    assert_eq!(harness.history().len(), 2, "the history ends with the call");
    assert_eq!(failed_from_outside(harness.history(), None).cancelled_activities, [2]);
}

#[test]
fn failure_from_outside_records_a_missing_start_event() {
    let turn = failed_from_outside(&[], Some(started(1, "in")));
    assert_eq!(summarize(&turn.history_delta), ["1 started", "2 failed infrastructure:op: no such column"]);
    assert!(sent(&turn).is_empty());
}
