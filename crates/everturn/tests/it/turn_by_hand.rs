//! Turns without a runtime: fetches an instance and commits the events that the test chose.

use std::time::Duration;

use everturn::providers::{ExecutionMetadata, Provider, WorkItem};
use everturn::{ErrorDetails, Event, EventKind};

const LOCK: Duration = Duration::from_secs(5);

/// Fetches the only waiting instance and commits these events, after a start event if its execution has none yet.
pub(crate) async fn commit(store: &dyn Provider, kinds: Vec<EventKind>) {
    for item in commit_without_messages(store, kinds).await {
        store.enqueue_for_orchestrator(item, None).await.unwrap();
    }
}

/// The same, but returns the messages that follow from the turn instead of queueing them.
pub(crate) async fn commit_without_messages(store: &dyn Provider, kinds: Vec<EventKind>) -> Vec<WorkItem> {
    let (item, token, _) =
        store.fetch_orchestration_item(LOCK, Duration::ZERO, None).await.unwrap().expect("an instance waits");
    let mut execution_id = item.execution_id;
    let mut next_id = item.history.len() as u64 + 1;
    let mut metadata = ExecutionMetadata::default();
    let mut delta = Vec::new();
    let start = item.messages.iter().find_map(start_of);
    if let Some((name, version, start)) = start {
        if matches!(item.messages.first(), Some(WorkItem::ContinueAsNew { .. })) {
            execution_id += 1;
            next_id = 1;
        }
        metadata.parent_instance_id = parent_of(&start);
        metadata.orchestration_name = Some(name);
        metadata.orchestration_version = Some(version);
        delta.push(start);
    }
    delta.extend(kinds);
    let mut orchestrator_items = Vec::new();
    for kind in &delta {
        match kind {
            EventKind::OrchestrationCompleted { output } => ended(&mut metadata, "Completed", output),
            EventKind::OrchestrationFailed { details } => {
                ended(&mut metadata, "Failed", &details.display_message());
            }
            EventKind::OrchestrationContinuedAsNew { input } => {
                ended(&mut metadata, "ContinuedAsNew", input);
                orchestrator_items.push(successor(&item.instance, &item.orchestration_name, input));
            }
            _ => {}
        }
    }
    let events = delta
        .into_iter()
        .zip(next_id..)
        .map(|(kind, id)| Event::with_event_id(id, &item.instance, execution_id, None, kind))
        .collect();
    store
        .ack_orchestration_item(&token, execution_id, events, vec![], vec![], metadata, vec![])
        .await
        .unwrap();
    orchestrator_items
}

/// The turn of an instance that returned `Ok`.
pub(crate) fn completed(output: &str) -> Vec<EventKind> {
    vec![EventKind::OrchestrationCompleted { output: output.to_owned() }]
}

/// The turn of an instance that returned `Err`.
pub(crate) fn failed(text: &str) -> Vec<EventKind> {
    vec![EventKind::OrchestrationFailed { details: ErrorDetails::orchestration_failed(text) }]
}

/// The turn of an instance that continues as new.
pub(crate) fn continued(input: &str) -> Vec<EventKind> {
    vec![EventKind::OrchestrationContinuedAsNew { input: input.to_owned() }]
}

/// The event of `set_custom_status`.
pub(crate) fn custom_status(status: &str) -> EventKind {
    EventKind::CustomStatusUpdated { status: Some(status.to_owned()) }
}

/// The event of `set_kv_value`.
pub(crate) fn kv_set(key: &str, value: &str) -> EventKind {
    EventKind::KeyValueSet { key: key.to_owned(), value: value.to_owned(), last_updated_at_ms: 1 }
}

/// A child of `parent`, as its turn would start it.
pub(crate) fn child_start(parent: &str, child: &str) -> WorkItem {
    WorkItem::StartOrchestration {
        instance: child.to_owned(),
        orchestration: "child".to_owned(),
        input: String::new(),
        version: None,
        parent_instance: Some(parent.to_owned()),
        parent_id: Some(2),
        parent_execution_id: Some(1),
        execution_id: 1,
    }
}

fn ended(metadata: &mut ExecutionMetadata, status: &str, output: &str) {
    metadata.status = Some(status.to_owned());
    metadata.output = Some(output.to_owned());
}

fn start_of(message: &WorkItem) -> Option<(String, String, EventKind)> {
    let (name, version, input, parent_instance) = match message {
        WorkItem::StartOrchestration { orchestration, version, input, parent_instance, .. }
        | WorkItem::ContinueAsNew { orchestration, version, input, parent_instance, .. } => {
            (orchestration, version, input, parent_instance)
        }
        _ => return None,
    };
    let version = version.clone().unwrap_or_else(|| "1.0.0".to_owned());
    let start = EventKind::OrchestrationStarted {
        name: name.clone(),
        version: version.clone(),
        input: input.clone(),
        parent_instance: parent_instance.clone(),
        parent_id: None,
        parent_execution_id: None,
        carry_forward_events: None,
        initial_custom_status: None,
    };
    Some((name.clone(), version, start))
}

fn parent_of(start: &EventKind) -> Option<String> {
    match start {
        EventKind::OrchestrationStarted { parent_instance, .. } => parent_instance.clone(),
        _ => None,
    }
}

fn successor(instance: &str, orchestration: &str, input: &str) -> WorkItem {
    WorkItem::ContinueAsNew {
        instance: instance.to_owned(),
        orchestration: orchestration.to_owned(),
        input: input.to_owned(),
        version: None,
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        carry_forward_events: vec![],
        initial_custom_status: None,
    }
}
