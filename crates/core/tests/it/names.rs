//! Names and ids that cannot be meant, used by an orchestration.

use everturn_core::turn::TurnOutcome;
use everturn_core::{AppErrorKind, ErrorDetails, OrchestrationContext, check_instance_id};

use crate::harness::{Harness, outcome_of, sent, summarize};

/// The text of the panic that a call causes.
fn panic_of(call: impl Fn(&OrchestrationContext) + Send + Sync + Clone + 'static) -> String {
    let outcome = outcome_of(move |ctx, _| {
        let call = call.clone();
        async move {
            call(&ctx);
            Ok(ctx.schedule_wait("end").await)
        }
    });
    match outcome {
        TurnOutcome::Failed {
            details: ErrorDetails::Application { kind: AppErrorKind::Panicked, message, .. },
        } => message,
        other => panic!("the call was accepted: {other:?}"),
    }
}

#[test]
fn a_call_with_an_impossible_name_fails_the_instance() {
    let empty = "is empty: use at least one character";
    assert_eq!(panic_of(|ctx| drop(ctx.schedule_activity("", ""))), format!("activity name {empty}"));
    assert_eq!(
        panic_of(|ctx| drop(ctx.schedule_activity_typed::<_, u8>("a\nb", &1))),
        "activity name \"a\\nb\" contains the control character U+000A: remove or replace it"
    );
    assert_eq!(
        panic_of(|ctx| drop(ctx.schedule_sub_orchestration("", ""))),
        format!("orchestration name {empty}")
    );
    assert_eq!(
        panic_of(|ctx| ctx.schedule_orchestration("", "d", "")),
        format!("orchestration name {empty}")
    );
    assert_eq!(panic_of(|ctx| ctx.schedule_orchestration("D", "", "")), format!("instance id {empty}"));
    assert_eq!(panic_of(|ctx| drop(ctx.schedule_wait(""))), format!("signal name {empty}"));
    assert_eq!(
        panic_of(|ctx| drop(ctx.dequeue_event("x".repeat(1_025)))),
        "queue name has 1025 bytes, the limit is 1024: use a shorter one and put the rest into the payload"
    );
}

#[test]
fn an_impossible_child_id_is_an_error_of_the_call() {
    let mut harness = Harness::new(|ctx, _| async move {
        let mut errors = Vec::new();
        for id in ["", "a\u{7f}", &"x".repeat(1_025)] {
            errors.push(ctx.schedule_sub_orchestration_with_id("C", id, "").await.unwrap_err());
        }
        Ok(errors.join("\n"))
    });
    let turn = harness.turn([]);
    let expected = [
        "child instance id is empty: use at least one character",
        "child instance id \"a\\u{7f}\" contains the control character U+007F: remove or replace it",
        "child instance id has 1025 bytes, the limit is 1024: use a shorter one and put the rest into the payload",
    ];
    assert_eq!(turn.outcome, TurnOutcome::Completed { output: expected.join("\n") });
    assert!(sent(&turn).is_empty());
}

#[test]
fn the_longest_names_are_accepted() {
    let mut harness = Harness::new(|ctx, _| async move {
        let longest = "x".repeat(1_024);
        ctx.schedule_orchestration(longest.clone(), longest.clone(), "");
        let activity = ctx.schedule_activity(longest.clone(), "");
        let child = ctx.schedule_sub_orchestration_with_id(longest.clone(), longest.clone(), "");
        let message = ctx.dequeue_event(longest.clone());
        let signal = ctx.schedule_wait(longest).await;
        drop((activity, child, message));
        Ok(signal)
    });
    let turn = harness.turn([]);
    assert_eq!(turn.outcome, TurnOutcome::Continue);
    assert_eq!(summarize(&turn.history_delta).len(), 6);
}

#[test]
fn only_suffixes_that_the_engine_makes_come_on_top_of_the_limit() {
    let longest = "i".repeat(1_024);
    for accepted in ["::sub::2", "::sub::2::sub::1_3"] {
        assert_eq!(check_instance_id(&format!("{longest}{accepted}")), Ok(()), "{accepted}");
    }
    for refused in ["::sub::", "::sub::x", "::sub::2x"] {
        let error = check_instance_id(&format!("{longest}{refused}")).unwrap_err();
        assert!(error.contains("1024"), "{refused}: {error}");
    }
}
