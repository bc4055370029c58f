//! `read_execution`: one execution with its history.

use everturn_core::{AppErrorKind, ErrorDetails, Event, EventKind, PoisonMessageType};

use crate::events;
use crate::harness::{CaseHarness, expect_error};
use crate::items::{NAME, VERSION, start};
use crate::sample_turn::SampleTurn;

cases! { $ read_execution as read_execution_cases:
    an_unknown_instance_has_an_empty_history,
    an_unknown_execution_has_an_empty_history,
    the_latest_execution_is_read,
    events_come_ordered_by_id,
    gaps_between_event_ids_are_kept,
    every_kind_of_event_is_read_back_as_written,
    a_damaged_event_is_an_error_not_a_shorter_list,
    damage_of_one_execution_spares_the_others,
    damage_of_one_instance_spares_the_others,
}

async fn an_unknown_instance_has_an_empty_history(h: CaseHarness) {
    assert_eq!(h.history("unknown").await.unwrap(), []);
    assert_eq!(h.history_of("unknown", 1).await.unwrap(), []);
    assert_eq!(h.admin().read_history("unknown").await.unwrap(), []);
    assert_eq!(h.admin().read_history_with_execution_id("unknown", 1).await.unwrap(), []);
}

async fn an_unknown_execution_has_an_empty_history(h: CaseHarness) {
    h.create("i").await;
    assert_eq!(h.history_of("i", 2).await.unwrap(), []);
    assert_eq!(h.admin().read_history_with_execution_id("i", 2).await.unwrap(), []);
}

async fn the_latest_execution_is_read(h: CaseHarness) {
    h.create_with_executions("i", 3).await;
    let latest = h.history("i").await.unwrap();
    assert_eq!(latest.iter().map(|event| event.execution_id).collect::<Vec<_>>(), [3]);
    assert_eq!(h.admin().read_history("i").await.unwrap(), latest);
    assert_eq!(h.history_of("i", 3).await.unwrap(), latest);
    let first = h.history_of("i", 1).await.unwrap();
    assert_eq!(first.len(), 2);
    assert_eq!(h.admin().read_history_with_execution_id("i", 1).await.unwrap(), first);
}

async fn events_come_ordered_by_id(h: CaseHarness) {
    let turn = SampleTurn::of("i", 1)
        .event(10, events::scheduled())
        .event(9, events::scheduled())
        .event(100, events::scheduled())
        .event(1, events::started())
        .named(NAME, VERSION);
    h.begin("i", turn).await;
    assert_eq!(h.event_ids("i").await, [1, 9, 10, 100]);
}

async fn gaps_between_event_ids_are_kept(h: CaseHarness) {
    h.begin("i", SampleTurn::beginning("i", 1).event(4, events::scheduled())).await;
    h.turn("i", SampleTurn::of("i", 1).event(3, events::scheduled()).event(99_999, events::failed("x")))
        .await;
    assert_eq!(h.event_ids("i").await, [1, 3, 4, 99_999]);
}

fn text(text: &str) -> String {
    text.to_owned()
}

fn start_and_end_kinds() -> Vec<EventKind> {
    vec![
        EventKind::OrchestrationStarted {
            name: text(NAME),
            version: text(VERSION),
            input: text("{\"quoted\":\"\\u0000 line\\nbreak\"}"),
            parent_instance: Some(text("parent")),
            parent_id: Some(3),
            parent_execution_id: Some(2),
            carry_forward_events: Some(vec![(text("inbox"), text("data")), (text(""), text("ünï 🦀"))]),
            initial_custom_status: Some(text("carried")),
        },
        EventKind::OrchestrationCompleted { output: text("") },
        EventKind::OrchestrationFailed {
            details: ErrorDetails::Poison {
                attempt_count: 11,
                max_attempts: 10,
                message_type: PoisonMessageType::FailedDeserialization {
                    instance: text("i"),
                    execution_id: 1,
                    error: text("what"),
                },
                message: text("{}"),
            },
        },
        EventKind::OrchestrationChained { name: text("n"), instance: text("x"), input: text("in") },
        EventKind::OrchestrationContinuedAsNew { input: text("next") },
        EventKind::OrchestrationCancelRequested { reason: text("enough") },
    ]
}

fn activity_and_timer_kinds() -> Vec<EventKind> {
    vec![
        events::scheduled(),
        EventKind::ActivityScheduled {
            name: text("A"),
            input: text("i"),
            session_id: Some(text("s")),
            tag: Some(text("t")),
        },
        EventKind::ActivityCompleted { result: text("r") },
        EventKind::ActivityFailed { details: ErrorDetails::activity_failed("boom") },
        EventKind::ActivityFailed {
            details: ErrorDetails::Infrastructure {
                operation: text("op"),
                message: text("m"),
                retryable: true,
            },
        },
        EventKind::ActivityCancelRequested { reason: text("dropped_future") },
        EventKind::TimerCreated { fire_at_ms: u64::from(u32::MAX) * 1_000 },
        EventKind::TimerFired { fire_at_ms: 0 },
    ]
}

fn signal_queue_and_child_kinds() -> Vec<EventKind> {
    vec![
        EventKind::ExternalSubscribed { name: text("n") },
        EventKind::ExternalEvent { name: text("n"), data: text("d") },
        EventKind::ExternalSubscribedCancelled { reason: text("dropped_future") },
        EventKind::QueueSubscribed { name: text("q") },
        EventKind::QueueEventDelivered { name: text("q"), data: text("d") },
        EventKind::QueueSubscriptionCancelled { reason: text("orchestration_terminal") },
        EventKind::SubOrchestrationScheduled { name: text("n"), instance: text("sub::2"), input: text("in") },
        EventKind::SubOrchestrationCompleted { result: text("r") },
        EventKind::SubOrchestrationFailed {
            details: ErrorDetails::Application {
                kind: AppErrorKind::Cancelled { reason: text("parent canceled") },
                message: String::new(),
                retryable: false,
            },
        },
        EventKind::SubOrchestrationCancelRequested { reason: text("dropped_future") },
        events::custom_status(Some("status")),
        events::custom_status(None),
        events::kv_set("key", "value"),
        events::kv_cleared("key"),
        events::kv_all_cleared(),
    ]
}

async fn every_kind_of_event_is_read_back_as_written(h: CaseHarness) {
    h.send(start("i")).await;
    let mut kinds = start_and_end_kinds();
    kinds.extend(activity_and_timer_kinds());
    kinds.extend(signal_queue_and_child_kinds());
    let mut written = Vec::new();
    let mut turn = SampleTurn::of("i", 1).named(NAME, VERSION);
    for (kind, event_id) in kinds.into_iter().zip(1_u64..) {
        let source_event_id = event_id.is_multiple_of(2).then_some(event_id / 2);
        let event = Event::stamped(event_id, "i", 1, source_event_id, 1_700_000_000_000 + event_id, kind);
        written.push(event.clone());
        turn = turn.recorded(event);
    }
    h.take_turn("i", turn).await;
    assert_eq!(h.history("i").await.unwrap(), written);
}

async fn a_damaged_event_is_an_error_not_a_shorter_list(h: CaseHarness) {
    h.create("i").await;
    h.turn("i", SampleTurn::of("i", 1).event(2, events::scheduled()).event(3, events::scheduled())).await;
    h.damage_event("i", 1, 2).await;
    expect_error(h.history("i").await);
    expect_error(h.history_of("i", 1).await);
    expect_error(h.admin().read_history("i").await);
    expect_error(h.admin().read_history_with_execution_id("i", 1).await);
}

async fn damage_of_one_execution_spares_the_others(h: CaseHarness) {
    h.create_with_executions("i", 3).await;
    h.damage_event("i", 2, 1).await;
    expect_error(h.history_of("i", 2).await);
    assert_eq!(h.history_of("i", 1).await.unwrap().len(), 2);
    assert_eq!(h.history("i").await.unwrap().len(), 1);
}

async fn damage_of_one_instance_spares_the_others(h: CaseHarness) {
    h.create("a").await;
    h.create("b").await;
    h.damage_event("a", 1, 1).await;
    expect_error(h.history("a").await);
    assert_eq!(h.event_ids("b").await, [1]);
    assert_eq!(h.admin().list_instances().await.unwrap(), ["a", "b"]);
}
