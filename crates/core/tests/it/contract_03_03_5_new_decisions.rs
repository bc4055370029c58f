//! Contract 03 §3.5: what the code asks for becomes events, one by one.

use everturn_core::ErrorDetails;
use everturn_core::turn::TurnOutcome;

use crate::stage::{Stage, done, outcome_of, queued, told};

#[test]
fn all_messages_are_recorded_before_any_decision() {
    let mut stage = Stage::new(|ctx, _| async move {
        let one = async { ctx.schedule_activity("A", "").await.map(|_| ctx.schedule_activity("A2", "")) };
        let two = async { ctx.schedule_activity("B", "").await.map(|_| ctx.schedule_activity("B2", "")) };
        let (one, two) = ctx.join2(one, two).await;
        let (one, _two) = ctx.join2(one?, two?).await;
        one
    });
    stage.turn([]);
    assert_eq!(
        told(&stage.turn([done(3, ""), done(2, "")]).history_delta),
        ["4<3 done ", "5<2 done ", "6 activity B2 ", "7 activity A2 "]
    );
}

#[test]
fn poll_owed_between_two_decisions_is_made_between_them() {
    let mut stage = Stage::new(|ctx, _| async move {
        let (a, b) = (ctx.dequeue_event("q1"), ctx.dequeue_event("q2"));
        // When `a` is bound and polled, `b` is not bound yet: `a` wins though it stands second.
        let race = ctx.select2(b, a).await;
        ctx.schedule_activity("After", format!("{race:?}")).await
    });
    let turn = stage.turn([queued("q1", "one"), queued("q2", "two")]);
    assert_eq!(
        told(&turn.history_delta),
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
    assert_eq!(stage.turn([done(6, "ok")]).outcome, TurnOutcome::Completed { output: "ok".into() });
}

#[test]
fn what_a_poll_asks_for_joins_the_end_of_the_line() {
    let mut stage = Stage::new(|ctx, _| async move {
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
        told(&stage.turn([queued("q", "m")]).history_delta)[2..],
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
    let mut stage = Stage::new(|ctx, _| async move {
        loop {
            ctx.reset_custom_status();
        }
    });
    let turn = stage.turn([]);
    assert_eq!(turn.outcome, turn_limit());
    assert_eq!(turn.history_delta.len(), 2);
}

#[test]
fn a_destructor_that_speaks_while_the_limit_unwinds_harms_nobody() {
    struct Farewell(everturn_core::OrchestrationContext);
    impl Drop for Farewell {
        fn drop(&mut self) {
            self.0.set_custom_status("left");
        }
    }
    let mut stage = Stage::new(|ctx, _| async move {
        let _farewell = Farewell(ctx.clone());
        loop {
            ctx.reset_custom_status();
        }
    });
    assert_eq!(stage.turn([]).outcome, turn_limit());
}

#[test]
fn decisions_of_several_polls_are_counted_together() {
    let outcome = {
        let mut stage = Stage::new(|ctx, _| async move {
            while ctx.dequeue_event("q").await != "end" {
                for _ in 0..30_000 {
                    ctx.reset_custom_status();
                }
            }
            Ok(String::new())
        });
        stage
            .turn([queued("q", ""), queued("q", ""), queued("q", ""), queued("q", ""), queued("q", "end")])
            .outcome
    };
    assert_eq!(outcome, turn_limit());
}

#[test]
fn limit_counts_one_turn_at_a_time() {
    let mut stage = Stage::new(|ctx, _| async move {
        for _ in 0..3 {
            for _ in 0..40_000 {
                ctx.reset_custom_status();
            }
            ctx.dequeue_event("q").await;
        }
        Ok("done".into())
    });
    assert_eq!(stage.turn([]).outcome, TurnOutcome::Continue);
    assert_eq!(stage.turn([queued("q", "")]).outcome, TurnOutcome::Continue);
    assert_eq!(stage.turn([queued("q", "")]).outcome, TurnOutcome::Continue);
    assert_eq!(stage.turn([queued("q", "")]).outcome, TurnOutcome::Completed { output: "done".into() });
}
