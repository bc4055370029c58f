//! Child orchestrations and detached starts.

use everturn_core::turn::TurnOutcome;
use everturn_core::{
    AppErrorKind, ErrorDetails, WorkItem, build_child_instance_id, is_auto_generated_sub_orch_id,
};

use crate::harness::{Harness, cancel, child_completed, child_failed, outcome_of, sent, summarize};

fn completed(output: &str) -> TurnOutcome {
    TurnOutcome::Completed { output: output.to_owned() }
}

#[test]
fn child_of_a_first_execution_is_named_after_its_event() {
    let mut harness = Harness::new(|ctx, _| async move { ctx.schedule_sub_orchestration("C", "x").await });
    let turn = harness.turn([]);
    assert_eq!(summarize(&turn.history_delta), ["1 started", "2 child C sub::2 x"]);
    assert_eq!(
        turn.orchestrator_items,
        [WorkItem::StartOrchestration {
            instance: "order::sub::2".into(),
            orchestration: "C".into(),
            input: "x".into(),
            version: None,
            parent_instance: Some("order".into()),
            parent_id: Some(2),
            parent_execution_id: Some(1),
            execution_id: 1,
        }]
    );
    assert_eq!(harness.turn([child_completed(2, "r")]).outcome, completed("r"));
}

#[test]
fn child_of_a_later_execution_is_named_after_execution_and_event() {
    let mut harness =
        Harness::new(|ctx, _| async move { ctx.schedule_sub_orchestration("C", "x").await }).execution(3);
    let turn = harness.turn([]);
    assert_eq!(summarize(&turn.history_delta)[1], "2 child C sub::3_2 x");
    assert_eq!(sent(&turn), ["start child C order::sub::3_2 x"]);
    let WorkItem::StartOrchestration { parent_execution_id, execution_id, .. } = &turn.orchestrator_items[0]
    else {
        panic!()
    };
    assert_eq!((*parent_execution_id, *execution_id), (Some(3), 1));
}

#[test]
fn explicit_child_id_is_used_as_it_is() {
    let mut harness =
        Harness::new(
            |ctx, _| async move { ctx.schedule_sub_orchestration_with_id("C", "a::sub::b", "x").await },
        );
    let turn = harness.turn([]);
    assert_eq!(summarize(&turn.history_delta)[1], "2 child C a::sub::b x");
    assert_eq!(sent(&turn), ["start child C a::sub::b x"]);
}

#[test]
fn explicit_child_id_with_the_reserved_beginning_fails_and_records_nothing() {
    let mut harness = Harness::new(|ctx, _| async move {
        Ok(ctx.schedule_sub_orchestration_with_id("C", "sub::9", "x").await.unwrap_err())
    });
    let turn = harness.turn([]);
    let TurnOutcome::Completed { output } = &turn.outcome else { panic!("{:?}", turn.outcome) };
    assert!(output.contains("reserved marker") && output.contains("sub::9"), "{output}");
    assert_eq!(turn.history_delta.len(), 2);
    assert!(turn.orchestrator_items.is_empty());
}

#[test]
fn detached_start_with_a_reserved_id_panics() {
    for id in ["sub::1", "a::sub::b"] {
        let outcome = outcome_of(move |ctx, _| async move {
            ctx.schedule_orchestration("C", id, "");
            Ok(String::new())
        });
        let TurnOutcome::Failed {
            details: ErrorDetails::Application { kind: AppErrorKind::Panicked, message, .. },
        } = outcome
        else {
            panic!("{outcome:?}")
        };
        assert!(message.contains("reserved sub-orchestration marker"), "{message}");
    }
}

#[test]
fn other_colons_are_allowed() {
    let mut harness = Harness::new(|ctx, _| async move {
        ctx.schedule_orchestration("D", "a::b::subs", "");
        ctx.schedule_sub_orchestration_with_id("C", "x::y", "").await
    });
    assert_eq!(sent(&harness.turn([])), ["start D a::b::subs ", "start child C x::y "]);
}

#[test]
fn id_functions_know_the_reserved_forms() {
    assert!(is_auto_generated_sub_orch_id("sub::4"));
    assert!(!is_auto_generated_sub_orch_id("x::sub::4"));
    assert_eq!(build_child_instance_id("p", "sub::2_4"), "p::sub::2_4");
    assert_eq!(build_child_instance_id("p", "mine"), "mine");
}

#[test]
fn start_messages_carry_the_version() {
    let mut harness = Harness::new(|ctx, _| async move {
        let a = ctx.schedule_sub_orchestration_versioned("A", Some("2.0.0".into()), "");
        let b = ctx.schedule_sub_orchestration_versioned_with_id("B", Some("3.0.0".into()), "b", "");
        let c = ctx.schedule_sub_orchestration_versioned("C", None, "");
        ctx.schedule_orchestration_versioned("D", Some("4.0.0".into()), "d", "");
        ctx.schedule_orchestration_versioned("E", None, "e", "");
        ctx.join(vec![a, b, c]).await;
        Ok(String::new())
    });
    let versions: Vec<_> = harness
        .turn([])
        .orchestrator_items
        .into_iter()
        .map(|item| match item {
            WorkItem::StartOrchestration { version, .. } => version,
            other => panic!("{other:?}"),
        })
        .collect();
    let expected = [Some("2.0.0"), Some("3.0.0"), None, Some("4.0.0"), None];
    assert_eq!(versions, expected.map(|version| version.map(str::to_owned)));
}

#[test]
fn typed_starts_use_the_codec() {
    let mut harness = Harness::new(|ctx, _| async move {
        ctx.schedule_orchestration_typed("D", "d", &vec![1]);
        ctx.schedule_orchestration_versioned_typed("E", None, "e", &"text");
        let a: u32 = ctx.schedule_sub_orchestration_typed("A", &7).await?;
        let b: String = ctx.schedule_sub_orchestration_with_id_typed("B", "b", &a).await?;
        Ok(b)
    });
    assert_eq!(
        summarize(&harness.turn([]).history_delta)[1..],
        ["2 detached D d [1]", "3 detached E e text", "4 child A sub::4 7"]
    );
    assert_eq!(summarize(&harness.turn([child_completed(4, "8")]).history_delta)[1], "6 child B b 8");
    assert_eq!(harness.turn([child_completed(6, "end")]).outcome, completed("end"));
}

#[test]
fn child_failure_arrives_as_its_display_message() {
    let mut harness =
        Harness::new(|ctx, _| async move { Ok(ctx.schedule_sub_orchestration("C", "").await.unwrap_err()) });
    harness.turn([]);
    let turn = harness.turn([child_failed(2, ErrorDetails::cancelled("why"))]);
    assert_eq!(turn.outcome, completed("canceled: why"));
}

#[test]
fn detached_start_has_no_parent() {
    let mut harness = Harness::new(|ctx, _| async move {
        ctx.schedule_orchestration("D", "d", "x");
        Ok(ctx.schedule_wait("w").await)
    });
    let turn = harness.turn([]);
    assert_eq!(summarize(&turn.history_delta)[1], "2 detached D d x");
    assert_eq!(
        turn.orchestrator_items,
        [WorkItem::StartOrchestration {
            instance: "d".into(),
            orchestration: "D".into(),
            input: "x".into(),
            version: None,
            parent_instance: None,
            parent_id: None,
            parent_execution_id: None,
            execution_id: 1,
        }]
    );
}

#[test]
fn detached_start_is_sent_however_the_turn_ends_unless_cancelled() {
    let ends = |end: &'static str| {
        Harness::new(move |ctx, _| async move {
            ctx.schedule_orchestration("D", "d", "");
            match end {
                "completes" => Ok("ok".to_owned()),
                "fails" => Err("no".to_owned()),
                "continues" => ctx.continue_as_new("again").await,
                _ => Ok(ctx.schedule_wait("w").await),
            }
        })
    };
    assert_eq!(sent(&ends("completes").turn([])), ["start D d "]);
    assert_eq!(sent(&ends("fails").turn([])), ["start D d "]);
    assert_eq!(sent(&ends("continues").turn([])), ["successor again", "start D d "]);
    assert_eq!(sent(&ends("waits").turn([])), ["start D d "]);
    assert!(sent(&ends("waits").turn([cancel("stop")])).is_empty());
}

#[test]
fn replay_takes_the_recorded_child_id_and_compares_only_name_and_input() {
    let mut harness = Harness::new(|ctx, _| async move { ctx.schedule_sub_orchestration("C", "x").await });
    harness.turn([]);
    harness.deploy(|ctx, _| async move {
        ctx.schedule_sub_orchestration_versioned_with_id("C", Some("9.0.0".into()), "other", "x").await
    });
    assert_eq!(sent(&harness.turn([cancel("stop")])), ["cancel order::sub::2: parent canceled"]);
}
