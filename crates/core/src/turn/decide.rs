//! New decisions: each action of the code is recorded as an event and applied as replay applies it.

use super::draft::{PendingDecision, Successor, TurnDraft};
use super::{Execution, TurnClock, turn_limit};
use crate::action::{Action, EmittedAction};
use crate::limits::{MAX_DECISIONS_PER_TURN, payload_too_large};
use crate::{ErrorDetails, Event, EventKind, SUB_ORCH_AUTO_PREFIX};

impl Execution {
    /// Records the emitted actions until none is left and the code waits.
    pub(super) fn decide_all(
        &mut self,
        draft: &mut TurnDraft,
        clock: &dyn TurnClock,
    ) -> Result<(), ErrorDetails> {
        loop {
            self.poll_if_owed(clock)?;
            let Some(emitted) = self.emitted.pop_front() else { return Ok(()) };
            self.decisions += 1;
            if self.decisions > MAX_DECISIONS_PER_TURN {
                return Err(turn_limit());
            }
            let event_id = self.record.history.last_event_id.saturating_add(1);
            if let Action::ContinueAsNew { input, version } = emitted.action {
                // It takes an id, but its event is recorded only if it decides how the turn ends.
                self.record.history.last_event_id = event_id;
                draft.successor.get_or_insert(Successor { input, version });
                continue;
            }
            let (kind, failure) = self.events_of(&emitted.action, event_id);
            let child = match &kind {
                EventKind::SubOrchestrationScheduled { instance, .. } => Some(instance.clone()),
                _ => None,
            };
            let event = self.record.next_event(None, clock, kind);
            let failure = failure.map(|kind| Event {
                event_id: event_id.saturating_add(1),
                ..self.record.next_event(Some(event_id), clock, kind)
            });

            // `apply` takes the action from the front, as it does in replay.
            self.emitted.push_front(emitted);
            let taken = self.apply(&event, failure.as_ref())?;
            self.append(event, draft);
            if let Some(failure) = failure {
                self.apply(&failure, None)?;
                self.append(failure, draft);
            } else if let Some(EmittedAction { action, .. }) = taken {
                draft.pending.push(PendingDecision { event_id, action, child });
            }
        }
    }

    /// The event that records an action. A call whose input is above the payload limit is recorded without its input,
    /// and its failure follows directly.
    fn events_of(&self, action: &Action, event_id: u64) -> (EventKind, Option<EventKind>) {
        let max = self.payload_bytes_max;
        let kind = match action {
            Action::Activity { name, input, session_id, tag } => {
                let refused = input.len() > max;
                let scheduled = EventKind::ActivityScheduled {
                    name: name.clone(),
                    input: if refused { String::new() } else { input.clone() },
                    session_id: session_id.clone(),
                    tag: tag.clone(),
                };
                let what = format_args!("input of activity {name}");
                let details = || ErrorDetails::activity_failed(payload_too_large(what, input.len(), max));
                return (scheduled, refused.then(|| EventKind::ActivityFailed { details: details() }));
            }
            Action::SubOrchestration { name, instance, input, .. } => {
                let refused = input.len() > max;
                let generated_suffix = || match self.record.identity.execution_id {
                    1 => format!("{SUB_ORCH_AUTO_PREFIX}{event_id}"),
                    execution_id => format!("{SUB_ORCH_AUTO_PREFIX}{execution_id}_{event_id}"),
                };
                let scheduled = EventKind::SubOrchestrationScheduled {
                    name: name.clone(),
                    instance: instance.clone().unwrap_or_else(generated_suffix),
                    input: if refused { String::new() } else { input.clone() },
                };
                let what = format_args!("input of child orchestration {name}");
                let details =
                    || ErrorDetails::orchestration_failed(payload_too_large(what, input.len(), max));
                return (
                    scheduled,
                    refused.then(|| EventKind::SubOrchestrationFailed { details: details() }),
                );
            }
            Action::Timer { fire_at_ms } => EventKind::TimerCreated { fire_at_ms: *fire_at_ms },
            Action::Wait { name } => EventKind::ExternalSubscribed { name: name.clone() },
            Action::Dequeue { name } => EventKind::QueueSubscribed { name: name.clone() },
            Action::StartDetached { name, instance, input, .. } => EventKind::OrchestrationChained {
                name: name.clone(),
                instance: instance.clone(),
                input: input.clone(),
            },
            Action::SetCustomStatus { status } => EventKind::CustomStatusUpdated { status: status.clone() },
            Action::SetKv { key, value, last_updated_at_ms } => EventKind::KeyValueSet {
                key: key.clone(),
                value: value.clone(),
                last_updated_at_ms: *last_updated_at_ms,
            },
            Action::ClearKv { key } => EventKind::KeyValueCleared { key: key.clone() },
            Action::ClearAllKv => EventKind::KeyValuesCleared,
            Action::ContinueAsNew { input, .. } => {
                EventKind::OrchestrationContinuedAsNew { input: input.clone() }
            }
        };
        (kind, None)
    }
}
