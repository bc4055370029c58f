//! The last events of an execution: what is open is cancelled, and a parent is notified how its child ended.

use std::collections::BTreeSet;

use super::cancellation::{CancelReason, Cancellable};
use super::draft::TurnDraft;
use super::history_index::{CompletableKind, HistoryIndex};
use super::record::ExecutionRecord;
use super::start_event::StartEvent;
use super::{CancelledChild, ExecutionIdentity, Turn, TurnClock, TurnOutcome};
use crate::{ErrorDetails, Event, EventKind, build_child_instance_id};

/// How an execution ends.
pub(super) enum ExecutionEnd {
    Completed { output: String },
    Failed { details: ErrorDetails },
    ContinuedAsNew { input: String },
    Cancelled { reason: String },
}

/// What is open where a history ends.
pub(super) struct StillOpen {
    /// The last event that is recorded; later events in the index were decided and then discarded.
    pub(super) last_event_id: u64,
    pub(super) signal_waits: BTreeSet<u64>,
    pub(super) queue_reads: BTreeSet<u64>,
}

impl ExecutionRecord {
    /// Ends the history: open waits and queue reads are cancelled, the terminal event follows, then open activities
    /// are cancelled.
    pub(super) fn end(
        &self,
        mut draft: TurnDraft,
        end: ExecutionEnd,
        still_open: StillOpen,
        clock: &dyn TurnClock,
    ) -> Turn {
        let StillOpen { last_event_id, signal_waits, queue_reads } = still_open;
        let notice = |result: Result<&str, &ErrorDetails>| self.start.as_ref()?.parent_notice(result);
        let (terminal_event, activity_reason, notice, outcome) = match end {
            ExecutionEnd::Completed { output } => (
                EventKind::OrchestrationCompleted { output: output.clone() },
                CancelReason::Completed,
                notice(Ok(&output)),
                TurnOutcome::Completed { output },
            ),
            ExecutionEnd::Failed { details } => (
                EventKind::OrchestrationFailed { details: details.clone() },
                CancelReason::Failed,
                notice(Err(&details)),
                TurnOutcome::Failed { details },
            ),
            ExecutionEnd::ContinuedAsNew { input } => (
                EventKind::OrchestrationContinuedAsNew { input: input.clone() },
                CancelReason::ContinuedAsNew,
                None,
                TurnOutcome::ContinuedAsNew { input },
            ),
            ExecutionEnd::Cancelled { reason } => {
                let details = ErrorDetails::cancelled(reason.as_str());
                let notice = notice(Err(&details));
                let event = EventKind::OrchestrationFailed { details };
                (event, CancelReason::Failed, notice, TurnOutcome::Cancelled { reason })
            }
        };
        let mut event_id = last_event_id;
        let mut append = |source: Option<u64>, kind: EventKind| {
            event_id = event_id.saturating_add(1);
            let ExecutionIdentity { instance, execution_id, .. } = &self.identity;
            draft.delta.push(Event::stamped(
                event_id,
                instance,
                *execution_id,
                source,
                clock.stamp_ms(),
                kind,
            ));
        };
        for wait in signal_waits.range(..=last_event_id) {
            append(Some(*wait), Cancellable::SignalWait.event(CancelReason::Ended));
        }
        for read in queue_reads.range(..=last_event_id) {
            append(Some(*read), Cancellable::QueueRead.event(CancelReason::Ended));
        }
        append(None, terminal_event);
        for activity in self.history.open(CompletableKind::Activity, last_event_id) {
            append(Some(activity), Cancellable::Activity.event(activity_reason));
            draft.cancelled_activities.push(activity);
        }
        Turn {
            outcome,
            history_delta: draft.delta,
            worker_items: Vec::new(),
            orchestrator_items: notice.into_iter().collect(),
            cancelled_activities: draft.cancelled_activities,
            cancelled_children: Vec::new(),
        }
    }

    /// Fails the execution: what it received is recorded, what the code decided is not.
    ///
    /// The code may not have run at all, so that only counting tells which waits are open.
    pub(super) fn fail(&self, mut draft: TurnDraft, details: ErrorDetails, clock: &dyn TurnClock) -> Turn {
        draft.delta.truncate(draft.received);
        draft.cancelled_activities.clear();
        let last_event_id = draft.received_event_id;
        let still_open = StillOpen {
            last_event_id,
            signal_waits: self.history.signal_waits.open().collect(),
            queue_reads: self.history.queue_reads.open().collect(),
        };
        let mut turn = self.end(draft, ExecutionEnd::Failed { details }, still_open, clock);
        turn.cancelled_children = self.cancel_children(last_event_id, "parent failed");
        turn
    }

    /// The children that were started up to this event and have neither ended nor been cancelled.
    pub(super) fn cancel_children(&self, last_event_id: u64, reason: &str) -> Vec<CancelledChild> {
        let children = self.history.open(CompletableKind::SubOrchestration, last_event_id);
        children.filter_map(|id| self.cancel_child(id, reason)).collect()
    }

    /// The child that a schedule event started, unless it has ended.
    pub(super) fn cancel_child(&self, schedule_id: u64, reason: &str) -> Option<CancelledChild> {
        let child = self.history.unfinished_child(schedule_id)?;
        let instance = build_child_instance_id(&self.identity.instance, child);
        Some(CancelledChild { instance, schedule_id, reason: reason.to_owned() })
    }
}

/// Fails an execution without running its code: the turn to commit if the turn that the code took cannot be committed.
///
/// `history` is the stored history of the execution; if it is empty, `start` is recorded first. The turn contains no
/// decision of the code and no message.
pub fn fail_from_outside(
    identity: &ExecutionIdentity,
    history: &[Event],
    start: Option<Event>,
    details: ErrorDetails,
    payload_bytes_max: usize,
    clock: &dyn TurnClock,
) -> Turn {
    let start = start.filter(|_| history.is_empty());
    let mut record =
        ExecutionRecord { identity: identity.clone(), start: None, history: HistoryIndex::default() };
    for event in history.iter().chain(&start) {
        record.history.record(event);
        record.start = record.start.or_else(|| StartEvent::of(event));
    }
    let delta: Vec<Event> = start.into_iter().collect();
    let draft = TurnDraft {
        received: delta.len(),
        received_event_id: record.history.last_event_id,
        delta,
        ..TurnDraft::default()
    };
    record.fail(draft, details.cut_to(payload_bytes_max), clock)
}
