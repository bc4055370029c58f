//! `join` and `select` over several futures.

use std::time::Duration;

use everturn_core::turn::TurnOutcome;
use everturn_core::{Either2, Either3};

use crate::harness::{Harness, activity_completed, outcome_of, summarize, timer_fired};

fn completed(output: &str) -> TurnOutcome {
    TurnOutcome::Completed { output: output.to_owned() }
}

#[test]
fn either_names_the_winner() {
    let (first, second): (Either2<u8, &str>, Either2<u8, &str>) = (Either2::First(1), Either2::Second("b"));
    assert!(first.is_first() && !first.is_second() && first.index() == 0);
    assert!(second.is_second() && !second.is_first() && second.index() == 1);
    assert_eq!(Either2::<u8, u8>::Second(5).into_tuple(), (1, 5));
    assert_eq!(Either2::<u8, u8>::First(4).into_tuple(), (0, 4));
    let thirds: [Either3<u8, u8, u8>; 3] = [Either3::First(7), Either3::Second(8), Either3::Third(9)];
    assert_eq!(thirds.each_ref().map(Either3::index), [0, 1, 2]);
    assert_eq!(thirds.map(Either3::into_tuple), [(0, 7), (1, 8), (2, 9)]);
}

#[test]
fn debug_text_of_either_is_stable() {
    assert_eq!(format!("{:?}", Either2::<u8, &str>::Second("b")), "Second(\"b\")");
    assert_eq!(
        format!("{:?}", Either3::<u8, u8, Result<String, ()>>::Third(Ok("x".into()))),
        "Third(Ok(\"x\"))"
    );
}

#[test]
fn join_returns_results_in_input_order() {
    let mut harness = Harness::new(|ctx, _| async move {
        let calls = (0..3).map(|n| ctx.schedule_activity("A", n.to_string())).collect();
        let results: Result<Vec<String>, String> = ctx.join(calls).await.into_iter().collect();
        Ok(results?.join(","))
    });
    harness.turn([]);
    assert_eq!(
        harness.turn([activity_completed(4, "c"), activity_completed(2, "a")]).outcome,
        TurnOutcome::Continue
    );
    assert_eq!(harness.turn([activity_completed(3, "b")]).outcome, completed("a,b,c"));
}

#[test]
fn join_of_nothing_is_ready_at_once() {
    let outcome = outcome_of(|ctx, _| async move {
        let nothing: Vec<everturn_core::DurableFuture<()>> = Vec::new();
        Ok(ctx.join(nothing).await.len().to_string())
    });
    assert_eq!(outcome, completed("0"));
}

#[test]
fn join_polls_every_pending_child_on_every_poll() {
    let mut harness = Harness::new(|ctx, _| async move {
        let chain = |name: &'static str| {
            let ctx = ctx.clone();
            async move {
                ctx.schedule_activity(name, "1").await?;
                ctx.schedule_activity(name, "2").await
            }
        };
        let results: Result<Vec<String>, String> =
            ctx.join(vec![chain("A"), chain("B")]).await.into_iter().collect();
        Ok(results?.join(","))
    });
    assert_eq!(summarize(&harness.turn([]).history_delta)[1..], ["2 activity A 1", "3 activity B 1"]);
    assert_eq!(summarize(&harness.turn([activity_completed(3, "")]).history_delta)[1..], ["5 activity B 2"]);
    assert_eq!(summarize(&harness.turn([activity_completed(2, "")]).history_delta)[1..], ["7 activity A 2"]);
    assert_eq!(
        harness.turn([activity_completed(5, "b"), activity_completed(7, "a")]).outcome,
        completed("a,b")
    );
}

#[test]
fn two_thousand_children_can_be_joined() {
    let mut harness = Harness::new(|ctx, _| async move {
        let calls = (0..2000).map(|n| ctx.schedule_activity("A", n.to_string())).collect();
        Ok(ctx.join(calls).await.len().to_string())
    });
    let turn = harness.turn([]);
    assert_eq!(turn.worker_items.len(), 2000);
    let results = (2..2002).rev().map(|id| activity_completed(id, "r")).collect();
    assert_eq!(harness.turn_with(results).outcome, completed("2000"));
}

#[test]
fn join2_and_join3_wait_for_all_and_keep_the_order() {
    let mut harness = Harness::new(|ctx, _| async move {
        let pair = ctx.join2(ctx.schedule_activity("A", ""), ctx.schedule_timer(Duration::ZERO));
        let (first, ()) = pair.await;
        let (a, b, c) = ctx
            .join3(
                ctx.schedule_activity("B", ""),
                async { 2 },
                ctx.schedule_activity("C", "").map(|c| c.map(|c| c.len())),
            )
            .await;
        Ok(format!("{} {} {b} {}", first?, a?, c?))
    });
    harness.turn([]);
    assert_eq!(harness.turn([timer_fired(3)]).outcome, TurnOutcome::Continue);
    assert_eq!(
        summarize(&harness.turn([activity_completed(2, "x")]).history_delta)[1..],
        ["6 activity B ", "7 activity C "]
    );
    assert_eq!(
        harness.turn([activity_completed(7, "ccc"), activity_completed(6, "y")]).outcome,
        completed("x y 2 3")
    );
}

#[test]
fn select_prefers_the_earlier_argument_when_both_are_ready() {
    let outcome =
        outcome_of(|ctx, _| async move { Ok(format!("{:?}", ctx.select2(async { 1 }, async { 2 }).await)) });
    assert_eq!(outcome, completed("First(1)"));
    let outcome = outcome_of(|ctx, _| async move {
        let third = ctx.select3(std::future::pending::<()>(), async { 2 }, async { 3 }).await;
        Ok(format!("{third:?}"))
    });
    assert_eq!(outcome, completed("Second(2)"));
}

#[test]
fn winner_is_decided_by_history_order_not_by_argument_order() {
    let code = |ctx: everturn_core::OrchestrationContext, _| async move {
        let race = ctx.select2(ctx.schedule_activity("A", ""), ctx.schedule_activity("B", "")).await;
        Ok(format!("{race:?}"))
    };
    let mut harness = Harness::new(code);
    harness.turn([]);
    assert_eq!(
        harness.turn([activity_completed(3, "b"), activity_completed(2, "a")]).outcome,
        completed("Second(Ok(\"b\"))")
    );
    let mut harness = Harness::new(code);
    harness.turn([]);
    assert_eq!(
        harness.turn([activity_completed(2, "a"), activity_completed(3, "b")]).outcome,
        completed("First(Ok(\"a\"))")
    );
}

#[test]
fn third_of_three_can_win() {
    let mut harness = Harness::new(|ctx, _| async move {
        let race = ctx
            .select3(ctx.schedule_wait("a"), ctx.schedule_wait("b"), ctx.schedule_timer(Duration::ZERO))
            .await;
        Ok(format!("{race:?}"))
    });
    harness.turn([]);
    assert_eq!(harness.turn([timer_fired(4)]).outcome, completed("Third(())"));
}

#[test]
fn losers_are_dropped_before_the_next_statement() {
    let mut harness = Harness::new(|ctx, _| async move {
        ctx.select2(ctx.schedule_activity("Slow", ""), ctx.schedule_timer(Duration::ZERO)).await;
        // If the loser were still alive, it would still take the signal.
        ctx.schedule_activity("Next", "").await
    });
    harness.turn([]);
    let turn = harness.turn([timer_fired(3)]);
    assert_eq!(
        summarize(&turn.history_delta),
        ["4<3 fired", "5 activity Next ", "6<2 activity-cancelled dropped_future"]
    );
}

#[test]
fn loser_passed_by_reference_survives_the_race() {
    let mut harness = Harness::new(|ctx, _| async move {
        let mut slow = ctx.schedule_activity("Slow", "");
        let mut rounds = 0;
        loop {
            match ctx.select2(&mut slow, ctx.schedule_timer(Duration::ZERO)).await {
                Either2::First(result) => return Ok(format!("{} after {rounds}", result?)),
                Either2::Second(()) => rounds += 1,
            }
        }
    });
    harness.turn([]);
    assert!(harness.turn([timer_fired(3)]).cancelled_activities.is_empty());
    assert!(harness.turn([timer_fired(5)]).cancelled_activities.is_empty());
    assert_eq!(harness.turn([activity_completed(2, "r")]).outcome, completed("r after 2"));
}

#[test]
fn combinators_nest_and_take_any_future() {
    let mut harness = Harness::new(|ctx, _| async move {
        let inner = ctx.clone();
        let work = async move {
            let first = inner.schedule_activity("A", "").await?;
            let race = inner.select2(inner.schedule_activity("B", first), std::future::pending::<()>()).await;
            match race {
                Either2::First(result) => result,
                Either2::Second(()) => Err("impossible".to_owned()),
            }
        };
        let (result, ()) = ctx.join2(work, async { ctx.schedule_timer(Duration::ZERO).await }).await;
        result
    });
    harness.turn([]);
    assert_eq!(
        summarize(&harness.turn([activity_completed(2, "x"), timer_fired(3)]).history_delta)[2..],
        ["6 activity B x"]
    );
    assert_eq!(harness.turn([activity_completed(6, "y")]).outcome, completed("y"));
}
