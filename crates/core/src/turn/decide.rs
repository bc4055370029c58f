//! New decisions: what the code asked for becomes events, one by one, through the loop that replay uses.

use super::ledger::Ledger;
use super::{Execution, TurnClock, turn_limit};
use crate::action::{Action, Emitted};
use crate::limits::{MAX_DECISIONS_PER_TURN, payload_too_large};
use crate::{ErrorDetails, Event, EventKind, SUB_ORCH_AUTO_PREFIX};

/// A turn in the making.
#[derive(Default)]
pub(super) struct Draft {
    pub(super) delta: Vec<Event>,
    /// So many events of the delta stay whatever the code does: the start event and the messages.
    fixed: usize,
    /// The id of the last of them.
    pub(super) fixed_event_id: u64,
    decisions: usize,
    /// Decisions to act upon, in order.
    pub(super) pending: Vec<Pending>,
    /// The first continue-as-new of the turn.
    pub(super) successor: Option<Successor>,
    pub(super) cancelled_activities: Vec<u64>,
    pub(super) dropped_children: Vec<u64>,
}

/// A decision with the event that records it.
pub(super) struct Pending {
    pub(super) event_id: u64,
    pub(super) action: Action,
    /// The recorded id of a child.
    pub(super) child: Option<String>,
}

pub(super) struct Successor {
    pub(super) input: String,
    pub(super) version: Option<String>,
}

impl Draft {
    /// Draws the line between what came in and what the code decides.
    pub(super) fn fix(&mut self, ledger: &Ledger) {
        self.fixed = self.delta.len();
        self.fixed_event_id = ledger.last_event_id();
    }

    /// Forgets what the code decided.
    pub(super) fn forget_decisions(&mut self) {
        self.delta.truncate(self.fixed);
        self.pending.clear();
        self.successor = None;
        self.cancelled_activities.clear();
        self.dropped_children.clear();
    }

    /// The events the code decided.
    pub(super) fn decided(&self) -> &[Event] {
        self.delta.get(self.fixed..).unwrap_or_default()
    }
}

impl Execution {
    /// Works off the line until it is empty and no poll is owed.
    pub(super) fn decide_all(
        &mut self,
        draft: &mut Draft,
        clock: &dyn TurnClock,
    ) -> Result<(), ErrorDetails> {
        loop {
            self.make_owed_poll(clock)?;
            let Some(emitted) = self.line.pop_front() else { return Ok(()) };
            self.decide(emitted, draft, clock)?;
        }
    }

    fn decide(
        &mut self,
        emitted: Emitted,
        draft: &mut Draft,
        clock: &dyn TurnClock,
    ) -> Result<(), ErrorDetails> {
        draft.decisions += 1;
        if draft.decisions > MAX_DECISIONS_PER_TURN {
            return Err(turn_limit());
        }
        if let Action::ContinueAsNew { input, version } = emitted.action {
            self.ledger.skip_event_id();
            draft.successor.get_or_insert(Successor { input, version });
            return Ok(());
        }
        let event_id = self.ledger.next_event_id();
        let refusal = self.refusal(&emitted.action);
        let kind = self.schedule_event(&emitted.action, event_id, refusal.is_some());
        let child = match &kind {
            EventKind::SubOrchestrationScheduled { instance, .. } => Some(instance.clone()),
            _ => None,
        };
        let event = self.event(event_id, None, clock, kind);
        let failure = refusal.map(|kind| self.event(event_id.saturating_add(1), Some(event_id), clock, kind));

        // Back to the head of the line: apply takes it from there, as it does in replay.
        self.line.push_front(emitted);
        let taken = self.apply(&event, failure.as_ref())?;
        self.append(event, draft);
        match (failure, taken) {
            (Some(failure), _) => {
                self.apply(&failure, None)?;
                self.append(failure, draft);
            }
            (None, Some(Emitted { action, .. })) => draft.pending.push(Pending { event_id, action, child }),
            (None, None) => {}
        }
        Ok(())
    }

    /// The failure of a call whose input is above the payload limit.
    fn refusal(&self, action: &Action) -> Option<EventKind> {
        let max = self.payload_bytes_max;
        match action {
            Action::Activity { input, .. } if input.len() > max => Some(EventKind::ActivityFailed {
                details: ErrorDetails::activity_failed(payload_too_large(input.len(), max)),
            }),
            Action::SubOrchestration { input, .. } if input.len() > max => {
                Some(EventKind::SubOrchestrationFailed {
                    details: ErrorDetails::orchestration_failed(payload_too_large(input.len(), max)),
                })
            }
            _ => None,
        }
    }

    /// The event that records an action.
    fn schedule_event(&self, action: &Action, event_id: u64, refused: bool) -> EventKind {
        let kept = |input: &String| if refused { String::new() } else { input.clone() };
        match action {
            Action::Activity { name, input, session_id, tag } => EventKind::ActivityScheduled {
                name: name.clone(),
                input: kept(input),
                session_id: session_id.clone(),
                tag: tag.clone(),
            },
            Action::Timer { fire_at_ms } => EventKind::TimerCreated { fire_at_ms: *fire_at_ms },
            Action::Wait { name } => EventKind::ExternalSubscribed { name: name.clone() },
            Action::Dequeue { name } => EventKind::QueueSubscribed { name: name.clone() },
            Action::SubOrchestration { name, instance, input, .. } => EventKind::SubOrchestrationScheduled {
                name: name.clone(),
                instance: instance.clone().unwrap_or_else(|| self.child_suffix(event_id)),
                input: kept(input),
            },
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
        }
    }

    fn child_suffix(&self, event_id: u64) -> String {
        match self.identity.execution_id {
            1 => format!("{SUB_ORCH_AUTO_PREFIX}{event_id}"),
            execution_id => format!("{SUB_ORCH_AUTO_PREFIX}{execution_id}_{event_id}"),
        }
    }

    pub(super) fn event(
        &self,
        event_id: u64,
        source: Option<u64>,
        clock: &dyn TurnClock,
        kind: EventKind,
    ) -> Event {
        self.identity.event(event_id, source, clock, kind)
    }

    /// Appends an event to the turn.
    pub(super) fn append(&mut self, event: Event, draft: &mut Draft) {
        self.ledger.record(&event);
        draft.delta.push(event);
    }
}
