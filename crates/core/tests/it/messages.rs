//! Messages to the instance of the harness.

use everturn_core::{ErrorDetails, WorkItem};

use crate::harness::INSTANCE;

pub fn activity_completed(id: u64, result: &str) -> WorkItem {
    WorkItem::ActivityCompleted { instance: INSTANCE.into(), execution_id: 1, id, result: result.into() }
}

pub fn activity_failed(id: u64, text: &str) -> WorkItem {
    activity_failed_with(id, ErrorDetails::activity_failed(text))
}

pub fn activity_failed_with(id: u64, details: ErrorDetails) -> WorkItem {
    WorkItem::ActivityFailed { instance: INSTANCE.into(), execution_id: 1, id, details }
}

pub fn timer_fired(id: u64) -> WorkItem {
    WorkItem::TimerFired { instance: INSTANCE.into(), execution_id: 1, id, fire_at_ms: 0 }
}

pub fn child_completed(id: u64, result: &str) -> WorkItem {
    WorkItem::SubOrchCompleted {
        parent_instance: INSTANCE.into(),
        parent_execution_id: 1,
        parent_id: id,
        result: result.into(),
    }
}

pub fn child_failed(id: u64, details: ErrorDetails) -> WorkItem {
    WorkItem::SubOrchFailed {
        parent_instance: INSTANCE.into(),
        parent_execution_id: 1,
        parent_id: id,
        details,
    }
}

pub fn signal(name: &str, data: &str) -> WorkItem {
    WorkItem::ExternalRaised { instance: INSTANCE.into(), name: name.into(), data: data.into() }
}

pub fn queue_message(name: &str, data: &str) -> WorkItem {
    WorkItem::QueueMessage { instance: INSTANCE.into(), name: name.into(), data: data.into() }
}

pub fn cancel(reason: &str) -> WorkItem {
    WorkItem::CancelInstance { instance: INSTANCE.into(), reason: reason.into() }
}

/// The same completion, addressed to another execution.
pub fn to_execution(execution: u64, mut message: WorkItem) -> WorkItem {
    match &mut message {
        WorkItem::ActivityCompleted { execution_id, .. }
        | WorkItem::ActivityFailed { execution_id, .. }
        | WorkItem::TimerFired { execution_id, .. }
        | WorkItem::SubOrchCompleted { parent_execution_id: execution_id, .. }
        | WorkItem::SubOrchFailed { parent_execution_id: execution_id, .. } => *execution_id = execution,
        _ => {}
    }
    message
}

/// A failure of the engine or its store, not of the code.
pub fn infrastructure(message: &str) -> ErrorDetails {
    ErrorDetails::Infrastructure { operation: "op".into(), message: message.into(), retryable: false }
}
