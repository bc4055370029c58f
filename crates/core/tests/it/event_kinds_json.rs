//! The JSON of every kind of event, and the ids of events.

use everturn_core::{ErrorDetails, EventKind};

use crate::harness::{Harness, activity_completed, cancel, queue_message, signal, timer_fired};

fn writes(kind: EventKind, line: &str) {
    assert_eq!(serde_json::to_string(&kind).unwrap(), line);
    assert_eq!(serde_json::from_str::<EventKind>(line).unwrap(), kind);
}

fn reads(line: &str, kind: EventKind) {
    assert_eq!(serde_json::from_str::<EventKind>(line).unwrap(), kind);
}

fn start(full: bool) -> EventKind {
    EventKind::OrchestrationStarted {
        name: "N".into(),
        version: "1.0.0".into(),
        input: "i".into(),
        parent_instance: full.then(|| "p".into()),
        parent_id: full.then_some(3),
        parent_execution_id: full.then_some(2),
        carry_forward_events: full.then(|| vec![("q".into(), "d".into())]),
        initial_custom_status: full.then(|| "s".into()),
    }
}

#[test]
fn orchestration_started() {
    writes(
        start(false),
        r#"{"type":"OrchestrationStarted","name":"N","version":"1.0.0","input":"i","parent_instance":null,"parent_id":null}"#,
    );
    writes(
        start(true),
        r#"{"type":"OrchestrationStarted","name":"N","version":"1.0.0","input":"i","parent_instance":"p","parent_id":3,"parent_execution_id":2,"carry_forward_events":[["q","d"]],"initial_custom_status":"s"}"#,
    );
    reads(r#"{"type":"OrchestrationStarted","name":"N","version":"1.0.0","input":"i"}"#, start(false));
}

#[test]
fn orchestration_completed_failed_and_continued() {
    writes(
        EventKind::OrchestrationCompleted { output: "o".into() },
        r#"{"type":"OrchestrationCompleted","output":"o"}"#,
    );
    writes(
        EventKind::OrchestrationFailed { details: ErrorDetails::orchestration_failed("b") },
        r#"{"type":"OrchestrationFailed","details":{"Application":{"kind":"OrchestrationFailed","message":"b","retryable":false}}}"#,
    );
    writes(
        EventKind::OrchestrationContinuedAsNew { input: "i".into() },
        r#"{"type":"OrchestrationContinuedAsNew","input":"i"}"#,
    );
    writes(
        EventKind::OrchestrationCancelRequested { reason: "r".into() },
        r#"{"type":"OrchestrationCancelRequested","reason":"r"}"#,
    );
}

#[test]
fn activity_events() {
    let plain =
        EventKind::ActivityScheduled { name: "A".into(), input: "i".into(), session_id: None, tag: None };
    writes(plain, r#"{"type":"ActivityScheduled","name":"A","input":"i"}"#);
    let routed = EventKind::ActivityScheduled {
        name: "A".into(),
        input: "i".into(),
        session_id: Some("s".into()),
        tag: Some("t".into()),
    };
    writes(routed, r#"{"type":"ActivityScheduled","name":"A","input":"i","session_id":"s","tag":"t"}"#);
    writes(
        EventKind::ActivityCompleted { result: "r".into() },
        r#"{"type":"ActivityCompleted","result":"r"}"#,
    );
    writes(
        EventKind::ActivityFailed { details: ErrorDetails::activity_failed("b") },
        r#"{"type":"ActivityFailed","details":{"Application":{"kind":"ActivityFailed","message":"b","retryable":false}}}"#,
    );
    writes(
        EventKind::ActivityCancelRequested { reason: "r".into() },
        r#"{"type":"ActivityCancelRequested","reason":"r"}"#,
    );
}

#[test]
fn timer_events() {
    writes(EventKind::TimerCreated { fire_at_ms: 5 }, r#"{"type":"TimerCreated","fire_at_ms":5}"#);
    writes(EventKind::TimerFired { fire_at_ms: 5 }, r#"{"type":"TimerFired","fire_at_ms":5}"#);
}

#[test]
fn signal_events() {
    writes(EventKind::ExternalSubscribed { name: "n".into() }, r#"{"type":"ExternalSubscribed","name":"n"}"#);
    writes(
        EventKind::ExternalEvent { name: "n".into(), data: "d".into() },
        r#"{"type":"ExternalEvent","name":"n","data":"d"}"#,
    );
    writes(
        EventKind::ExternalSubscribedCancelled { reason: "r".into() },
        r#"{"type":"ExternalSubscribedCancelled","reason":"r"}"#,
    );
}

#[test]
fn queue_events_have_type_texts_of_their_own() {
    writes(
        EventKind::QueueSubscribed { name: "Q".into() },
        r#"{"type":"ExternalSubscribedPersistent","name":"Q"}"#,
    );
    writes(
        EventKind::QueueEventDelivered { name: "Q".into(), data: "d".into() },
        r#"{"type":"ExternalEventPersistent","name":"Q","data":"d"}"#,
    );
    writes(
        EventKind::QueueSubscriptionCancelled { reason: "r".into() },
        r#"{"type":"ExternalSubscribedPersistentCancelled","reason":"r"}"#,
    );
}

#[test]
fn child_and_detached_events() {
    writes(
        EventKind::OrchestrationChained { name: "N".into(), instance: "x".into(), input: "i".into() },
        r#"{"type":"OrchestrationChained","name":"N","instance":"x","input":"i"}"#,
    );
    writes(
        EventKind::SubOrchestrationScheduled {
            name: "N".into(),
            instance: "sub::2".into(),
            input: "i".into(),
        },
        r#"{"type":"SubOrchestrationScheduled","name":"N","instance":"sub::2","input":"i"}"#,
    );
    writes(
        EventKind::SubOrchestrationCompleted { result: "r".into() },
        r#"{"type":"SubOrchestrationCompleted","result":"r"}"#,
    );
    writes(
        EventKind::SubOrchestrationFailed { details: ErrorDetails::cancelled("r") },
        r#"{"type":"SubOrchestrationFailed","details":{"Application":{"kind":{"Cancelled":{"reason":"r"}},"message":"","retryable":false}}}"#,
    );
    writes(
        EventKind::SubOrchestrationCancelRequested { reason: "r".into() },
        r#"{"type":"SubOrchestrationCancelRequested","reason":"r"}"#,
    );
}

#[test]
fn status_and_key_value_events() {
    writes(
        EventKind::CustomStatusUpdated { status: None },
        r#"{"type":"CustomStatusUpdated","status":null}"#,
    );
    writes(
        EventKind::CustomStatusUpdated { status: Some("s".into()) },
        r#"{"type":"CustomStatusUpdated","status":"s"}"#,
    );
    reads(r#"{"type":"CustomStatusUpdated"}"#, EventKind::CustomStatusUpdated { status: None });
    writes(
        EventKind::KeyValueSet { key: "k".into(), value: "v".into(), last_updated_at_ms: 7 },
        r#"{"type":"KeyValueSet","key":"k","value":"v","last_updated_at_ms":7}"#,
    );
    reads(
        r#"{"type":"KeyValueSet","key":"k","value":"v"}"#,
        EventKind::KeyValueSet { key: "k".into(), value: "v".into(), last_updated_at_ms: 0 },
    );
    writes(EventKind::KeyValueCleared { key: "k".into() }, r#"{"type":"KeyValueCleared","key":"k"}"#);
    writes(EventKind::KeyValuesCleared, r#"{"type":"KeyValuesCleared"}"#);
}

#[test]
fn completions_and_cancellations_name_their_schedule_and_nothing_else_does() {
    let mut harness = Harness::new(|ctx, _| async move {
        ctx.set_kv_value("k", "");
        let activity = ctx.schedule_activity("A", "");
        let _wait = ctx.schedule_wait("w");
        let _read = ctx.dequeue_event("q");
        let _child = ctx.schedule_sub_orchestration("C", "");
        ctx.schedule_timer(std::time::Duration::ZERO).await;
        activity.await?;
        Ok("end".into())
    });
    harness.turn([]);
    harness.turn([signal("w", ""), queue_message("q", ""), timer_fired(7)]);
    harness.turn([activity_completed(3, "")]);
    for event in harness.history() {
        let refers = matches!(
            event.kind,
            EventKind::ActivityCompleted { .. }
                | EventKind::TimerFired { .. }
                | EventKind::ExternalSubscribedCancelled { .. }
                | EventKind::QueueSubscriptionCancelled { .. }
                | EventKind::SubOrchestrationCancelRequested { .. }
        );
        assert_eq!(event.source_event_id.is_some(), refers, "{event:?}");
    }
}

#[test]
fn ids_are_contiguous_from_one_over_all_turns() {
    let mut harness = Harness::new(|ctx, _| async move {
        ctx.schedule_activity("A", "").await?;
        ctx.schedule_activity("B", "").await
    });
    harness.turn([signal("none", "")]);
    harness.turn([activity_completed(3, ""), queue_message("q", "")]);
    harness.turn([cancel("stop")]);
    let ids: Vec<_> = harness.history().iter().map(|event| event.event_id).collect();
    assert_eq!(ids, (1..=ids.len() as u64).collect::<Vec<_>>());
}

#[test]
fn continue_as_new_consumes_an_id_without_an_event() {
    let mut harness = Harness::new(|ctx, _| async move {
        ctx.set_kv_value("k", "");
        ctx.continue_as_new("x").await
    });
    harness.turn([]);
    assert_eq!(harness.summary(), ["1 started", "2 set k=", "4 continued x"]);
}
