//! Panics and failures that end a turn early.

use everturn_core::turn::{TurnOutcome, panic_text};
use everturn_core::{AppErrorKind, ErrorDetails, OrchestrationContext};

use crate::harness::{
    Harness, activity_completed, activity_failed_with, child_failed, infrastructure, outcome_of,
    queue_message, sent, signal, summarize,
};

fn panicked(message: &str) -> TurnOutcome {
    let details = ErrorDetails::Application {
        kind: AppErrorKind::Panicked,
        message: message.to_owned(),
        retryable: false,
    };
    TurnOutcome::Failed { details }
}

#[test]
fn panic_text_becomes_the_failure() {
    assert_eq!(outcome_of(|_, _| async move { panic!("literal") }), panicked("literal"));
    assert_eq!(outcome_of(|_, input| async move { panic!("made of {input}") }), panicked("made of in"));
}

#[test]
fn panic_with_another_payload_has_a_text_of_its_own() {
    assert_eq!(
        outcome_of(|_, _| async move { std::panic::panic_any(42) }),
        panicked("orchestration panicked")
    );
    assert_eq!(panic_text(&42), None);
}

#[test]
fn panic_may_carry_what_uses_the_context_when_it_is_dropped() {
    struct PanicsOnDrop;
    impl Drop for PanicsOnDrop {
        fn drop(&mut self) {
            std::panic::panic_any(Self);
        }
    }
    let own_text = panicked("orchestration panicked");
    let with_future = |ctx: OrchestrationContext, _| async move {
        std::panic::panic_any(ctx.schedule_activity("A", ""));
    };
    assert_eq!(outcome_of(with_future), own_text);
    assert_eq!(outcome_of(|_, _| async move { std::panic::panic_any(PanicsOnDrop) }), own_text);
}

#[test]
fn panic_reads_so_in_display_form() {
    let TurnOutcome::Failed { details } = outcome_of(|_, _| async move { panic!("why") }) else { panic!() };
    assert_eq!(details.display_message(), "orchestration panicked: why");
}

#[test]
fn panic_while_locals_are_dropped_fails_the_instance() {
    struct PanicsOnDrop;
    impl Drop for PanicsOnDrop {
        fn drop(&mut self) {
            panic!("while dropping");
        }
    }
    let outcome = outcome_of(|_, _| async move {
        let _fragile = PanicsOnDrop;
        Ok(String::new())
    });
    assert_eq!(outcome, panicked("while dropping"));
}

#[test]
fn panic_keeps_the_messages_discards_the_decisions_and_cancels_the_children() {
    let mut harness = Harness::new(|ctx, _| async move {
        let _child = ctx.schedule_sub_orchestration("C", "");
        let dropped = ctx.schedule_activity("A", "");
        let _wait = ctx.schedule_wait("s");
        ctx.dequeue_event("go").await;
        drop(dropped);
        ctx.set_kv_value("k", "v");
        ctx.schedule_orchestration("D", "d", "");
        let _late = ctx.schedule_sub_orchestration("Late", "");
        panic!("now");
    });
    harness.turn([]);
    let turn = harness.turn([signal("other", ""), queue_message("go", "")]);
    assert_eq!(turn.outcome, panicked("now"));
    assert_eq!(
        summarize(&turn.history_delta),
        [
            "6 signal other ",
            "7 queued go ",
            "8<4 wait-cancelled orchestration_terminal",
            "9 failed orchestration panicked: now",
            "10<3 activity-cancelled orchestration_terminal_failed"
        ]
    );
    assert_eq!(sent(&turn), ["cancel order::sub::2: parent failed"]);
    assert_eq!(turn.cancelled_activities, [3]);
}

#[test]
fn panic_in_the_first_turn_records_start_and_failure() {
    let mut harness = Harness::new(|ctx, _| async move {
        drop(ctx.schedule_activity("A", ""));
        panic!("early")
    });
    let turn = harness.turn([]);
    assert_eq!(summarize(&turn.history_delta), ["1 started", "2 failed orchestration panicked: early"]);
    assert!(sent(&turn).is_empty());
}

#[test]
fn nondeterminism_keeps_the_messages_discards_the_decisions_and_cancels_the_children() {
    let mut harness = Harness::new(|ctx, _| async move {
        let _child = ctx.schedule_sub_orchestration("C", "");
        ctx.schedule_activity("A", "").await
    });
    harness.turn([]);
    harness.deploy(|ctx, _| async move {
        let _child = ctx.schedule_sub_orchestration("C", "");
        ctx.schedule_activity("B", "").await
    });
    let turn = harness.turn([activity_completed(3, "r"), queue_message("q", "m")]);
    let lines = summarize(&turn.history_delta);
    assert_eq!(lines[..2], ["4<3 activity-completed r", "5 queued q m"]);
    assert!(lines[2].starts_with("6 failed nondeterministic: schedule mismatch"), "{lines:?}");
    assert_eq!(lines.len(), 3);
    assert_eq!(sent(&turn), ["cancel order::sub::2: parent failed"]);
}

#[test]
fn code_never_sees_failures_that_are_not_the_applications() {
    let caught = |message| {
        let mut harness = Harness::new(|ctx, _| async move {
            let (a, c) =
                ctx.join2(ctx.schedule_activity("A", ""), ctx.schedule_sub_orchestration("C", "")).await;
            Ok(format!("swallowed {a:?} {c:?}"))
        });
        harness.turn([]);
        harness.turn([message]).outcome
    };
    let failed = TurnOutcome::Failed { details: infrastructure("x") };
    assert_eq!(caught(activity_failed_with(2, infrastructure("x"))), failed);
    assert_eq!(caught(child_failed(3, infrastructure("x"))), failed);
}

#[test]
fn cancelled_child_arrives_as_an_error_text() {
    let mut harness = Harness::new(|ctx, _| async move { ctx.schedule_sub_orchestration("C", "").await });
    harness.turn([]);
    let turn = harness.turn([child_failed(2, ErrorDetails::cancelled("bored"))]);
    let details = ErrorDetails::orchestration_failed("canceled: bored");
    assert_eq!(turn.outcome, TurnOutcome::Failed { details });
}
