//! How the outcome of a turn is decided.

use std::time::Duration;

use everturn_core::ErrorDetails;
use everturn_core::turn::TurnOutcome;

use crate::harness::{Harness, activity_completed, cancel, sent, signal, summarize, timer_fired};

fn cancelled(reason: &str) -> TurnOutcome {
    TurnOutcome::Cancelled { reason: reason.to_owned() }
}

#[test]
fn cancel_wins_over_everything_the_code_does_in_that_turn() {
    let ends = |end: &'static str| {
        let mut harness = Harness::new(move |ctx, _| async move {
            ctx.schedule_wait("go").await;
            match end {
                "completes" => Ok("ok".into()),
                "fails" => Err("no".into()),
                _ => ctx.continue_as_new("again").await,
            }
        });
        harness.turn([]);
        harness
    };
    for end in ["completes", "fails", "continues"] {
        let turn = ends(end).turn([signal("go", ""), cancel("stop")]);
        assert_eq!(turn.outcome, cancelled("stop"));
        let last = summarize(&turn.history_delta).pop().unwrap();
        assert!(last.ends_with("failed canceled: stop"), "{last}");
    }
}

#[test]
fn first_reason_counts() {
    let mut harness = Harness::new(|ctx, _| async move { Ok(ctx.schedule_wait("w").await) });
    harness.turn([]);
    assert_eq!(harness.turn([cancel("first"), cancel("second")]).outcome, cancelled("first"));
}

#[test]
fn cancel_may_come_with_the_start() {
    let mut harness = Harness::new(|ctx, _| async move { ctx.schedule_activity("A", "").await });
    let turn = harness.turn([cancel("at once")]);
    assert_eq!(turn.outcome, cancelled("at once"));
    assert_eq!(
        summarize(&turn.history_delta),
        [
            "1 started",
            "2 cancel at once",
            "3 activity A ",
            "4 failed canceled: at once",
            "5<3 activity-cancelled orchestration_terminal_failed"
        ]
    );
    assert!(turn.worker_items.is_empty());
}

#[test]
fn continue_as_new_skips_the_bookkeeping_of_drops() {
    let mut harness = Harness::new(|ctx, _| async move {
        let activity = ctx.schedule_activity("A", "");
        ctx.schedule_timer(Duration::ZERO).await;
        drop(activity);
        ctx.continue_as_new("next").await
    });
    harness.turn([]);
    let turn = harness.turn([timer_fired(3)]);
    assert_eq!(
        summarize(&turn.history_delta),
        ["4<3 fired", "6 continued next", "7<2 activity-cancelled orchestration_terminal_continued_as_new"]
    );
}

#[test]
fn continue_as_new_does_not_ask_whether_old_drops_are_repeated() {
    let mut harness = Harness::new(|ctx, _| async move {
        drop(ctx.schedule_activity("A", ""));
        ctx.schedule_wait("go").await;
        ctx.continue_as_new("next").await
    });
    harness.turn([]);
    harness.deploy(|ctx, _| async move {
        let _kept = ctx.schedule_activity("A", "");
        ctx.schedule_wait("go").await;
        ctx.continue_as_new("next").await
    });
    let outcome = harness.turn([signal("go", "")]).outcome;
    assert_eq!(outcome, TurnOutcome::ContinuedAsNew { input: "next".into() });
}

#[test]
fn drops_are_recorded_by_kind_and_id_whatever_order_they_happened_in() {
    let mut harness = Harness::new(|ctx, _| async move {
        let read = (ctx.dequeue_event("q"), ctx.dequeue_event("q"));
        let wait = (ctx.schedule_wait("s"), ctx.schedule_wait("s"));
        let child = (ctx.schedule_sub_orchestration("C", ""), ctx.schedule_sub_orchestration("C", ""));
        let activity = (ctx.schedule_activity("A", ""), ctx.schedule_activity("A", ""));
        ctx.schedule_timer(Duration::ZERO).await;
        drop((read.1, wait.1, child.1, activity.1));
        drop((read.0, wait.0, child.0, activity.0));
        Ok(ctx.schedule_wait("end").await)
    });
    harness.turn([]);
    let turn = harness.turn([timer_fired(10)]);
    assert_eq!(
        summarize(&turn.history_delta),
        [
            "11<10 fired",
            "12 wait end",
            "13<8 activity-cancelled dropped_future",
            "14<9 activity-cancelled dropped_future",
            "15<6 child-cancelled dropped_future",
            "16<7 child-cancelled dropped_future",
            "17<4 wait-cancelled dropped_future",
            "18<5 wait-cancelled dropped_future",
            "19<2 dequeue-cancelled dropped_future",
            "20<3 dequeue-cancelled dropped_future"
        ]
    );
    assert_eq!(turn.cancelled_activities, [8, 9]);
    let cancelled: Vec<u64> = turn.cancelled_children.iter().map(|child| child.schedule_id).collect();
    assert_eq!(cancelled, [6, 7], "each names the call that started it");
}

#[test]
fn recorded_drop_is_not_sent_again() {
    let mut harness = Harness::new(|ctx, _| async move {
        drop((ctx.schedule_activity("A", ""), ctx.schedule_sub_orchestration("C", "")));
        Ok(ctx.schedule_wait("end").await)
    });
    harness.turn([]);
    let turn = harness.turn([signal("other", "")]);
    assert_eq!(summarize(&turn.history_delta), ["7 signal other "]);
    assert!(turn.cancelled_activities.is_empty() && sent(&turn).is_empty());
    let turn = harness.turn([signal("end", "x")]);
    assert_eq!(summarize(&turn.history_delta), ["8 signal end x", "9 completed x"]);
    assert!(turn.cancelled_activities.is_empty() && sent(&turn).is_empty());
}

#[test]
fn futures_alive_at_the_end_of_a_turn_are_not_dropped() {
    let mut harness = Harness::new(|ctx, _| async move {
        let _held = (ctx.schedule_activity("A", ""), ctx.schedule_sub_orchestration("C", ""));
        Ok(ctx.schedule_wait("end").await)
    });
    let turn = harness.turn([]);
    assert_eq!(turn.history_delta.len(), 4);
    assert!(turn.cancelled_activities.is_empty());
    drop(harness.replayed());
    assert!(harness.turn([signal("other", "")]).cancelled_activities.is_empty());
}

#[test]
fn locals_of_a_function_that_returns_are_dropped_before_its_output_is_seen() {
    for fails in [false, true] {
        let mut harness = Harness::new(move |ctx, _| async move {
            let _activity = ctx.schedule_activity("A", "");
            let _wait = ctx.schedule_wait("s");
            ctx.schedule_timer(Duration::ZERO).await;
            if fails { Err("no".into()) } else { Ok("yes".into()) }
        });
        harness.turn([]);
        let lines = summarize(&harness.turn([timer_fired(4)]).history_delta);
        assert_eq!(
            lines[1..3],
            ["6<2 activity-cancelled dropped_future", "7<3 wait-cancelled dropped_future"]
        );
    }
}

#[test]
fn output_decides_when_nothing_else_does() {
    let mut harness = Harness::new(|ctx, _| async move { ctx.schedule_activity("A", "").await });
    assert_eq!(harness.turn([]).outcome, TurnOutcome::Continue);
    assert_eq!(
        harness.turn([activity_completed(2, "r")]).outcome,
        TurnOutcome::Completed { output: "r".into() }
    );
    let mut harness = Harness::new(|_, _| async move { Err("why".into()) });
    let details = ErrorDetails::orchestration_failed("why");
    assert_eq!(harness.turn([]).outcome, TurnOutcome::Failed { details });
}

#[test]
fn drop_recorded_after_an_early_return_is_not_recorded_again() {
    let mut harness = Harness::new(|ctx, _| async move {
        let activity = ctx.schedule_activity("A", "");
        let child = ctx.schedule_sub_orchestration("C", "");
        let wait = ctx.schedule_wait("s");
        let read = ctx.dequeue_event("q");
        ctx.schedule_timer(Duration::ZERO).await;
        drop((activity, child, wait, read));
        Ok(ctx.schedule_wait("end").await)
    });
    harness.turn([]);
    assert_eq!(harness.turn([timer_fired(6)]).cancelled_activities, [2]);
    // The new code returns where the old code went on; the drops it causes are the recorded ones.
    harness.deploy(|ctx, _| async move {
        let _held = (
            ctx.schedule_activity("A", ""),
            ctx.schedule_sub_orchestration("C", ""),
            ctx.schedule_wait("s"),
            ctx.dequeue_event("q"),
        );
        ctx.schedule_timer(Duration::ZERO).await;
        Ok("early".into())
    });
    let turn = harness.turn([signal("end", "x")]);
    assert_eq!(turn.outcome, TurnOutcome::Completed { output: "early".into() });
    assert_eq!(
        summarize(&turn.history_delta),
        ["13 signal end x", "14<8 wait-cancelled orchestration_terminal", "15 completed early"]
    );
    assert!(turn.cancelled_activities.is_empty() && sent(&turn).is_empty());
}

#[test]
fn drop_recorded_after_an_early_return_must_still_be_repeated() {
    let mut harness = Harness::new(|ctx, _| async move {
        let activity = ctx.schedule_activity("A", "");
        ctx.schedule_timer(Duration::ZERO).await;
        drop(activity);
        Ok(ctx.schedule_wait("end").await)
    });
    harness.turn([]);
    harness.turn([timer_fired(3)]);
    harness.deploy(|ctx, _| async move {
        std::mem::forget(ctx.schedule_activity("A", ""));
        ctx.schedule_timer(Duration::ZERO).await;
        Ok("early".into())
    });
    let TurnOutcome::Failed { details } = harness.turn([]).outcome else { panic!("it is not deterministic") };
    assert!(details.display_message().contains("cancellation mismatch (activities)"), "{details:?}");
}
