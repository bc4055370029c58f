//! What each outcome of a turn writes and sends.

use std::time::Duration;

use everturn_core::turn::{Turn, TurnOutcome};
use everturn_core::{ErrorDetails, WorkItem};

use crate::harness::{Harness, cancel, child_failed, sent, signal, summarize};

/// In the second turn asks for one of everything and ends as `end` says; child of `parent`, event 9, execution 4.
fn ending(end: &'static str) -> Turn {
    let mut harness = Harness::new(move |ctx, _| async move {
        std::mem::forget((
            ctx.schedule_activity("Open", ""),
            ctx.schedule_wait("open"),
            ctx.dequeue_event("open"),
            ctx.schedule_sub_orchestration("Open", ""),
        ));
        ctx.schedule_wait("go").await;
        std::mem::forget((
            ctx.schedule_activity("New", ""),
            ctx.schedule_timer(Duration::ZERO),
            ctx.schedule_sub_orchestration("New", ""),
        ));
        ctx.schedule_orchestration("Detached", "d", "");
        match end {
            "completes" => Ok("out".into()),
            "fails" => Err("why".into()),
            "continues" => ctx.continue_as_new("next").await,
            _ => Ok(ctx.schedule_wait("later").await),
        }
    })
    .child_of("parent", 9, Some(4));
    harness.turn([]);
    match end {
        "cancelled" => harness.turn([signal("go", ""), cancel("stop")]),
        _ => harness.turn([signal("go", "")]),
    }
}

const SCHEDULED: [&str; 5] = [
    "7 signal go ",
    "8 activity New ",
    "9 timer 2000000",
    "10 child New sub::10 ",
    "11 detached Detached d ",
];

#[test]
fn waiting_dispatches_everything() {
    let turn = ending("waits");
    assert_eq!(turn.outcome, TurnOutcome::Continue);
    assert_eq!(summarize(&turn.history_delta)[..5], SCHEDULED);
    assert_eq!(summarize(&turn.history_delta)[5..], ["12 wait later"]);
    assert_eq!(
        sent(&turn),
        ["run 8 New ", "fire 9 2000000", "start child New order::sub::10 ", "start Detached d "]
    );
    assert_eq!(turn.worker_items.len(), 1);
}

#[test]
fn completion_dispatches_only_detached_starts_and_notifies_the_parent() {
    let turn = ending("completes");
    assert_eq!(summarize(&turn.history_delta)[..5], SCHEDULED);
    assert_eq!(
        summarize(&turn.history_delta)[5..],
        [
            "12<3 wait-cancelled orchestration_terminal",
            "13<4 dequeue-cancelled orchestration_terminal",
            "14 completed out",
            "15<2 activity-cancelled orchestration_terminal_completed",
            "16<8 activity-cancelled orchestration_terminal_completed"
        ]
    );
    assert_eq!(sent(&turn), ["start Detached d ", "notify parent 9 ok out"]);
    assert_eq!(turn.cancelled_activities, [2, 8]);
    assert!(turn.orchestrator_items.contains(&WorkItem::SubOrchCompleted {
        parent_instance: "parent".into(),
        parent_execution_id: 4,
        parent_id: 9,
        result: "out".into(),
    }));
}

#[test]
fn failure_dispatches_only_detached_starts_and_notifies_the_parent() {
    let turn = ending("fails");
    let details = ErrorDetails::orchestration_failed("why");
    assert_eq!(turn.outcome, TurnOutcome::Failed { details: details.clone() });
    assert_eq!(
        summarize(&turn.history_delta)[5..],
        [
            "12<3 wait-cancelled orchestration_terminal",
            "13<4 dequeue-cancelled orchestration_terminal",
            "14 failed why",
            "15<2 activity-cancelled orchestration_terminal_failed",
            "16<8 activity-cancelled orchestration_terminal_failed"
        ]
    );
    assert_eq!(sent(&turn), ["start Detached d ", "notify parent 9 failed why"]);
    assert!(turn.orchestrator_items.contains(&WorkItem::SubOrchFailed {
        parent_instance: "parent".into(),
        parent_execution_id: 4,
        parent_id: 9,
        details,
    }));
}

#[test]
fn continue_as_new_sends_the_successor_and_detached_starts_and_no_notice() {
    let turn = ending("continues");
    assert_eq!(
        summarize(&turn.history_delta)[5..],
        [
            "13<3 wait-cancelled orchestration_terminal",
            "14<4 dequeue-cancelled orchestration_terminal",
            "15 continued next",
            "16<2 activity-cancelled orchestration_terminal_continued_as_new",
            "17<8 activity-cancelled orchestration_terminal_continued_as_new"
        ]
    );
    assert_eq!(sent(&turn), ["successor next", "start Detached d "]);
}

#[test]
fn cancellation_cancels_the_children_and_notifies_the_parent() {
    let turn = ending("cancelled");
    let lines = summarize(&turn.history_delta);
    assert_eq!(lines[..2], ["7 signal go ", "8 cancel stop"]);
    assert!(lines.contains(&"17 failed canceled: stop".to_owned()), "{lines:?}");
    assert_eq!(
        sent(&turn),
        ["notify parent 9 failed canceled: stop", "cancel order::sub::5: parent canceled"]
    );
    assert_eq!(turn.cancelled_activities, [2, 9]);
}

#[test]
fn dropped_children_get_a_cancel_message_however_the_turn_ends() {
    for fails in [false, true] {
        let mut harness = Harness::new(move |ctx, _| async move {
            let _old = ctx.schedule_sub_orchestration_with_id("C", "old", "");
            ctx.schedule_wait("go").await;
            let _new = ctx.schedule_sub_orchestration_with_id("C", "new", "");
            if fails { Err("x".into()) } else { Ok("x".into()) }
        });
        harness.turn([]);
        let turn = harness.turn([signal("go", "")]);
        // The new child was never started, so it gets no cancel message.
        assert_eq!(sent(&turn), ["cancel old: parent dropped sub-orchestration future"]);
    }
}

#[test]
fn child_call_that_has_ended_cancels_nothing_when_it_is_dropped() {
    let mut harness = Harness::new(|ctx, _| async move {
        drop(ctx.schedule_sub_orchestration_with_id("C", "refused", "x".repeat(11)));
        let collided = ctx.schedule_sub_orchestration_with_id("C", "taken-id", "");
        ctx.schedule_wait("go").await;
        drop(collided);
        Ok(ctx.schedule_wait("end").await)
    })
    .payload_max(10);
    let turn = harness.turn([]);
    assert_eq!(sent(&turn), ["start child C taken-id "]);
    let taken = "sub-orchestration instance id 'taken-id' already exists";
    harness.turn([child_failed(4, ErrorDetails::orchestration_failed(taken))]);
    let turn = harness.turn([signal("go", "")]);
    assert_eq!(summarize(&turn.history_delta).last().unwrap(), "10<4 child-cancelled dropped_future");
    assert!(sent(&turn).is_empty());
}

#[test]
fn activity_scheduled_and_dropped_in_one_turn_is_inserted_and_deleted() {
    let mut harness = Harness::new(|ctx, _| async move {
        drop(ctx.schedule_activity("A", ""));
        Ok(ctx.schedule_wait("w").await)
    });
    let turn = harness.turn([]);
    assert_eq!(sent(&turn), ["run 2 A "]);
    assert_eq!(turn.cancelled_activities, [2]);
}

#[test]
fn satisfied_subscriptions_are_not_closed_again() {
    let mut harness = Harness::new(|ctx, _| async move {
        let (wait, read) = ctx.join2(ctx.schedule_wait("s"), ctx.dequeue_event("q")).await;
        Ok(wait + &read)
    });
    harness.turn([]);
    let turn = harness.turn([signal("s", "a"), crate::harness::queue_message("q", "b")]);
    assert_eq!(summarize(&turn.history_delta).last().unwrap(), "6 completed ab");
    assert_eq!(turn.history_delta.len(), 3);
}
