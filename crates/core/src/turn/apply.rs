//! Applying one event to the code: the same for a recorded event and for one that was just made.

use tracing::warn;

use super::Execution;
use super::finalise::cancellation_of;
use super::matching::{fits, mismatch, nothing_asked, was_refused};
use crate::action::{Action, Emitted};
use crate::exchange::Outcome;
use crate::{ErrorDetails, Event, EventKind};

/// The reason of a cancellation that the code caused by dropping a future.
pub(super) const DROPPED_FUTURE: &str = "dropped_future";

/// What a schedule event was bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OpenKind {
    Activity,
    Timer,
    SubOrchestration,
}

/// A schedule that waits for its completion.
#[derive(Debug, Clone, Copy)]
pub(super) struct Open {
    kind: OpenKind,
    token: u64,
}

impl Execution {
    /// Applies one event. `next` is the event after it, which tells a refused call. Returns the action that a schedule
    /// event took from the line.
    pub(super) fn apply(
        &mut self,
        event: &Event,
        next: Option<&Event>,
    ) -> Result<Option<Emitted>, ErrorDetails> {
        let taken = self.apply_kind(event, next)?;
        self.exchange.state().last_event_ms = event.timestamp_ms;
        Ok(taken)
    }

    fn apply_kind(&mut self, event: &Event, next: Option<&Event>) -> Result<Option<Emitted>, ErrorDetails> {
        match &event.kind {
            EventKind::OrchestrationStarted { .. }
            | EventKind::OrchestrationCompleted { .. }
            | EventKind::OrchestrationFailed { .. }
            | EventKind::OrchestrationContinuedAsNew { .. }
            | EventKind::OrchestrationCancelRequested { .. } => Ok(None),
            EventKind::ActivityScheduled { .. } => self.apply_schedule(event, next, Some(OpenKind::Activity)),
            EventKind::TimerCreated { .. } => self.apply_schedule(event, next, Some(OpenKind::Timer)),
            EventKind::SubOrchestrationScheduled { .. } => {
                self.apply_schedule(event, next, Some(OpenKind::SubOrchestration))
            }
            EventKind::ExternalSubscribed { .. } | EventKind::OrchestrationChained { .. } => {
                self.apply_schedule(event, next, None)
            }
            EventKind::QueueSubscribed { .. } => {
                let taken = self.apply_schedule(event, next, None)?;
                self.must_poll = true;
                Ok(taken)
            }
            EventKind::CustomStatusUpdated { .. }
            | EventKind::KeyValueSet { .. }
            | EventKind::KeyValuesCleared => self.apply_without_result(event),
            EventKind::KeyValueCleared { key } => self.apply_clear(event, key),
            EventKind::ActivityCompleted { result } => {
                self.complete(event, OpenKind::Activity, Outcome::Value(result.clone()))
            }
            EventKind::ActivityFailed { details } => {
                self.complete(event, OpenKind::Activity, Outcome::Failed(details.display_message()))
            }
            EventKind::TimerFired { .. } => self.complete(event, OpenKind::Timer, Outcome::Fired),
            EventKind::SubOrchestrationCompleted { result } => {
                self.complete(event, OpenKind::SubOrchestration, Outcome::Value(result.clone()))
            }
            EventKind::SubOrchestrationFailed { details } => {
                self.complete(event, OpenKind::SubOrchestration, Outcome::Failed(details.display_message()))
            }
            EventKind::ExternalEvent { name, data } => self.apply_signal(name, data),
            EventKind::QueueEventDelivered { name, data } => {
                self.exchange.state().queues.arrive(name, data);
                self.must_poll = true;
                Ok(None)
            }
            EventKind::ActivityCancelRequested { .. }
            | EventKind::SubOrchestrationCancelRequested { .. }
            | EventKind::ExternalSubscribedCancelled { .. }
            | EventKind::QueueSubscriptionCancelled { .. } => {
                self.cancelled(event);
                Ok(None)
            }
        }
    }

    fn apply_schedule(
        &mut self,
        event: &Event,
        next: Option<&Event>,
        opens: Option<OpenKind>,
    ) -> Result<Option<Emitted>, ErrorDetails> {
        let emitted = self.line.pop_front().ok_or_else(|| nothing_asked(event))?;
        if !fits(&emitted.action, &event.kind, was_refused(event, next)) {
            return Err(mismatch(&emitted, event));
        }
        self.exchange.state().bind(emitted.token, event.event_id, &emitted.action);
        if let Some(kind) = opens {
            self.open.insert(event.event_id, Open { kind, token: emitted.token });
        }
        Ok(Some(emitted))
    }

    /// Status and key-value events: the code's own call already changed the state. A history that has one where the
    /// code asks for nothing is tolerated.
    fn apply_without_result(&mut self, event: &Event) -> Result<Option<Emitted>, ErrorDetails> {
        let Some(emitted) = self.line.pop_front() else { return Ok(None) };
        if fits(&emitted.action, &event.kind, false) {
            Ok(Some(emitted))
        } else {
            Err(mismatch(&emitted, event))
        }
    }

    /// Clears that stand together may have been recorded in another order.
    fn apply_clear(&mut self, event: &Event, key: &str) -> Result<Option<Emitted>, ErrorDetails> {
        let run = self.line.iter().take_while(|emitted| matches!(emitted.action, Action::ClearKv { .. }));
        let position = run.into_iter().position(|emitted| fits(&emitted.action, &event.kind, false));
        match position {
            Some(position) => Ok(self.line.remove(position)),
            None if self.line.is_empty() => Ok(None),
            None => {
                tracing::trace!(key, "a recorded clear has no counterpart");
                self.apply_without_result(event)
            }
        }
    }

    fn complete(
        &mut self,
        event: &Event,
        expected: OpenKind,
        outcome: Outcome,
    ) -> Result<Option<Emitted>, ErrorDetails> {
        let source = event.source_event_id.unwrap_or_default();
        let Some(open) = self.open.get(&source) else {
            return Err(ErrorDetails::nondeterminism(format!(
                "completion without open schedule (event {}: {:?} for schedule {source})",
                event.event_id, event.kind
            )));
        };
        if open.kind != expected {
            let word = match expected {
                OpenKind::Activity => "activity",
                OpenKind::Timer => "timer",
                OpenKind::SubOrchestration => "suborchestration",
            };
            return Err(ErrorDetails::nondeterminism(format!(
                "completion kind mismatch: expected {word} (event {} completes schedule {source}, which is {:?})",
                event.event_id, open.kind
            )));
        }
        let token = open.token;
        self.open.remove(&source);
        self.exchange.state().deliver(token, outcome);
        self.must_poll = true;
        Ok(None)
    }

    fn apply_signal(&mut self, name: &str, data: &str) -> Result<Option<Emitted>, ErrorDetails> {
        let mut state = self.exchange.state();
        if state.deliver_signal(name, data) {
            self.must_poll = true;
        } else if !state.replaying {
            warn!(
                target: "everturn::runtime",
                instance_id = %state.identity.instance,
                "signal '{name}' found no open wait and is lost; use a queue for messages that may come early"
            );
        }
        Ok(None)
    }

    fn cancelled(&self, event: &Event) {
        let Some((kind, reason)) = cancellation_of(&event.kind) else { return };
        let source = event.source_event_id.unwrap_or_default();
        let mut state = self.exchange.state();
        state.cancel_subscription(kind, source);
        if reason == DROPPED_FUTURE {
            state.expect_drop(kind, source);
        }
    }
}
