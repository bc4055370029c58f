//! The custom status of an instance.

use everturn_core::turn::TurnOutcome;
use everturn_core::{EventKind, WorkItem};

use crate::harness::{Harness, activity_completed, summarize};

#[test]
fn every_call_is_recorded_and_the_code_sees_the_last() {
    let mut harness = Harness::new(|ctx, _| async move {
        ctx.set_custom_status("a");
        ctx.set_custom_status("b");
        let seen = ctx.get_custom_status();
        ctx.reset_custom_status();
        Ok(format!("{seen:?} {:?}", ctx.get_custom_status()))
    });
    let turn = harness.turn([]);
    assert_eq!(turn.outcome, TurnOutcome::Completed { output: "Some(\"b\") None".into() });
    assert_eq!(
        summarize(&turn.history_delta)[1..4],
        ["2 status Some(\"a\")", "3 status Some(\"b\")", "4 status None"]
    );
}

#[test]
fn status_is_none_until_it_is_set() {
    let mut harness = Harness::new(|ctx, _| async move { Ok(format!("{:?}", ctx.get_custom_status())) });
    assert_eq!(harness.turn([]).outcome, TurnOutcome::Completed { output: "None".into() });
}

#[test]
fn status_is_the_same_after_replay() {
    let mut harness = Harness::new(|ctx, _| async move {
        ctx.set_custom_status("working");
        ctx.schedule_activity("A", "").await?;
        Ok(format!("{:?}", ctx.get_custom_status()))
    });
    harness.turn([]);
    let outcome = harness.turn([activity_completed(2 + 1, "")]).outcome;
    assert_eq!(outcome, TurnOutcome::Completed { output: "Some(\"working\")".into() });
}

#[test]
fn carried_status_is_there_from_the_start() {
    let mut harness = Harness::new(|ctx, _| async move { Ok(ctx.get_custom_status().unwrap_or_default()) })
        .start_event(|kind| {
            if let EventKind::OrchestrationStarted { initial_custom_status, .. } = kind {
                *initial_custom_status = Some("carried".into());
            }
        });
    assert_eq!(harness.turn([]).outcome, TurnOutcome::Completed { output: "carried".into() });
}

#[test]
fn status_goes_with_the_successor() {
    let successor = |set: bool| {
        let mut harness = Harness::new(move |ctx, _| async move {
            if set {
                ctx.set_custom_status("mine");
            } else {
                ctx.reset_custom_status();
            }
            ctx.continue_as_new("").await
        })
        .start_event(|kind| {
            if let EventKind::OrchestrationStarted { initial_custom_status, .. } = kind {
                *initial_custom_status = Some("inherited".into());
            }
        });
        match harness.turn([]).orchestrator_items.remove(0) {
            WorkItem::ContinueAsNew { initial_custom_status, .. } => initial_custom_status,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(successor(true), Some("mine".to_owned()));
    assert_eq!(successor(false), None);
}

#[test]
fn changed_text_is_tolerated_on_replay() {
    let mut harness = Harness::new(|ctx, _| async move {
        ctx.set_custom_status("old");
        ctx.schedule_activity("A", "").await
    });
    harness.turn([]);
    harness.deploy(|ctx, _| async move {
        ctx.reset_custom_status();
        ctx.schedule_activity("A", "").await
    });
    assert_eq!(
        harness.turn([activity_completed(3, "ok")]).outcome,
        TurnOutcome::Completed { output: "ok".into() }
    );
}
