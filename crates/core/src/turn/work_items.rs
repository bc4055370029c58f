//! From a decision to the message that carries it out.

use super::ExecutionIdentity;
use super::draft::PendingDecision;
use crate::action::Action;
use crate::{INITIAL_EXECUTION_ID, WorkItem, build_child_instance_id};

/// The message that carries out a decision, if it needs one.
pub(super) fn work_item(identity: &ExecutionIdentity, decision: PendingDecision) -> Option<WorkItem> {
    let PendingDecision { event_id, action, child } = decision;
    let instance = identity.instance.clone();
    let execution_id = identity.execution_id;
    match action {
        Action::Activity { name, input, session_id, tag } => Some(WorkItem::ActivityExecute {
            instance,
            execution_id,
            id: event_id,
            name,
            input,
            session_id,
            tag,
        }),
        Action::Timer { fire_at_ms } => {
            Some(WorkItem::TimerFired { instance, execution_id, id: event_id, fire_at_ms })
        }
        Action::SubOrchestration { name, version, input, .. } => Some(WorkItem::StartOrchestration {
            instance: build_child_instance_id(&instance, child.as_deref().unwrap_or_default()),
            orchestration: name,
            input,
            version,
            parent_instance: Some(instance),
            parent_id: Some(event_id),
            parent_execution_id: Some(execution_id),
            execution_id: INITIAL_EXECUTION_ID,
        }),
        Action::StartDetached { name, version, instance, input } => Some(WorkItem::StartOrchestration {
            instance,
            orchestration: name,
            input,
            version,
            parent_instance: None,
            parent_id: None,
            parent_execution_id: None,
            execution_id: INITIAL_EXECUTION_ID,
        }),
        Action::Wait { .. }
        | Action::Dequeue { .. }
        | Action::SetCustomStatus { .. }
        | Action::SetKv { .. }
        | Action::ClearKv { .. }
        | Action::ClearAllKv
        | Action::ContinueAsNew { .. } => None,
    }
}
