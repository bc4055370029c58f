//! The JSON of the fields that every event has.

use everturn_core::{Event, EventKind, current_build_version};

use crate::harness::{Harness, activity_completed};

const LINE: &str = r#"{"event_id":3,"source_event_id":2,"instance_id":"inst","execution_id":1,"timestamp_ms":1700000000000,"engine_version":"0.1.0","type":"ActivityCompleted","result":"r"}"#;

fn sample() -> Event {
    Event {
        event_id: 3,
        source_event_id: Some(2),
        instance_id: "inst".into(),
        execution_id: 1,
        timestamp_ms: 1_700_000_000_000,
        engine_version: "0.1.0".into(),
        kind: EventKind::ActivityCompleted { result: "r".into() },
    }
}

#[test]
fn event_is_written_with_its_keys_in_order() {
    assert_eq!(serde_json::to_string(&sample()).unwrap(), LINE);
    assert_eq!(serde_json::from_str::<Event>(LINE).unwrap(), sample());
}

#[test]
fn absent_source_is_written_as_null_and_may_be_missing() {
    let event = Event { source_event_id: None, ..sample() };
    let written = serde_json::to_string(&event).unwrap();
    assert!(written.contains(r#""source_event_id":null"#), "{written}");
    let without = written.replace(r#""source_event_id":null,"#, "");
    assert_eq!(serde_json::from_str::<Event>(&without).unwrap(), event);
}

#[test]
fn engine_version_is_required() {
    let without = LINE.replace(r#""engine_version":"0.1.0","#, "");
    let error = serde_json::from_str::<Event>(&without).unwrap_err().to_string();
    assert!(error.contains("missing field `engine_version`"), "{error}");
}

#[test]
fn unknown_keys_are_ignored() {
    let more = LINE.replace(r#""result":"r""#, r#""result":"r","later":{"x":[1]}"#);
    assert_eq!(serde_json::from_str::<Event>(&more).unwrap(), sample());
}

#[test]
fn unknown_type_is_an_error() {
    assert!(serde_json::from_str::<Event>(&LINE.replace("ActivityCompleted", "Dreamed")).is_err());
}

#[test]
fn constructors_stamp_time_and_build() {
    let event = Event::with_event_id(7, "i", 2, Some(3), EventKind::KeyValuesCleared);
    assert_eq!((event.event_id(), event.source_event_id()), (7, Some(3)));
    assert_eq!((event.instance_id.as_str(), event.execution_id), ("i", 2));
    assert!(event.timestamp_ms > 1_600_000_000_000);
    assert_eq!(event.engine_version, current_build_version().to_string());
    assert_eq!(Event::new("i", 1, None, EventKind::KeyValuesCleared).event_id(), 0);
}

#[test]
fn completed_failed_and_continued_are_terminal() {
    let of = |kind| Event::new("i", 1, None, kind).is_terminal();
    assert!(of(EventKind::OrchestrationCompleted { output: String::new() }));
    assert!(of(EventKind::OrchestrationFailed { details: crate::harness::infrastructure("x") }));
    assert!(of(EventKind::OrchestrationContinuedAsNew { input: String::new() }));
    assert!(!of(EventKind::OrchestrationCancelRequested { reason: String::new() }));
    assert!(!of(EventKind::ActivityCompleted { result: String::new() }));
}

#[test]
fn engine_stamps_every_event_with_the_time_it_is_handed_and_its_version() {
    let mut harness = Harness::new(|ctx, _| async move { ctx.schedule_activity("A", "").await });
    harness.turn([]);
    harness.turn([activity_completed(2, "r")]);
    let stamps: Vec<_> = harness.history()[1..].iter().map(|event| event.timestamp_ms).collect();
    assert_eq!(stamps, [1_000_000, 2_000_000, 2_000_001]);
    for event in harness.history() {
        assert_eq!(event.engine_version, current_build_version().to_string());
        assert_eq!((event.instance_id.as_str(), event.execution_id), ("order", 1));
    }
}
