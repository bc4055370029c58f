//! From messages to events.

use tracing::warn;

use super::draft::TurnDraft;
use super::history_index::CompletableKind;
use super::{Execution, TurnClock};
use crate::{ErrorDetails, EventKind, WorkItem, kind_of};

/// A completion message: the execution and the schedule that it answers, and the event that records it.
struct Completion {
    execution_id: u64,
    schedule_id: u64,
    kind: CompletableKind,
    event: EventKind,
}

impl Execution {
    /// Appends the events of `messages` to the turn, in their order.
    ///
    /// Fails, after the last message, if one of them means that the execution cannot go on.
    pub(super) fn convert_messages(
        &mut self,
        messages: Vec<WorkItem>,
        draft: &mut TurnDraft,
        clock: &dyn TurnClock,
    ) -> Result<(), ErrorDetails> {
        let mut converted = Ok(());
        // An event for each message, and most turns decide one thing.
        draft.delta.reserve_exact(messages.len() + 1);
        for message in messages {
            let completion = match message {
                WorkItem::ExternalRaised { name, data, .. } => {
                    let event = self.record.next_event(None, clock, EventKind::ExternalEvent { name, data });
                    self.append(event, draft);
                    continue;
                }
                WorkItem::QueueMessage { name, data, .. } => {
                    let kind = EventKind::QueueEventDelivered { name, data };
                    let event = self.record.next_event(None, clock, kind);
                    self.append(event, draft);
                    continue;
                }
                WorkItem::CancelInstance { reason, .. } => {
                    if self.record.history.cancel_reason.is_none() && !self.record.history.terminal {
                        let kind = EventKind::OrchestrationCancelRequested { reason };
                        let event = self.record.next_event(None, clock, kind);
                        self.append(event, draft);
                    }
                    continue;
                }
                WorkItem::ActivityCompleted { execution_id, id, result, .. } => Completion {
                    execution_id,
                    schedule_id: id,
                    kind: CompletableKind::Activity,
                    event: EventKind::ActivityCompleted { result },
                },
                WorkItem::ActivityFailed { execution_id, id, details, .. } => Completion {
                    execution_id,
                    schedule_id: id,
                    kind: CompletableKind::Activity,
                    event: EventKind::ActivityFailed { details },
                },
                WorkItem::TimerFired { execution_id, id, fire_at_ms, .. } => Completion {
                    execution_id,
                    schedule_id: id,
                    kind: CompletableKind::Timer,
                    event: EventKind::TimerFired { fire_at_ms },
                },
                WorkItem::SubOrchCompleted { parent_execution_id, parent_id, result, .. } => Completion {
                    execution_id: parent_execution_id,
                    schedule_id: parent_id,
                    kind: CompletableKind::SubOrchestration,
                    event: EventKind::SubOrchestrationCompleted { result },
                },
                WorkItem::SubOrchFailed { parent_execution_id, parent_id, details, .. } => Completion {
                    execution_id: parent_execution_id,
                    schedule_id: parent_id,
                    kind: CompletableKind::SubOrchestration,
                    event: EventKind::SubOrchestrationFailed { details },
                },
                WorkItem::StartOrchestration { .. }
                | WorkItem::ContinueAsNew { .. }
                | WorkItem::ActivityExecute { .. } => {
                    let (instance, kind) = (&self.record.identity.instance, kind_of(&message));
                    warn!(target: "everturn::runtime", instance_id = %instance, "ignoring a {kind} message: no turn handles it");
                    continue;
                }
            };
            converted = converted.and(self.convert_completion(completion, draft, clock));
        }
        converted
    }

    /// Appends the event of a completion, unless it belongs to another execution or is recorded already.
    fn convert_completion(
        &mut self,
        completion: Completion,
        draft: &mut TurnDraft,
        clock: &dyn TurnClock,
    ) -> Result<(), ErrorDetails> {
        let Completion { execution_id, schedule_id, kind, event } = completion;
        let identity = &self.record.identity;
        if execution_id != identity.execution_id {
            warn!(
                target: "everturn::runtime",
                instance_id = %identity.instance,
                execution_id = %identity.execution_id,
                "dropping a completion for execution {execution_id}"
            );
            return Ok(());
        }
        let Some(schedule) = self.record.history.schedules.get(&schedule_id) else {
            let what = match kind {
                CompletableKind::Activity => "completion",
                CompletableKind::Timer => "timer",
                CompletableKind::SubOrchestration => "sub-orchestration",
            };
            let message = format!("no matching schedule for {what} id={schedule_id}");
            return Err(ErrorDetails::nondeterminism(message));
        };
        if schedule.kind != kind {
            let (expected, got) = (schedule.kind.as_str(), kind.as_str());
            return Err(ErrorDetails::nondeterminism(format!(
                "completion kind mismatch for id={schedule_id}, expected '{expected}', got '{got}'"
            )));
        }
        if schedule.completed {
            return Ok(());
        }
        // Only application failures are delivered to the code; any other failure ends the execution.
        let result = match &event {
            EventKind::ActivityFailed { details } | EventKind::SubOrchestrationFailed { details }
                if !matches!(details, ErrorDetails::Application { .. }) =>
            {
                Err(details.clone())
            }
            _ => Ok(()),
        };
        let event = self.record.next_event(Some(schedule_id), clock, event);
        self.append(event, draft);
        result
    }
}
