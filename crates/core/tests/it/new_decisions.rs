//! What the code asks for becomes events, one by one.

use everturn_core::ErrorDetails;
use everturn_core::turn::TurnOutcome;

use crate::harness::{Harness, activity_completed, outcome_of, queue_message, summarize};

#[test]
fn all_messages_are_recorded_before_any_decision() {
    let mut harness = Harness::new(|ctx, _| async move {
        let one = async { ctx.schedule_activity("A", "").await.map(|_| ctx.schedule_activity("A2", "")) };
        let two = async { ctx.schedule_activity("B", "").await.map(|_| ctx.schedule_activity("B2", "")) };
        let (one, two) = ctx.join2(one, two).await;
        let (one, _two) = ctx.join2(one?, two?).await;
        one
    });
    harness.turn([]);
    assert_eq!(
        summarize(&harness.turn([activity_completed(3, ""), activity_completed(2, "")]).history_delta),
        ["4<3 activity-completed ", "5<2 activity-completed ", "6 activity B2 ", "7 activity A2 "]
    );
}

#[test]
fn poll_owed_between_two_decisions_is_made_between_them() {
    let mut harness = Harness::new(|ctx, _| async move {
        let (a, b) = (ctx.dequeue_event("q1"), ctx.dequeue_event("q2"));
        // When `a` is bound and polled, `b` is not bound yet: `a` wins although it is the second argument.
        let race = ctx.select2(b, a).await;
        ctx.schedule_activity("After", format!("{race:?}")).await
    });
    let turn = harness.turn([queue_message("q1", "one"), queue_message("q2", "two")]);
    assert_eq!(
        summarize(&turn.history_delta),
        [
            "1 started",
            "2 queued q1 one",
            "3 queued q2 two",
            "4 dequeue q1",
            "5 dequeue q2",
            "6 activity After Second(\"one\")",
            "7<5 dequeue-cancelled dropped_future"
        ]
    );
    assert_eq!(
        harness.turn([activity_completed(6, "ok")]).outcome,
        TurnOutcome::Completed { output: "ok".into() }
    );
}

#[test]
fn actions_of_a_poll_are_decided_after_those_emitted_earlier() {
    let mut harness = Harness::new(|ctx, _| async move {
        let read = async {
            ctx.dequeue_event("q").await;
            ctx.set_kv_value("read", "");
        };
        let rest = async {
            ctx.set_kv_value("first", "");
            ctx.set_kv_value("second", "");
        };
        ctx.join2(read, rest).await;
        Ok(ctx.schedule_wait("end").await)
    });
    assert_eq!(
        summarize(&harness.turn([queue_message("q", "m")]).history_delta)[2..],
        ["3 dequeue q", "4 set first=", "5 set second=", "6 set read=", "7 wait end"]
    );
}

#[test]
fn turn_may_take_a_hundred_thousand_decisions() {
    let outcome = outcome_of(|ctx, _| async move {
        for _ in 0..100_000 {
            ctx.reset_custom_status();
        }
        Ok("enough".into())
    });
    assert_eq!(outcome, TurnOutcome::Completed { output: "enough".into() });
}

fn turn_limit() -> TurnOutcome {
    TurnOutcome::Failed {
        details: ErrorDetails::Infrastructure {
            operation: "turn_limit".into(),
            message: "turn exceeded 100000 decisions".into(),
            retryable: false,
        },
    }
}

#[test]
fn one_decision_more_fails_the_instance() {
    let outcome = outcome_of(|ctx, _| async move {
        for _ in 0..100_001 {
            ctx.reset_custom_status();
        }
        Ok("too much".into())
    });
    assert_eq!(outcome, turn_limit());
}

#[test]
fn loop_that_never_waits_ends_at_the_limit() {
    let mut harness = Harness::new(|ctx, _| async move {
        loop {
            ctx.reset_custom_status();
        }
    });
    let turn = harness.turn([]);
    assert_eq!(turn.outcome, turn_limit());
    assert_eq!(turn.history_delta.len(), 2);
}

#[test]
fn destructor_that_calls_the_context_while_the_limit_unwinds_has_no_effect() {
    struct CallsOnDrop(everturn_core::OrchestrationContext);
    impl Drop for CallsOnDrop {
        fn drop(&mut self) {
            self.0.set_custom_status("left");
        }
    }
    let mut harness = Harness::new(|ctx, _| async move {
        let _farewell = CallsOnDrop(ctx.clone());
        loop {
            ctx.reset_custom_status();
        }
    });
    assert_eq!(harness.turn([]).outcome, turn_limit());
}

#[test]
fn decisions_of_several_polls_are_counted_together() {
    let outcome = {
        let mut harness = Harness::new(|ctx, _| async move {
            while ctx.dequeue_event("q").await != "end" {
                for _ in 0..30_000 {
                    ctx.reset_custom_status();
                }
            }
            Ok(String::new())
        });
        harness
            .turn([
                queue_message("q", ""),
                queue_message("q", ""),
                queue_message("q", ""),
                queue_message("q", ""),
                queue_message("q", "end"),
            ])
            .outcome
    };
    assert_eq!(outcome, turn_limit());
}

#[test]
fn limit_counts_one_turn_at_a_time() {
    let mut harness = Harness::new(|ctx, _| async move {
        for _ in 0..3 {
            for _ in 0..40_000 {
                ctx.reset_custom_status();
            }
            ctx.dequeue_event("q").await;
        }
        Ok("done".into())
    });
    assert_eq!(harness.turn([]).outcome, TurnOutcome::Continue);
    assert_eq!(harness.turn([queue_message("q", "")]).outcome, TurnOutcome::Continue);
    assert_eq!(harness.turn([queue_message("q", "")]).outcome, TurnOutcome::Continue);
    assert_eq!(
        harness.turn([queue_message("q", "")]).outcome,
        TurnOutcome::Completed { output: "done".into() }
    );
}
