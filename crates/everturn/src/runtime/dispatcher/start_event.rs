//! The event an execution begins with.

use everturn_core::{Event, EventKind, INITIAL_EVENT_ID};

use super::batch::StartItem;

/// The start event of an execution, from the message that asked for it. `version` is the resolved one.
pub(crate) fn start_event(
    instance: &str,
    execution_id: u64,
    version: &str,
    now_ms: u64,
    start: &StartItem,
) -> Event {
    let carried = start.successor.as_ref();
    let kind = EventKind::OrchestrationStarted {
        name: start.orchestration.clone(),
        version: version.to_owned(),
        input: start.input.clone(),
        parent_instance: start.parent.as_ref().map(|parent| parent.instance.clone()),
        parent_id: start.parent.as_ref().map(|parent| parent.id),
        parent_execution_id: start.parent.as_ref().and_then(|parent| parent.execution_id),
        carry_forward_events: carried
            .filter(|carried| !carried.events.is_empty())
            .map(|carried| carried.events.clone()),
        initial_custom_status: carried.and_then(|carried| carried.custom_status.clone()),
    };
    Event::stamped(INITIAL_EVENT_ID, instance, execution_id, None, now_ms, kind)
}
