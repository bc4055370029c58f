//! How a turn ends.

use super::apply::DROPPED_FUTURE;
use super::closing::Ending;
use super::decide::Draft;
use super::{Execution, Turn, TurnClock};
use crate::exchange::Droppable;
use crate::{Bug, ErrorDetails, EventKind, planted};

impl Execution {
    /// Decides the outcome: a cancel wins over everything, continue-as-new over what the code returned.
    pub(super) fn finalise(&mut self, mut draft: Draft, clock: &dyn TurnClock) -> Turn {
        if let Some(reason) = self.ledger.cancel_reason().map(str::to_owned) {
            return self.cancel(draft, reason, clock);
        }
        if let Some(successor) = draft.successor.take() {
            return self.continue_as_new(draft, successor, clock);
        }
        if let Err(details) = self.collect_drops(&mut draft, clock) {
            return self.fail_hard(draft, details, clock);
        }
        match self.output.take() {
            None => self.continue_waiting(draft),
            Some(Ok(output)) => self.end(draft, Ending::Completed { output }, clock),
            Some(Err(text)) => {
                let details = ErrorDetails::orchestration_failed(text);
                self.end(draft, Ending::Failed { details }, clock)
            }
        }
    }

    /// Records what the code dropped during this turn, and checks that it dropped again what it had dropped before.
    fn collect_drops(&mut self, draft: &mut Draft, clock: &dyn TurnClock) -> Result<(), ErrorDetails> {
        self.check_drops_repeated()?;
        for kind in Droppable::ALL {
            let drops = self.exchange.state().drops.get(&kind).cloned().unwrap_or_default();
            for source in drops {
                let reason = DROPPED_FUTURE.to_owned();
                let event =
                    self.event(self.ledger.next_event_id(), Some(source), clock, cancellation(kind, reason));
                self.apply(&event, None)?;
                self.append(event, draft);
                match kind {
                    Droppable::Activity if planted(Bug::DroppedNotWithdrawn) => {}
                    Droppable::Activity => draft.cancelled_activities.push(source),
                    // A call that was answered has no child to cancel any more; where it was refused, or its id was
                    // taken, the instance of that id is somebody else's.
                    Droppable::SubOrchestration if !self.ledger.is_completed(source) => {
                        draft.dropped_children.push(source);
                    }
                    Droppable::SubOrchestration | Droppable::Wait | Droppable::Dequeue => {}
                }
            }
        }
        Ok(())
    }

    fn check_drops_repeated(&self) -> Result<(), ErrorDetails> {
        let state = self.exchange.state();
        let Some((kind, recorded)) = state.unrepeated_drops.iter().find(|(_, recorded)| !recorded.is_empty())
        else {
            return Ok(());
        };
        let repeated = state.drops.get(kind).cloned().unwrap_or_default();
        Err(ErrorDetails::nondeterminism(format!(
            "cancellation mismatch ({}): baseline_dropped_future_cancel_requests={recorded:?} \
             ctx_cancelled_in_replayed_segment={repeated:?} (history recorded these futures as dropped, the code now \
             keeps them)",
            plural(*kind)
        )))
    }
}

fn plural(kind: Droppable) -> &'static str {
    match kind {
        Droppable::Activity => "activities",
        Droppable::SubOrchestration => "sub-orchestrations",
        Droppable::Wait => "external waits",
        Droppable::Dequeue => "persistent waits",
    }
}

/// What an event says is no longer wanted, and why, if it is such an event.
pub(super) fn cancellation_of(kind: &EventKind) -> Option<(Droppable, &str)> {
    let (droppable, reason) = match kind {
        EventKind::ActivityCancelRequested { reason } => (Droppable::Activity, reason),
        EventKind::SubOrchestrationCancelRequested { reason } => (Droppable::SubOrchestration, reason),
        EventKind::ExternalSubscribedCancelled { reason } => (Droppable::Wait, reason),
        EventKind::QueueSubscriptionCancelled { reason } => (Droppable::Dequeue, reason),
        _ => return None,
    };
    Some((droppable, reason))
}

/// The event that records that something is no longer wanted.
pub(super) fn cancellation(kind: Droppable, reason: String) -> EventKind {
    match kind {
        Droppable::Activity => EventKind::ActivityCancelRequested { reason },
        Droppable::SubOrchestration => EventKind::SubOrchestrationCancelRequested { reason },
        Droppable::Wait => EventKind::ExternalSubscribedCancelled { reason },
        Droppable::Dequeue => EventKind::QueueSubscriptionCancelled { reason },
    }
}
