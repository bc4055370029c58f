//! Applying one event to the code: the same for a recorded event and for a new one.

use tracing::warn;

use super::Execution;
use super::cancellation::{CancelReason, cancellation_of};
use super::history_index::CompletableKind;
use super::matching::{fits, mismatch, no_action};
use crate::action::{Action, EmittedAction};
use crate::replay_state::FutureResult;
use crate::{ErrorDetails, Event, EventKind};

/// A schedule that waits for its completion.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenSchedule {
    kind: CompletableKind,
    token: u64,
}

impl Execution {
    /// Applies one event. `next` is the event after it, which shows whether a call was refused. Returns the emitted
    /// action that the event records, if it records one.
    pub(super) fn apply(
        &mut self,
        event: &Event,
        next: Option<&Event>,
    ) -> Result<Option<EmittedAction>, ErrorDetails> {
        let mut taken = None;
        match &event.kind {
            EventKind::OrchestrationStarted { .. }
            | EventKind::OrchestrationCompleted { .. }
            | EventKind::OrchestrationFailed { .. }
            | EventKind::OrchestrationContinuedAsNew { .. }
            | EventKind::OrchestrationCancelRequested { .. } => {}
            EventKind::ActivityScheduled { .. } => {
                taken = Some(self.apply_schedule(event, next, Some(CompletableKind::Activity))?);
            }
            EventKind::TimerCreated { .. } => {
                taken = Some(self.apply_schedule(event, next, Some(CompletableKind::Timer))?);
            }
            EventKind::SubOrchestrationScheduled { .. } => {
                taken = Some(self.apply_schedule(event, next, Some(CompletableKind::SubOrchestration))?);
            }
            EventKind::ExternalSubscribed { .. } | EventKind::OrchestrationChained { .. } => {
                taken = Some(self.apply_schedule(event, next, None)?);
            }
            EventKind::QueueSubscribed { .. } => {
                taken = Some(self.apply_schedule(event, next, None)?);
                self.must_poll = true;
            }
            EventKind::CustomStatusUpdated { .. } => {
                taken = self.apply_state_change(event, "custom status mismatch")?;
            }
            EventKind::KeyValueSet { .. } => taken = self.apply_state_change(event, "kv set mismatch")?,
            EventKind::KeyValuesCleared => taken = self.apply_state_change(event, "kv clear_all mismatch")?,
            EventKind::KeyValueCleared { .. } => taken = self.apply_clear(event)?,
            EventKind::ActivityCompleted { result } => {
                self.complete(event, CompletableKind::Activity, FutureResult::Value(result.clone()))?;
            }
            EventKind::ActivityFailed { details } => {
                let failed = FutureResult::Failed(details.display_message());
                self.complete(event, CompletableKind::Activity, failed)?;
            }
            EventKind::TimerFired { .. } => {
                self.complete(event, CompletableKind::Timer, FutureResult::Fired)?;
            }
            EventKind::SubOrchestrationCompleted { result } => {
                let value = FutureResult::Value(result.clone());
                self.complete(event, CompletableKind::SubOrchestration, value)?;
            }
            EventKind::SubOrchestrationFailed { details } => {
                let failed = FutureResult::Failed(details.display_message());
                self.complete(event, CompletableKind::SubOrchestration, failed)?;
            }
            EventKind::ExternalEvent { name, data } => self.apply_signal(name, data),
            EventKind::QueueEventDelivered { name, data } => {
                let wakeup = self.shared.lock().deliver_message(name, data);
                wakeup.wake();
                self.must_poll = true;
            }
            EventKind::ActivityCancelRequested { .. }
            | EventKind::SubOrchestrationCancelRequested { .. }
            | EventKind::ExternalSubscribedCancelled { .. }
            | EventKind::QueueSubscriptionCancelled { .. } => self.apply_cancellation(event),
        }
        self.shared.lock().last_event_ms = event.timestamp_ms;
        Ok(taken)
    }

    /// Takes the action that a schedule event records and binds its future to the event.
    fn apply_schedule(
        &mut self,
        event: &Event,
        next: Option<&Event>,
        opens: Option<CompletableKind>,
    ) -> Result<EmittedAction, ErrorDetails> {
        let emitted = self.emitted.pop_front().ok_or_else(|| no_action(event))?;
        if !fits(&emitted.action, event, next) {
            return Err(mismatch("schedule mismatch", &emitted, event));
        }
        let wakeup = self.shared.lock().bind(emitted.token, event.event_id, &emitted.action);
        wakeup.wake();
        if let Some(kind) = opens {
            self.open_schedules.insert(event.event_id, OpenSchedule { kind, token: emitted.token });
        }
        Ok(emitted)
    }

    /// Takes the action of a status or key-value event; the call of the code has changed the state already.
    ///
    /// A history that records one where the code asks for nothing is tolerated.
    fn apply_state_change(
        &mut self,
        event: &Event,
        mismatched: &str,
    ) -> Result<Option<EmittedAction>, ErrorDetails> {
        match self.emitted.pop_front() {
            Some(emitted) if !fits(&emitted.action, event, None) => {
                Err(mismatch(mismatched, &emitted, event))
            }
            taken => Ok(taken),
        }
    }

    /// Takes the action of a cleared key. Clears that directly follow each other may be recorded in another order.
    fn apply_clear(&mut self, event: &Event) -> Result<Option<EmittedAction>, ErrorDetails> {
        let mut clears =
            self.emitted.iter().take_while(|emitted| matches!(emitted.action, Action::ClearKv { .. }));
        match clears.position(|emitted| fits(&emitted.action, event, None)) {
            Some(position) => Ok(self.emitted.remove(position)),
            None => self.apply_state_change(event, "kv clear mismatch"),
        }
    }

    /// Delivers the result of a schedule to its future.
    fn complete(
        &mut self,
        event: &Event,
        expected: CompletableKind,
        result: FutureResult,
    ) -> Result<(), ErrorDetails> {
        let source = event.source_event_id.unwrap_or_default();
        let Some(OpenSchedule { kind, token }) = self.open_schedules.get(&source).copied() else {
            return Err(ErrorDetails::nondeterminism(format!(
                "completion without open schedule (event {}: {:?} for schedule {source})",
                event.event_id, event.kind
            )));
        };
        if kind != expected {
            return Err(ErrorDetails::nondeterminism(format!(
                "completion kind mismatch: expected {} (event {} completes schedule {source}, which is {kind:?})",
                expected.as_str(),
                event.event_id,
            )));
        }
        self.open_schedules.remove(&source);
        let wakeup = self.shared.lock().deliver(token, result);
        wakeup.wake();
        self.must_poll = true;
        Ok(())
    }

    fn apply_signal(&mut self, name: &str, data: &str) {
        let mut state = self.shared.lock();
        let delivered = state.deliver_signal(name, data);
        let replaying = state.replaying;
        drop(state);
        if let Some(wakeup) = delivered {
            wakeup.wake();
            self.must_poll = true;
        } else if !replaying {
            warn!(
                target: "everturn::runtime",
                instance_id = %self.record.identity.instance,
                "signal '{name}' found no open wait and is lost; use a queue for messages that may come early"
            );
        }
    }

    fn apply_cancellation(&self, event: &Event) {
        let Some((cancelled, reason)) = cancellation_of(&event.kind) else { return };
        let source = event.source_event_id.unwrap_or_default();
        let mut state = self.shared.lock();
        let wakeup = state.cancel_subscription(cancelled, source);
        if reason == Some(CancelReason::DroppedFuture) {
            state.expect_drop(cancelled, source);
        }
        drop(state);
        wakeup.wake();
    }
}
