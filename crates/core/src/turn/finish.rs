//! The end of a turn: its outcome, and what it writes and sends.

use super::cancellation::{CancelReason, Cancellable};
use super::draft::{PendingDecision, Successor, TurnDraft};
use super::end_execution::{ExecutionEnd, StillOpen};
use super::work_items::work_item;
use super::{Execution, Turn, TurnClock, TurnOutcome};
use crate::action::Action;
use crate::{ErrorDetails, WorkItem};

impl Execution {
    /// Decides the outcome: a cancel request wins over everything, continue-as-new over what the code returned.
    pub(super) fn finish(&mut self, mut draft: TurnDraft, clock: &dyn TurnClock) -> Turn {
        if let Some(reason) = self.record.history.cancel_reason.clone() {
            let children = self.record.cancel_children(draft.received_event_id, "parent canceled");
            let mut turn = self.end(draft, ExecutionEnd::Cancelled { reason }, clock);
            turn.cancelled_children = children;
            return turn;
        }
        if let Some(successor) = draft.successor.take() {
            return self.continue_as_new(draft, successor, clock);
        }
        if let Err(details) = self.record_drops(&mut draft, clock) {
            return self.record.fail(draft, details.cut_to(self.payload_bytes_max), clock);
        }
        let end = match self.output.take() {
            None => return self.keep_waiting(draft),
            Some(Ok(output)) => ExecutionEnd::Completed { output },
            Some(Err(text)) => ExecutionEnd::Failed { details: ErrorDetails::orchestration_failed(text) },
        };
        // The code returned: the orchestrations that it started detached are sent, its other decisions are not.
        let mut items = self.detached_starts(std::mem::take(&mut draft.pending));
        // A child that the code asked for and dropped in this turn was never started.
        let started_before = draft.received_event_id;
        let mut dropped = std::mem::take(&mut draft.dropped_children);
        dropped.retain(|child| child.schedule_id <= started_before);
        let mut turn = self.end(draft, end, clock);
        items.append(&mut turn.orchestrator_items);
        turn.orchestrator_items = items;
        turn.cancelled_children = dropped;
        turn
    }

    /// Records the futures that the code dropped in this turn, and checks that it dropped again those that history
    /// records as dropped.
    fn record_drops(&mut self, draft: &mut TurnDraft, clock: &dyn TurnClock) -> Result<(), ErrorDetails> {
        let drops = {
            let state = self.shared.lock();
            let mut unrepeated = state.unrepeated_drops.iter().filter(|(_, recorded)| !recorded.is_empty());
            if let Some((kind, recorded)) = unrepeated.next() {
                let what = match kind {
                    Cancellable::Activity => "activities",
                    Cancellable::SubOrchestration => "sub-orchestrations",
                    Cancellable::SignalWait => "external waits",
                    Cancellable::QueueRead => "persistent waits",
                };
                let repeated = state.drops.get(kind).cloned().unwrap_or_default();
                return Err(ErrorDetails::nondeterminism(format!(
                    "cancellation mismatch ({what}): baseline_dropped_future_cancel_requests={recorded:?} \
                     ctx_cancelled_in_replayed_segment={repeated:?} (history recorded these futures as dropped, the \
                     code now keeps them)"
                )));
            }
            state.drops.clone()
        };
        for (kind, sources) in drops {
            for source in sources {
                let event =
                    self.record.next_event(Some(source), clock, kind.event(CancelReason::DroppedFuture));
                self.apply(&event, None)?;
                self.append(event, draft);
                match kind {
                    Cancellable::Activity => draft.cancelled_activities.push(source),
                    // A child that has ended is not cancelled, nor a call that was refused.
                    Cancellable::SubOrchestration => {
                        let child =
                            self.record.cancel_child(source, "parent dropped sub-orchestration future");
                        draft.dropped_children.extend(child);
                    }
                    Cancellable::SignalWait | Cancellable::QueueRead => {}
                }
            }
        }
        Ok(())
    }

    /// The code waits: everything it asked for is sent.
    fn keep_waiting(&self, draft: TurnDraft) -> Turn {
        let mut worker_items = Vec::new();
        let mut orchestrator_items = Vec::new();
        for decision in draft.pending {
            match work_item(&self.record.identity, decision) {
                Some(item @ WorkItem::ActivityExecute { .. }) => worker_items.push(item),
                Some(item) => orchestrator_items.push(item),
                None => {}
            }
        }
        Turn {
            outcome: TurnOutcome::Continue,
            history_delta: draft.delta,
            worker_items,
            orchestrator_items,
            cancelled_activities: draft.cancelled_activities,
            cancelled_children: draft.dropped_children,
        }
    }

    /// The code asked for a successor: unread messages and the custom status go to it, children keep running.
    fn continue_as_new(&mut self, mut draft: TurnDraft, successor: Successor, clock: &dyn TurnClock) -> Turn {
        let Successor { input, version } = successor;
        let start = self.record.start.as_ref();
        let next = {
            let state = self.shared.lock();
            WorkItem::ContinueAsNew {
                instance: self.record.identity.instance.clone(),
                orchestration: self.record.identity.orchestration_name.clone(),
                input: input.clone(),
                version,
                parent_instance: start.and_then(|start| start.parent_instance.clone()),
                parent_id: start.and_then(|start| start.parent_id),
                parent_execution_id: start.and_then(|start| start.parent_execution_id),
                carry_forward_events: state.queues.unread().cloned().collect(),
                initial_custom_status: state.custom_status.clone(),
            }
        };
        let mut items = vec![next];
        items.extend(self.detached_starts(std::mem::take(&mut draft.pending)));
        let mut turn = self.end(draft, ExecutionEnd::ContinuedAsNew { input }, clock);
        turn.orchestrator_items = items;
        turn
    }

    /// Ends an execution whose code went through its whole history, so that the code tells which waits are open.
    fn end(&self, draft: TurnDraft, end: ExecutionEnd, clock: &dyn TurnClock) -> Turn {
        let still_open = {
            let (state, history) = (self.shared.lock(), &self.record.history);
            let is_open = |id: &u64| !state.was_answered(*id);
            StillOpen {
                last_event_id: history.last_event_id,
                signal_waits: history.signal_waits.uncancelled().filter(is_open).collect(),
                queue_reads: history.queue_reads.uncancelled().filter(is_open).collect(),
            }
        };
        self.record.end(draft, end, still_open, clock)
    }

    /// The detached starts of a turn; they are sent although the execution ends.
    fn detached_starts(&self, pending: Vec<PendingDecision>) -> Vec<WorkItem> {
        let detached =
            pending.into_iter().filter(|decision| matches!(decision.action, Action::StartDetached { .. }));
        detached.filter_map(|decision| work_item(&self.record.identity, decision)).collect()
    }
}
