//! The work items that the cases send.

use everturn_core::{ErrorDetails, WorkItem};

/// The orchestration every instance of the suite runs, unless a case says otherwise.
pub(crate) const NAME: &str = "Order";
/// Its version.
pub(crate) const VERSION: &str = "1.0.0";

pub(crate) fn start(instance: &str) -> WorkItem {
    start_of(instance, Some(VERSION), None)
}

pub(crate) fn start_without_version(instance: &str) -> WorkItem {
    start_of(instance, None, None)
}

pub(crate) fn start_child(instance: &str, parent: &str) -> WorkItem {
    start_of(instance, Some(VERSION), Some(parent))
}

pub(crate) fn start_of(instance: &str, version: Option<&str>, parent: Option<&str>) -> WorkItem {
    WorkItem::StartOrchestration {
        instance: instance.to_owned(),
        orchestration: NAME.to_owned(),
        input: "input".to_owned(),
        version: version.map(str::to_owned),
        parent_instance: parent.map(str::to_owned),
        parent_id: parent.map(|_| 2),
        parent_execution_id: parent.map(|_| 1),
        execution_id: 1,
    }
}

pub(crate) fn continue_as_new(instance: &str) -> WorkItem {
    WorkItem::ContinueAsNew {
        instance: instance.to_owned(),
        orchestration: NAME.to_owned(),
        input: "next".to_owned(),
        version: Some(VERSION.to_owned()),
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        carry_forward_events: Vec::new(),
        initial_custom_status: None,
    }
}

pub(crate) fn signal(instance: &str, name: &str) -> WorkItem {
    WorkItem::ExternalRaised { instance: instance.to_owned(), name: name.to_owned(), data: "data".to_owned() }
}

pub(crate) fn queue_message(instance: &str, data: &str) -> WorkItem {
    WorkItem::QueueMessage { instance: instance.to_owned(), name: "inbox".to_owned(), data: data.to_owned() }
}

pub(crate) fn cancel(instance: &str) -> WorkItem {
    WorkItem::CancelInstance { instance: instance.to_owned(), reason: "enough".to_owned() }
}

pub(crate) fn timer(instance: &str, id: u64, fire_at_ms: u64) -> WorkItem {
    WorkItem::TimerFired { instance: instance.to_owned(), execution_id: 1, id, fire_at_ms }
}

pub(crate) fn activity_completed(instance: &str, id: u64) -> WorkItem {
    WorkItem::ActivityCompleted {
        instance: instance.to_owned(),
        execution_id: 1,
        id,
        result: format!("result {id}"),
    }
}

pub(crate) fn activity_failed(instance: &str, id: u64) -> WorkItem {
    WorkItem::ActivityFailed {
        instance: instance.to_owned(),
        execution_id: 1,
        id,
        details: ErrorDetails::activity_failed("boom"),
    }
}

pub(crate) fn child_completed(parent: &str) -> WorkItem {
    WorkItem::SubOrchCompleted {
        parent_instance: parent.to_owned(),
        parent_execution_id: 1,
        parent_id: 2,
        result: "child result".to_owned(),
    }
}

pub(crate) fn child_failed(parent: &str) -> WorkItem {
    WorkItem::SubOrchFailed {
        parent_instance: parent.to_owned(),
        parent_execution_id: 1,
        parent_id: 2,
        details: ErrorDetails::orchestration_failed("child boom"),
    }
}

pub(crate) fn activity(instance: &str, id: u64) -> WorkItem {
    activity_of(instance, id, None, None)
}

pub(crate) fn activity_in_session(instance: &str, id: u64, session: &str) -> WorkItem {
    activity_of(instance, id, Some(session), None)
}

pub(crate) fn activity_tagged(instance: &str, id: u64, tag: &str) -> WorkItem {
    activity_of(instance, id, None, Some(tag))
}

pub(crate) fn activity_of(instance: &str, id: u64, session: Option<&str>, tag: Option<&str>) -> WorkItem {
    WorkItem::ActivityExecute {
        instance: instance.to_owned(),
        execution_id: 1,
        id,
        name: "Charge".to_owned(),
        input: format!("input {id}"),
        session_id: session.map(str::to_owned),
        tag: tag.map(str::to_owned),
    }
}

/// The schedule event an activity item belongs to.
pub(crate) fn activity_id(item: &WorkItem) -> u64 {
    match item {
        WorkItem::ActivityExecute { id, .. } => *id,
        other => panic!("expected an activity, got {other:?}"),
    }
}

/// The session an activity item is bound to.
pub(crate) fn session(item: &WorkItem) -> Option<&str> {
    match item {
        WorkItem::ActivityExecute { session_id, .. } => session_id.as_deref(),
        other => panic!("expected an activity, got {other:?}"),
    }
}
