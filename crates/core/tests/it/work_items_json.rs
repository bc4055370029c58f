//! The JSON of every work item, and its kind and instance.

use everturn_core::{ErrorDetails, WorkItem, kind_of};

use crate::harness::{
    activity_completed, activity_failed, cancel, child_completed, child_failed, queue_message, signal,
    timer_fired,
};

fn writes(item: &WorkItem, line: &str) {
    assert_eq!(serde_json::to_string(item).unwrap(), line);
    assert_eq!(serde_json::from_str::<WorkItem>(line).unwrap(), *item);
}

fn start(full: bool) -> WorkItem {
    WorkItem::StartOrchestration {
        instance: "i".into(),
        orchestration: "N".into(),
        input: "x".into(),
        version: full.then(|| "1.0.0".into()),
        parent_instance: full.then(|| "p".into()),
        parent_id: full.then_some(2),
        parent_execution_id: full.then_some(1),
        execution_id: 1,
    }
}

fn execute(routed: bool) -> WorkItem {
    WorkItem::ActivityExecute {
        instance: "i".into(),
        execution_id: 1,
        id: 2,
        name: "A".into(),
        input: "x".into(),
        session_id: routed.then(|| "s".into()),
        tag: routed.then(|| "t".into()),
    }
}

fn successor(full: bool) -> WorkItem {
    WorkItem::ContinueAsNew {
        instance: "i".into(),
        orchestration: "N".into(),
        input: "x".into(),
        version: full.then(|| "2.0.0".into()),
        parent_instance: full.then(|| "p".into()),
        parent_id: full.then_some(2),
        parent_execution_id: full.then_some(1),
        carry_forward_events: if full { vec![] } else { vec![("q".into(), "d".into())] },
        initial_custom_status: full.then(|| "s".into()),
    }
}

#[test]
fn start_orchestration() {
    writes(
        &start(false),
        r#"{"StartOrchestration":{"instance":"i","orchestration":"N","input":"x","version":null,"parent_instance":null,"parent_id":null,"execution_id":1}}"#,
    );
    writes(
        &start(true),
        r#"{"StartOrchestration":{"instance":"i","orchestration":"N","input":"x","version":"1.0.0","parent_instance":"p","parent_id":2,"parent_execution_id":1,"execution_id":1}}"#,
    );
}

#[test]
fn activity_execute() {
    writes(
        &execute(false),
        r#"{"ActivityExecute":{"instance":"i","execution_id":1,"id":2,"name":"A","input":"x"}}"#,
    );
    writes(
        &execute(true),
        r#"{"ActivityExecute":{"instance":"i","execution_id":1,"id":2,"name":"A","input":"x","session_id":"s","tag":"t"}}"#,
    );
}

#[test]
fn continue_as_new() {
    writes(
        &successor(false),
        r#"{"ContinueAsNew":{"instance":"i","orchestration":"N","input":"x","version":null,"carry_forward_events":[["q","d"]]}}"#,
    );
    writes(
        &successor(true),
        r#"{"ContinueAsNew":{"instance":"i","orchestration":"N","input":"x","version":"2.0.0","parent_instance":"p","parent_id":2,"parent_execution_id":1,"carry_forward_events":[],"initial_custom_status":"s"}}"#,
    );
}

#[test]
fn completions_signals_and_cancels() {
    writes(
        &activity_completed(2, "r"),
        r#"{"ActivityCompleted":{"instance":"order","execution_id":1,"id":2,"result":"r"}}"#,
    );
    writes(
        &activity_failed(2, "b"),
        r#"{"ActivityFailed":{"instance":"order","execution_id":1,"id":2,"details":{"Application":{"kind":"ActivityFailed","message":"b","retryable":false}}}}"#,
    );
    writes(&timer_fired(2), r#"{"TimerFired":{"instance":"order","execution_id":1,"id":2,"fire_at_ms":0}}"#);
    writes(&signal("n", "d"), r#"{"ExternalRaised":{"instance":"order","name":"n","data":"d"}}"#);
    writes(
        &child_completed(2, "r"),
        r#"{"SubOrchCompleted":{"parent_instance":"order","parent_execution_id":1,"parent_id":2,"result":"r"}}"#,
    );
    writes(
        &child_failed(2, ErrorDetails::orchestration_failed("b")),
        r#"{"SubOrchFailed":{"parent_instance":"order","parent_execution_id":1,"parent_id":2,"details":{"Application":{"kind":"OrchestrationFailed","message":"b","retryable":false}}}}"#,
    );
    writes(&cancel("r"), r#"{"CancelInstance":{"instance":"order","reason":"r"}}"#);
    writes(&queue_message("Q", "d"), r#"{"QueueMessage":{"instance":"order","name":"Q","data":"d"}}"#);
}

#[test]
fn absent_options_read_as_none_and_unknown_keys_are_ignored() {
    let line =
        r#"{"StartOrchestration":{"instance":"i","orchestration":"N","input":"x","execution_id":1,"new":1}}"#;
    assert_eq!(serde_json::from_str::<WorkItem>(line).unwrap(), start(false));
    let line = r#"{"ContinueAsNew":{"instance":"i","orchestration":"N","input":"x"}}"#;
    let WorkItem::ContinueAsNew { version: None, carry_forward_events, .. } =
        serde_json::from_str(line).unwrap()
    else {
        panic!()
    };
    assert!(carry_forward_events.is_empty());
}

#[test]
fn every_item_has_its_kind_text_and_its_instance() {
    let details = ErrorDetails::activity_failed("b");
    let items = [
        (start(false), "StartOrchestration", "i"),
        (execute(false), "ActivityExecute", "i"),
        (activity_completed(2, ""), "ActivityCompleted", "order"),
        (activity_failed(2, ""), "ActivityFailed", "order"),
        (timer_fired(2), "TimerFired", "order"),
        (signal("n", ""), "ExternalRaised", "order"),
        (child_completed(2, ""), "SubOrchCompleted", "order"),
        (child_failed(2, details), "SubOrchFailed", "order"),
        (cancel(""), "CancelInstance", "order"),
        (successor(false), "ContinueAsNew", "i"),
        (queue_message("q", ""), "ExternalRaisedPersistent", "order"),
    ];
    for (item, kind, instance) in items {
        assert_eq!(kind_of(&item), kind);
        assert_eq!(item.instance(), instance);
        assert_eq!(item.is_start(), matches!(kind, "StartOrchestration" | "ContinueAsNew"));
    }
}
