//! Continue-as-new as the author of an orchestration sees it.

use everturn_core::WorkItem;
use everturn_core::turn::{Turn, TurnOutcome};

use crate::harness::{Harness, activity_completed, sent, summarize};

fn continued(turn: &Turn) -> &str {
    match &turn.outcome {
        TurnOutcome::ContinuedAsNew { input } => input,
        other => panic!("{other:?}"),
    }
}

#[test]
fn future_never_resolves_and_the_successor_gets_the_input() {
    let mut harness = Harness::new(|ctx, _| async move {
        ctx.continue_as_new("next").await?;
        panic!("the future resolved");
    });
    let turn = harness.turn([]);
    assert_eq!(continued(&turn), "next");
    assert_eq!(
        turn.orchestrator_items,
        [WorkItem::ContinueAsNew {
            instance: "order".into(),
            orchestration: "Ship".into(),
            input: "next".into(),
            version: None,
            parent_instance: None,
            parent_id: None,
            parent_execution_id: None,
            carry_forward_events: vec![],
            initial_custom_status: None,
        }]
    );
}

#[test]
fn takes_effect_without_being_awaited() {
    for ok in [true, false] {
        let mut harness = Harness::new(move |ctx, _| async move {
            drop(ctx.continue_as_new("next"));
            if ok { Ok("returned".into()) } else { Err("returned".into()) }
        });
        let turn = harness.turn([]);
        assert_eq!(continued(&turn), "next");
        assert_eq!(summarize(&turn.history_delta), ["1 started", "3 continued next"]);
    }
}

#[test]
fn first_of_a_turn_wins() {
    let mut harness = Harness::new(|ctx, _| async move {
        drop(ctx.continue_as_new("first"));
        ctx.continue_as_new("second").await
    });
    let turn = harness.turn([]);
    assert_eq!(continued(&turn), "first");
    assert_eq!(sent(&turn), ["successor first"]);
}

#[test]
fn versioned_pins_exactly_and_unversioned_leaves_it_to_the_registry() {
    let version = |turn: &Turn| match &turn.orchestrator_items[0] {
        WorkItem::ContinueAsNew { version, .. } => version.clone(),
        other => panic!("{other:?}"),
    };
    let mut harness = Harness::new(|ctx, _| async move { ctx.continue_as_new_versioned("2.0.0", "x").await });
    assert_eq!(version(&harness.turn([])), Some("2.0.0".to_owned()));
    let mut harness = Harness::new(|ctx, _| async move { ctx.continue_as_new("x").await });
    assert_eq!(version(&harness.turn([])), None);
}

#[test]
fn typed_input_uses_the_codec() {
    let mut harness = Harness::new(|ctx, _| async move { ctx.continue_as_new_typed(&vec![1, 2]).await });
    assert_eq!(continued(&harness.turn([])), "[1,2]");
    let mut harness = Harness::new(|ctx, _| async move { ctx.continue_as_new_typed(&"text").await });
    assert_eq!(continued(&harness.turn([])), "text");
}

#[test]
fn works_after_other_turns() {
    let mut harness = Harness::new(|ctx, input| async move {
        let n = ctx.schedule_activity("A", input).await?;
        ctx.continue_as_new(n).await
    });
    harness.turn([]);
    let turn = harness.turn([activity_completed(2, "7")]);
    assert_eq!(summarize(&turn.history_delta), ["3<2 activity-completed 7", "5 continued 7"]);
}
