//! The start event of an execution.

use crate::{ErrorDetails, Event, EventKind, WorkItem};

/// The fields of an `OrchestrationStarted` event that later turns need.
#[derive(Debug, Clone)]
pub(super) struct StartEvent {
    pub(super) input: String,
    pub(super) parent_instance: Option<String>,
    pub(super) parent_id: Option<u64>,
    pub(super) parent_execution_id: Option<u64>,
    pub(super) initial_custom_status: Option<String>,
}

impl StartEvent {
    /// `None` if `event` is no start event.
    pub(super) fn of(event: &Event) -> Option<Self> {
        match &event.kind {
            EventKind::OrchestrationStarted {
                input,
                parent_instance,
                parent_id,
                parent_execution_id,
                initial_custom_status,
                ..
            } => Some(Self {
                input: input.clone(),
                parent_instance: parent_instance.clone(),
                parent_id: *parent_id,
                parent_execution_id: *parent_execution_id,
                initial_custom_status: initial_custom_status.clone(),
            }),
            _ => None,
        }
    }

    /// The message that notifies the parent how its child ended. Execution id 0 means "not recorded".
    pub(super) fn parent_notice(&self, result: Result<&str, &ErrorDetails>) -> Option<WorkItem> {
        let parent_instance = self.parent_instance.clone()?;
        let parent_id = self.parent_id?;
        let parent_execution_id = self.parent_execution_id.unwrap_or(0);
        Some(match result {
            Ok(output) => WorkItem::SubOrchCompleted {
                parent_instance,
                parent_execution_id,
                parent_id,
                result: output.to_owned(),
            },
            Err(details) => WorkItem::SubOrchFailed {
                parent_instance,
                parent_execution_id,
                parent_id,
                details: details.clone(),
            },
        })
    }
}
