//! Payloads above the provider's limit.

use everturn_core::limits::{MIN_FAILURE_TEXT_BYTES, payload_too_large};
use everturn_core::turn::{Turn, TurnOutcome};
use everturn_core::{AppErrorKind, ErrorDetails, EventKind, OrchestrationContext};

use crate::harness::{Harness, activity_completed, sent, summarize};

const MAX: usize = 10;

fn refusal(what: &str) -> String {
    payload_too_large(what, MAX + 1, MAX)
}

fn fails_like_a_limit(turn: &Turn, what: &str) {
    let refusal = refusal(what);
    let broken = TurnOutcome::Failed { details: ErrorDetails::orchestration_failed(&refusal) };
    assert_eq!(turn.outcome, broken);
    assert_eq!(summarize(&turn.history_delta), ["1 started".to_owned(), format!("2 failed {refusal}")]);
    assert!(sent(turn).is_empty());
}

#[test]
fn text_names_call_size_limit_and_option() {
    assert_eq!(
        refusal("input of activity A"),
        "input of activity A: Payload size (11 bytes) exceeds limit (10 bytes); \
         see the provider option payload_bytes_max"
    );
}

#[test]
fn payload_as_long_as_the_limit_is_fine_everywhere() {
    let mut harness = Harness::new(|ctx, _| async move {
        let equal = "x".repeat(MAX);
        ctx.set_kv_value("k", equal.clone());
        ctx.set_custom_status(equal.clone());
        ctx.schedule_orchestration("D", "d", equal.clone());
        let child = ctx.schedule_sub_orchestration("C", equal.clone());
        let activity = ctx.schedule_activity("A", equal.clone());
        ctx.select2(activity, child).await;
        Ok(equal)
    })
    .payload_max(MAX);
    assert_eq!(harness.turn([]).outcome, TurnOutcome::Continue);
    assert_eq!(
        harness.turn([activity_completed(6, "")]).outcome,
        TurnOutcome::Completed { output: "x".repeat(MAX) }
    );
}

#[test]
fn size_is_counted_in_utf8_bytes() {
    let mut harness = Harness::new(|_, _| async move { Ok("ä".repeat(6)) }).payload_max(MAX);
    let text = payload_too_large("output of the orchestration", 12, 10);
    assert_eq!(
        harness.turn([]).outcome,
        TurnOutcome::Failed { details: ErrorDetails::orchestration_failed(text) }
    );
}

#[test]
fn activity_above_the_limit_fails_in_history_and_is_not_dispatched() {
    let mut harness = Harness::new(|ctx, _| async move {
        let error = ctx.schedule_activity("A", "x".repeat(MAX + 1)).await.unwrap_err();
        assert_eq!(error, refusal("input of activity A"));
        ctx.schedule_activity("B", "small").await
    })
    .payload_max(MAX);
    let turn = harness.turn([]);
    assert_eq!(
        summarize(&turn.history_delta),
        [
            "1 started".to_owned(),
            "2 activity A ".to_owned(),
            format!("3<2 activity-failed {}", refusal("input of activity A")),
            "4 activity B small".to_owned()
        ]
    );
    assert_eq!(
        turn.history_delta[2].kind,
        EventKind::ActivityFailed { details: ErrorDetails::activity_failed(refusal("input of activity A")) }
    );
    assert_eq!(sent(&turn), ["run 4 B small"]);
    assert_eq!(
        harness.turn([activity_completed(4, "ok")]).outcome,
        TurnOutcome::Completed { output: "ok".into() }
    );
}

#[test]
fn child_above_the_limit_fails_in_history_and_is_not_started() {
    let mut harness = Harness::new(|ctx, _| async move {
        let error = ctx.schedule_sub_orchestration("C", "x".repeat(MAX + 1)).await.unwrap_err();
        assert_eq!(error, refusal("input of child orchestration C"));
        ctx.schedule_activity("B", "small").await
    })
    .payload_max(MAX);
    let turn = harness.turn([]);
    assert_eq!(
        turn.history_delta[2].kind,
        EventKind::SubOrchestrationFailed {
            details: ErrorDetails::orchestration_failed(refusal("input of child orchestration C"))
        }
    );
    assert_eq!(summarize(&turn.history_delta)[1], "2 child C sub::2 ");
    assert_eq!(sent(&turn), ["run 4 B small"]);
    assert_eq!(
        harness.turn([activity_completed(4, "ok")]).outcome,
        TurnOutcome::Completed { output: "ok".into() }
    );
}

#[test]
fn refused_call_comes_directly_before_its_failure_even_among_others() {
    let mut harness = Harness::new(|ctx, _| async move {
        let calls = ["a".to_owned(), "x".repeat(MAX + 1), "b".to_owned()];
        let calls = calls.into_iter().map(|input| ctx.schedule_activity("A", input)).collect();
        let results = ctx.join(calls).await;
        Ok(results.iter().filter(|result| result.is_ok()).count().to_string())
    })
    .payload_max(MAX);
    let turn = harness.turn([]);
    assert_eq!(
        summarize(&turn.history_delta)[1..],
        [
            "2 activity A a".to_owned(),
            "3 activity A ".to_owned(),
            format!("4<3 activity-failed {}", refusal("input of activity A")),
            "5 activity A b".to_owned()
        ]
    );
    let outcome = harness.turn([activity_completed(2, ""), activity_completed(5, "")]).outcome;
    assert_eq!(outcome, TurnOutcome::Completed { output: "2".into() });
}

#[test]
fn replay_of_a_refused_call_never_asks_for_the_limit() {
    let mut harness = Harness::new(|ctx, _| async move {
        let refused = ctx.schedule_activity("A", "x".repeat(MAX + 1)).await;
        ctx.schedule_activity("B", format!("{}", refused.is_err())).await
    })
    .payload_max(MAX);
    harness.turn([]);
    harness.change_payload_max(1000);
    assert_eq!(
        harness.turn([activity_completed(4, "ok")]).outcome,
        TurnOutcome::Completed { output: "ok".into() }
    );
}

#[test]
fn replay_does_not_refuse_what_was_accepted_under_a_larger_limit() {
    let mut harness = Harness::new(|ctx, _| async move {
        ctx.set_kv_value("k", "x".repeat(MAX + 1));
        ctx.schedule_activity("A", "x".repeat(MAX + 1)).await
    });
    harness.turn([]);
    harness.change_payload_max(MAX);
    assert_eq!(
        harness.turn([activity_completed(3, "ok")]).outcome,
        TurnOutcome::Completed { output: "ok".into() }
    );
}

#[test]
fn refused_call_is_still_compared_by_name() {
    let code = |name: &'static str| {
        move |ctx: OrchestrationContext, _| async move {
            ctx.schedule_activity(name, "x".repeat(MAX + 1)).await.unwrap_err();
            Ok(ctx.schedule_wait("w").await)
        }
    };
    let mut harness = Harness::new(code("A")).payload_max(MAX);
    harness.turn([]);
    harness.deploy(code("B"));
    let TurnOutcome::Failed { details } = harness.turn([]).outcome else { panic!() };
    assert_eq!(details.category(), "configuration");
}

#[test]
fn calls_without_a_result_fail_the_instance() {
    type Call = fn(&OrchestrationContext);
    let calls: [(Call, &str); 3] = [
        (
            |ctx| ctx.schedule_orchestration("D", "d", "x".repeat(MAX + 1)),
            "input of detached orchestration D",
        ),
        (|ctx| ctx.set_kv_value("k", "x".repeat(MAX + 1)), "value of key k"),
        (|ctx| ctx.set_custom_status("x".repeat(MAX + 1)), "custom status"),
    ];
    for (call, what) in calls {
        let mut harness = Harness::new(move |ctx, _| async move {
            call(&ctx);
            Ok(ctx.schedule_wait("w").await)
        })
        .payload_max(MAX);
        fails_like_a_limit(&harness.turn([]), what);
    }
}

#[test]
fn continue_as_new_input_output_and_error_text_fail_the_instance() {
    let mut harness =
        Harness::new(|ctx, _| async move { ctx.continue_as_new("x".repeat(MAX + 1)).await }).payload_max(MAX);
    fails_like_a_limit(&harness.turn([]), "input of continue_as_new");
    let mut harness = Harness::new(|_, _| async move { Ok("x".repeat(MAX + 1)) }).payload_max(MAX);
    fails_like_a_limit(&harness.turn([]), "output of the orchestration");
    let mut harness = Harness::new(|_, _| async move { Err("x".repeat(MAX + 1)) }).payload_max(MAX);
    fails_like_a_limit(&harness.turn([]), "error of the orchestration");
}

#[test]
fn text_of_a_panic_above_the_limit_is_cut() {
    let mut harness = Harness::new(|_, _| async move { panic!("{}", "é".repeat(1_500)) }).payload_max(2_000);
    let TurnOutcome::Failed { details } = harness.turn([]).outcome else { panic!() };
    let ErrorDetails::Application { kind: AppErrorKind::Panicked, message, .. } = details else { panic!() };
    assert!(message.len() <= 2_000 && message.len() > 1_990, "{}", message.len());
    assert!(message.starts_with('é') && message.ends_with("é … (cut, 3000 bytes in all)"), "{message}");
}

#[test]
fn text_of_a_mismatch_above_the_limit_is_cut() {
    let code = |input: &'static str| {
        move |ctx: OrchestrationContext, _| async move { ctx.schedule_activity("A", input.repeat(1_000)).await }
    };
    let mut harness = Harness::new(code("x")).payload_max(1_000);
    harness.turn([]);
    harness.deploy(code("y"));
    let TurnOutcome::Failed { details } = harness.turn([]).outcome else { panic!() };
    let ErrorDetails::Configuration { message: Some(message), .. } = details else { panic!() };
    assert!(message.starts_with("schedule mismatch: ") && message.ends_with(" bytes in all)"), "{message}");
    assert_eq!(message.len(), MIN_FAILURE_TEXT_BYTES, "a failure may always say so much");
}
