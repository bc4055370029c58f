//! What a successor gets from its predecessor.

use everturn_core::turn::TurnOutcome;
use everturn_core::{ErrorDetails, EventKind, KvEntry, WorkItem};

use crate::harness::{
    Harness, activity_completed, child_completed, queue_message, signal, summarize, timer_fired, to_execution,
};

#[test]
fn old_execution_ends_with_the_next_input() {
    let mut harness = Harness::new(|ctx, _| async move { ctx.continue_as_new("next").await });
    let turn = harness.turn([]);
    assert_eq!(turn.outcome, TurnOutcome::ContinuedAsNew { input: "next".into() });
    let last = &turn.history_delta.last().unwrap().kind;
    assert_eq!(*last, EventKind::OrchestrationContinuedAsNew { input: "next".into() });
}

#[test]
fn parent_status_and_messages_go_with_the_successor() {
    let mut harness = Harness::new(|ctx, _| async move {
        ctx.set_custom_status("busy");
        ctx.continue_as_new_versioned("2.0.0", "next").await
    })
    .child_of("p", 3, Some(2));
    let turn = harness.turn([queue_message("q", "m")]);
    assert_eq!(
        turn.orchestrator_items,
        [WorkItem::ContinueAsNew {
            instance: "order".into(),
            orchestration: "Ship".into(),
            input: "next".into(),
            version: Some("2.0.0".into()),
            parent_instance: Some("p".into()),
            parent_id: Some(3),
            parent_execution_id: Some(2),
            carry_forward_events: vec![("q".into(), "m".into())],
            initial_custom_status: Some("busy".into()),
        }]
    );
}

#[test]
fn successor_drops_completions_for_its_predecessor() {
    let mut harness = Harness::new(|ctx, _| async move { ctx.schedule_activity("A", "").await }).execution(2);
    harness.turn([]);
    let turn = harness.turn([activity_completed(2, "old"), timer_fired(3), child_completed(4, "old")]);
    assert!(turn.history_delta.is_empty());
    let turn = harness.turn([to_execution(2, activity_completed(2, "own"))]);
    assert_eq!(turn.outcome, TurnOutcome::Completed { output: "own".into() });
}

#[test]
fn carried_messages_come_before_new_ones() {
    let mut harness = Harness::new(|ctx, _| async move {
        let (first, second) = (ctx.dequeue_event("q").await, ctx.dequeue_event("q").await);
        Ok(format!("{first} {second}"))
    })
    .execution(2)
    .start_event(|kind| {
        if let EventKind::OrchestrationStarted { carry_forward_events, .. } = kind {
            *carry_forward_events = Some(vec![("q".into(), "carried".into())]);
        }
    });
    let turn = harness.turn([queue_message("q", "carried"), queue_message("q", "new")]);
    assert_eq!(turn.outcome, TurnOutcome::Completed { output: "carried new".into() });
    assert_eq!(summarize(&turn.history_delta)[..3], ["1 started", "2 queued q carried", "3 queued q new"]);
}

#[test]
fn signals_are_not_carried() {
    let mut harness = Harness::new(|ctx, _| async move {
        let _held = ctx.schedule_wait("s");
        ctx.schedule_wait("go").await;
        ctx.continue_as_new("").await
    });
    harness.turn([]);
    let turn = harness.turn([signal("s", "x"), signal("go", "")]);
    let WorkItem::ContinueAsNew { carry_forward_events, .. } = &turn.orchestrator_items[0] else { panic!() };
    assert!(carry_forward_events.is_empty());
}

#[test]
fn key_values_of_the_predecessor_are_there_from_the_start() {
    let kv = [("n".to_owned(), KvEntry { value: "4".into(), last_updated_at_ms: 1 })].into_iter().collect();
    let mut harness = Harness::new(|ctx, _| async move { Ok(ctx.get_kv_value("n").unwrap_or_default()) })
        .execution(2)
        .kv_snapshot(kv);
    assert_eq!(harness.turn([]).outcome, TurnOutcome::Completed { output: "4".into() });
}

/// Continues as new with one unread message of so many bytes, its queue's name included.
fn carrying(bytes: usize) -> TurnOutcome {
    let mut harness = Harness::new(|ctx, _| async move { ctx.continue_as_new("").await }).warm_only();
    harness.turn_with(vec![queue_message("q", &"x".repeat(bytes - 1))]).outcome
}

#[test]
fn successor_gets_up_to_64_mib_of_messages() {
    assert_eq!(carrying(67_108_864), TurnOutcome::ContinuedAsNew { input: String::new() });
}

#[test]
fn carrying_more_than_64_mib_fails_the_instance() {
    let text = "Carried queue messages (67108865 bytes) exceed limit (67108864 bytes)";
    assert_eq!(
        carrying(67_108_865),
        TurnOutcome::Failed { details: ErrorDetails::orchestration_failed(text) }
    );
}
