//! How messages become events.

use std::time::Duration;

use everturn_core::turn::TurnOutcome;
use everturn_core::{ConfigErrorKind, ErrorDetails, PoisonMessageType, WorkItem};

use crate::harness::{
    Harness, activity_completed, activity_failed, activity_failed_with, cancel, child_completed,
    child_failed, infrastructure, queue_message, signal, summarize, timer_fired, to_execution,
};

/// Waits for an activity (2), a timer (3) and a child (4), one of each kind, and then for a signal.
fn waiting() -> Harness {
    let mut harness = Harness::new(|ctx, _| async move {
        let activity = ctx.schedule_activity("A", "");
        let timer = ctx.schedule_timer(Duration::ZERO);
        let child = ctx.schedule_sub_orchestration("C", "");
        let (activity, (), child) = ctx.join3(activity, timer, child).await;
        let end = ctx.schedule_wait("end").await;
        Ok(format!("{activity:?} {child:?} {end}"))
    });
    harness.turn([]);
    harness
}

fn nondeterminism(outcome: &TurnOutcome) -> &str {
    match outcome {
        TurnOutcome::Failed {
            details: ErrorDetails::Configuration { kind: ConfigErrorKind::Nondeterminism, resource, message },
        } if resource.is_empty() => message.as_deref().unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn messages_become_events_in_their_order_with_contiguous_ids() {
    let mut harness = waiting();
    let turn = harness.turn([
        queue_message("q", "m"),
        child_completed(4, "c"),
        signal("s", "d"),
        timer_fired(3),
        activity_failed(2, "b"),
    ]);
    assert_eq!(
        summarize(&turn.history_delta),
        [
            "5 queued q m",
            "6<4 child-completed c",
            "7 signal s d",
            "8<3 fired",
            "9<2 activity-failed b",
            "10 wait end"
        ]
    );
}

#[test]
fn completions_for_another_execution_are_dropped() {
    let mut harness = waiting();
    let turn = harness.turn([
        to_execution(2, activity_completed(2, "")),
        to_execution(2, activity_failed(2, "")),
        to_execution(2, timer_fired(3)),
        to_execution(0, child_completed(4, "")),
        to_execution(2, child_failed(4, infrastructure("x"))),
        to_execution(2, activity_completed(99, "")),
    ]);
    assert_eq!(turn.outcome, TurnOutcome::Continue);
    assert!(turn.history_delta.is_empty());
}

#[test]
fn signals_queue_messages_and_cancels_apply_to_any_execution() {
    let mut harness = Harness::new(|ctx, _| async move { Ok(ctx.schedule_wait("w").await) }).execution(5);
    let turn = harness.turn([signal("s", ""), queue_message("q", ""), cancel("r")]);
    assert_eq!(turn.outcome, TurnOutcome::Cancelled { reason: "r".into() });
    assert_eq!(summarize(&turn.history_delta)[1..4], ["2 signal s ", "3 queued q ", "4 cancel r"]);
}

#[test]
fn completion_that_history_already_has_is_dropped() {
    let mut harness = waiting();
    harness.turn([activity_completed(2, "a"), timer_fired(3), child_completed(4, "c")]);
    let turn = harness.turn([
        activity_completed(2, "again"),
        activity_failed(2, "again"),
        timer_fired(3),
        child_completed(4, "again"),
        child_failed(4, ErrorDetails::orchestration_failed("again")),
    ]);
    assert!(turn.history_delta.is_empty());
}

#[test]
fn recorded_failure_wins_over_a_later_success() {
    let mut harness = waiting();
    harness.turn([activity_failed(2, "no"), child_failed(4, ErrorDetails::orchestration_failed("no"))]);
    assert!(
        harness
            .turn([activity_completed(2, "yes"), activity_failed(2, "no"), child_completed(4, "yes")])
            .history_delta
            .is_empty()
    );
}

#[test]
fn system_failure_that_comes_twice_counts_once_and_late_ones_not_at_all() {
    let mut harness = waiting();
    harness.turn([activity_completed(2, "a")]);
    let turn = harness.turn([activity_failed_with(2, infrastructure("late"))]);
    assert_eq!(turn.outcome, TurnOutcome::Continue);
    assert!(turn.history_delta.is_empty());
}

#[test]
fn second_completion_in_one_batch_is_dropped() {
    let mut harness = waiting();
    let turn = harness.turn([
        activity_completed(2, "first"),
        activity_failed(2, "second"),
        activity_completed(2, "third"),
        timer_fired(3),
        timer_fired(3),
    ]);
    assert_eq!(summarize(&turn.history_delta), ["5<2 activity-completed first", "6<3 fired"]);
    let mut harness = waiting();
    let turn = harness.turn([activity_failed(2, "first"), activity_completed(2, "second")]);
    assert_eq!(summarize(&turn.history_delta), ["5<2 activity-failed first"]);
}

#[test]
fn completion_without_schedule_aborts_the_turn() {
    let unknown = [
        (activity_completed(77, ""), "no matching schedule for completion id=77"),
        (activity_failed(77, ""), "no matching schedule for completion id=77"),
        (timer_fired(77), "no matching schedule for timer id=77"),
        (child_completed(77, ""), "no matching schedule for sub-orchestration id=77"),
        (
            child_failed(77, ErrorDetails::orchestration_failed("")),
            "no matching schedule for sub-orchestration id=77",
        ),
    ];
    for (message, text) in unknown {
        let turn = waiting().turn([message]);
        assert_eq!(nondeterminism(&turn.outcome), text);
    }
}

#[test]
fn completion_of_the_wrong_kind_aborts_the_turn() {
    let wrong: [(WorkItem, &str); 6] = [
        (activity_completed(3, ""), "completion kind mismatch for id=3, expected 'timer', got 'activity'"),
        (
            activity_failed(4, ""),
            "completion kind mismatch for id=4, expected 'suborchestration', got 'activity'",
        ),
        (timer_fired(2), "completion kind mismatch for id=2, expected 'activity', got 'timer'"),
        (timer_fired(4), "completion kind mismatch for id=4, expected 'suborchestration', got 'timer'"),
        (
            child_completed(2, ""),
            "completion kind mismatch for id=2, expected 'activity', got 'suborchestration'",
        ),
        (
            child_completed(3, ""),
            "completion kind mismatch for id=3, expected 'timer', got 'suborchestration'",
        ),
    ];
    for (message, text) in wrong {
        assert_eq!(nondeterminism(&waiting().turn([message]).outcome), text);
    }
}

#[test]
fn message_without_schedule_is_skipped_and_the_others_are_recorded() {
    let turn =
        waiting().turn([activity_completed(77, ""), activity_completed(2, "kept"), signal("s", "kept")]);
    let lines = summarize(&turn.history_delta);
    assert_eq!(lines[..2], ["5<2 activity-completed kept", "6 signal s kept"]);
    assert!(lines[2].starts_with("7 failed nondeterministic: no matching schedule"), "{lines:?}");
}

#[test]
fn first_abort_wins() {
    let turn = waiting().turn([
        activity_completed(77, ""),
        activity_failed_with(2, infrastructure("second")),
        timer_fired(88),
    ]);
    assert_eq!(nondeterminism(&turn.outcome), "no matching schedule for completion id=77");
    let turn = waiting().turn([activity_failed_with(2, infrastructure("first")), activity_completed(77, "")]);
    assert_eq!(turn.outcome, TurnOutcome::Failed { details: infrastructure("first") });
}

#[test]
fn failures_that_are_not_the_applications_are_recorded_and_abort() {
    let poison = ErrorDetails::Poison {
        attempt_count: 2,
        max_attempts: 1,
        message_type: PoisonMessageType::Orchestration { instance: "c".into(), execution_id: 1 },
        message: String::new(),
    };
    for details in [infrastructure("x"), ErrorDetails::nondeterminism("x"), poison] {
        for message in [activity_failed_with(2, details.clone()), child_failed(4, details.clone())] {
            let turn = waiting().turn([message, timer_fired(3)]);
            assert_eq!(turn.outcome, TurnOutcome::Failed { details: details.clone() });
            let lines = summarize(&turn.history_delta);
            assert!(lines[0].contains("failed"), "{lines:?}");
            assert_eq!(lines[1], "6<3 fired");
        }
    }
}

#[test]
fn only_the_first_cancel_is_recorded() {
    let turn = waiting().turn([cancel("first"), cancel("second")]);
    assert_eq!(turn.outcome, TurnOutcome::Cancelled { reason: "first".into() });
    let cancels = summarize(&turn.history_delta).iter().filter(|line| line.contains(" cancel ")).count();
    assert_eq!(cancels, 1);
}

#[test]
fn ids_go_on_from_the_last_event_of_the_history() {
    use everturn_core::EventKind;
    let mut history = crate::harness::history([(None, EventKind::ExternalSubscribed { name: "w".into() })]);
    history[1].event_id = 40;
    let mut harness = Harness::resumed(history, |ctx, _| async move {
        ctx.schedule_wait("w").await;
        ctx.schedule_activity("A", "").await
    });
    assert_eq!(summarize(&harness.turn([signal("w", "")]).history_delta), ["41 signal w ", "42 activity A "]);
}
