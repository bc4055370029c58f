//! The events that the cases commit.

use everturn_core::{ErrorDetails, EventKind};

use crate::items::{NAME, VERSION};

pub(crate) fn started() -> EventKind {
    started_as(NAME, VERSION)
}

pub(crate) fn started_as(name: &str, version: &str) -> EventKind {
    EventKind::OrchestrationStarted {
        name: name.to_owned(),
        version: version.to_owned(),
        input: "input".to_owned(),
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        carry_forward_events: None,
        initial_custom_status: None,
    }
}

pub(crate) fn started_carrying(carried: &[&str]) -> EventKind {
    let carried = carried.iter().map(|data| ("inbox".to_owned(), (*data).to_owned())).collect();
    EventKind::OrchestrationStarted {
        name: NAME.to_owned(),
        version: VERSION.to_owned(),
        input: "input".to_owned(),
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        carry_forward_events: Some(carried),
        initial_custom_status: None,
    }
}

pub(crate) fn scheduled() -> EventKind {
    EventKind::ActivityScheduled {
        name: "Charge".to_owned(),
        input: "input".to_owned(),
        session_id: None,
        tag: None,
    }
}

pub(crate) fn signalled(name: &str) -> EventKind {
    EventKind::ExternalEvent { name: name.to_owned(), data: "data".to_owned() }
}

pub(crate) fn completed(output: &str) -> EventKind {
    EventKind::OrchestrationCompleted { output: output.to_owned() }
}

pub(crate) fn failed(message: &str) -> EventKind {
    EventKind::OrchestrationFailed { details: ErrorDetails::orchestration_failed(message) }
}

pub(crate) fn continued_as_new() -> EventKind {
    EventKind::OrchestrationContinuedAsNew { input: "next".to_owned() }
}

pub(crate) fn custom_status(status: Option<&str>) -> EventKind {
    EventKind::CustomStatusUpdated { status: status.map(str::to_owned) }
}

/// The time of every write to the key-value store in the suite.
pub(crate) const KV_TIME_MS: u64 = 77;

pub(crate) fn kv_set(key: &str, value: &str) -> EventKind {
    EventKind::KeyValueSet { key: key.to_owned(), value: value.to_owned(), last_updated_at_ms: KV_TIME_MS }
}

pub(crate) fn kv_cleared(key: &str) -> EventKind {
    EventKind::KeyValueCleared { key: key.to_owned() }
}

pub(crate) fn kv_all_cleared() -> EventKind {
    EventKind::KeyValuesCleared
}
