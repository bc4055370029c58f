//! Contract 03 §3.1: from messages to events.

use std::time::Duration;

use everturn_core::turn::TurnOutcome;
use everturn_core::{ConfigErrorKind, ErrorDetails, PoisonMessageType, WorkItem};

use crate::stage::{
    Stage, broke, broke_with, cancel, child_broke, child_done, done, fired, infrastructure, queued, signal,
    to_execution, told,
};

/// Waits for an activity (2), a timer (3) and a child (4), one of each kind, and then for a signal.
fn waiting() -> Stage {
    let mut stage = Stage::new(|ctx, _| async move {
        let activity = ctx.schedule_activity("A", "");
        let timer = ctx.schedule_timer(Duration::ZERO);
        let child = ctx.schedule_sub_orchestration("C", "");
        let (activity, (), child) = ctx.join3(activity, timer, child).await;
        let end = ctx.schedule_wait("end").await;
        Ok(format!("{activity:?} {child:?} {end}"))
    });
    stage.turn([]);
    stage
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
    let mut stage = waiting();
    let turn = stage.turn([queued("q", "m"), child_done(4, "c"), signal("s", "d"), fired(3), broke(2, "b")]);
    assert_eq!(
        told(&turn.history_delta),
        ["5 queued q m", "6<4 child-done c", "7 signal s d", "8<3 fired", "9<2 broke b", "10 wait end"]
    );
}

#[test]
fn completions_for_another_execution_are_dropped() {
    let mut stage = waiting();
    let turn = stage.turn([
        to_execution(2, done(2, "")),
        to_execution(2, broke(2, "")),
        to_execution(2, fired(3)),
        to_execution(0, child_done(4, "")),
        to_execution(2, child_broke(4, infrastructure("x"))),
        to_execution(2, done(99, "")),
    ]);
    assert_eq!(turn.outcome, TurnOutcome::Continue);
    assert!(turn.history_delta.is_empty());
}

#[test]
fn signals_queue_messages_and_cancels_apply_to_any_execution() {
    let mut stage = Stage::new(|ctx, _| async move { Ok(ctx.schedule_wait("w").await) }).execution(5);
    let turn = stage.turn([signal("s", ""), queued("q", ""), cancel("r")]);
    assert_eq!(turn.outcome, TurnOutcome::Cancelled { reason: "r".into() });
    assert_eq!(told(&turn.history_delta)[1..4], ["2 signal s ", "3 queued q ", "4 cancel r"]);
}

#[test]
fn completion_that_history_already_has_is_dropped() {
    let mut stage = waiting();
    stage.turn([done(2, "a"), fired(3), child_done(4, "c")]);
    let turn = stage.turn([
        done(2, "again"),
        broke(2, "again"),
        fired(3),
        child_done(4, "again"),
        child_broke(4, ErrorDetails::orchestration_failed("again")),
    ]);
    assert!(turn.history_delta.is_empty());
}

#[test]
fn failure_in_history_stands_against_a_later_success() {
    let mut stage = waiting();
    stage.turn([broke(2, "no"), child_broke(4, ErrorDetails::orchestration_failed("no"))]);
    assert!(stage.turn([done(2, "yes"), broke(2, "no"), child_done(4, "yes")]).history_delta.is_empty());
}

#[test]
fn system_failure_that_comes_twice_counts_once_and_late_ones_not_at_all() {
    let mut stage = waiting();
    stage.turn([done(2, "a")]);
    let turn = stage.turn([broke_with(2, infrastructure("late"))]);
    assert_eq!(turn.outcome, TurnOutcome::Continue);
    assert!(turn.history_delta.is_empty());
}

#[test]
fn second_completion_in_one_batch_is_dropped() {
    let mut stage = waiting();
    let turn = stage.turn([done(2, "first"), broke(2, "second"), done(2, "third"), fired(3), fired(3)]);
    assert_eq!(told(&turn.history_delta), ["5<2 done first", "6<3 fired"]);
    let mut stage = waiting();
    let turn = stage.turn([broke(2, "first"), done(2, "second")]);
    assert_eq!(told(&turn.history_delta), ["5<2 broke first"]);
}

#[test]
fn completion_without_schedule_aborts_the_turn() {
    let unknown = [
        (done(77, ""), "no matching schedule for completion id=77"),
        (broke(77, ""), "no matching schedule for completion id=77"),
        (fired(77), "no matching schedule for timer id=77"),
        (child_done(77, ""), "no matching schedule for sub-orchestration id=77"),
        (
            child_broke(77, ErrorDetails::orchestration_failed("")),
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
        (done(3, ""), "completion kind mismatch for id=3, expected 'timer', got 'activity'"),
        (broke(4, ""), "completion kind mismatch for id=4, expected 'suborchestration', got 'activity'"),
        (fired(2), "completion kind mismatch for id=2, expected 'activity', got 'timer'"),
        (fired(4), "completion kind mismatch for id=4, expected 'suborchestration', got 'timer'"),
        (child_done(2, ""), "completion kind mismatch for id=2, expected 'activity', got 'suborchestration'"),
        (child_done(3, ""), "completion kind mismatch for id=3, expected 'timer', got 'suborchestration'"),
    ];
    for (message, text) in wrong {
        assert_eq!(nondeterminism(&waiting().turn([message]).outcome), text);
    }
}

#[test]
fn message_without_schedule_is_skipped_and_the_others_are_recorded() {
    let turn = waiting().turn([done(77, ""), done(2, "kept"), signal("s", "kept")]);
    let lines = told(&turn.history_delta);
    assert_eq!(lines[..2], ["5<2 done kept", "6 signal s kept"]);
    assert!(lines[2].starts_with("7 failed nondeterministic: no matching schedule"), "{lines:?}");
}

#[test]
fn first_abort_wins() {
    let turn = waiting().turn([done(77, ""), broke_with(2, infrastructure("second")), fired(88)]);
    assert_eq!(nondeterminism(&turn.outcome), "no matching schedule for completion id=77");
    let turn = waiting().turn([broke_with(2, infrastructure("first")), done(77, "")]);
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
        for message in [broke_with(2, details.clone()), child_broke(4, details.clone())] {
            let turn = waiting().turn([message, fired(3)]);
            assert_eq!(turn.outcome, TurnOutcome::Failed { details: details.clone() });
            let lines = told(&turn.history_delta);
            assert!(lines[0].contains("broke"), "{lines:?}");
            assert_eq!(lines[1], "6<3 fired");
        }
    }
}

#[test]
fn only_the_first_cancel_is_recorded() {
    let turn = waiting().turn([cancel("first"), cancel("second")]);
    assert_eq!(turn.outcome, TurnOutcome::Cancelled { reason: "first".into() });
    let cancels = told(&turn.history_delta).iter().filter(|line| line.contains(" cancel ")).count();
    assert_eq!(cancels, 1);
}

#[test]
fn ids_go_on_from_the_last_event_of_the_history() {
    use everturn_core::EventKind;
    let mut history = crate::stage::history([(None, EventKind::ExternalSubscribed { name: "w".into() })]);
    history[1].event_id = 40;
    let mut stage = Stage::resumed(history, |ctx, _| async move {
        ctx.schedule_wait("w").await;
        ctx.schedule_activity("A", "").await
    });
    assert_eq!(told(&stage.turn([signal("w", "")]).history_delta), ["41 signal w ", "42 activity A "]);
}
