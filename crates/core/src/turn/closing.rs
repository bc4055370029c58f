//! How a history is closed: what is open is cancelled, and whoever waits for the instance is told.

use super::decide::Draft;
use super::finalise::cancellation;
use super::ledger::Ledger;
use super::start::Start;
use super::{ExecutionIdentity, Turn, TurnClock, TurnOutcome};
use crate::exchange::Droppable;
use crate::{ErrorDetails, Event, EventKind, WorkItem, build_child_instance_id};

/// Why waits and queue reads are cancelled that are open at the end.
const ENDED: &str = "orchestration_terminal";

/// How an execution ends.
pub(super) enum Ending {
    Completed { output: String },
    Failed { details: ErrorDetails },
    ContinuedAsNew { input: String },
    Cancelled { reason: String },
}

impl Ending {
    fn event(&self) -> EventKind {
        match self {
            Self::Completed { output } => EventKind::OrchestrationCompleted { output: output.clone() },
            Self::Failed { details } => EventKind::OrchestrationFailed { details: details.clone() },
            Self::ContinuedAsNew { input } => EventKind::OrchestrationContinuedAsNew { input: input.clone() },
            Self::Cancelled { reason } => {
                EventKind::OrchestrationFailed { details: ErrorDetails::cancelled(reason) }
            }
        }
    }

    /// Why activities are cancelled that are open then.
    fn activity_reason(&self) -> &'static str {
        match self {
            Self::Completed { .. } => "orchestration_terminal_completed",
            Self::Failed { .. } | Self::Cancelled { .. } => "orchestration_terminal_failed",
            Self::ContinuedAsNew { .. } => "orchestration_terminal_continued_as_new",
        }
    }

    fn parent_notice(&self, start: &Start) -> Option<WorkItem> {
        match self {
            Self::Completed { output } => start.notice(Ok(output)),
            Self::Failed { details } => start.notice(Err(details)),
            Self::Cancelled { reason } => start.notice(Err(&ErrorDetails::cancelled(reason))),
            Self::ContinuedAsNew { .. } => None,
        }
    }

    fn into_outcome(self) -> TurnOutcome {
        match self {
            Self::Completed { output } => TurnOutcome::Completed { output },
            Self::Failed { details } => TurnOutcome::Failed { details },
            Self::ContinuedAsNew { input } => TurnOutcome::ContinuedAsNew { input },
            Self::Cancelled { reason } => TurnOutcome::Cancelled { reason },
        }
    }
}

/// What is open where a history ends.
pub(super) struct StillOpen {
    /// The last event that stands; whatever the ledger knows beyond it was forgotten.
    pub(super) last: u64,
    pub(super) waits: Vec<u64>,
    pub(super) dequeues: Vec<u64>,
}

/// An execution as its record knows it, without its code.
pub(super) struct Closing<'a> {
    pub(super) identity: &'a ExecutionIdentity,
    pub(super) start: Option<&'a Start>,
    pub(super) ledger: &'a Ledger,
}

impl Closing<'_> {
    /// Ends the history: waits are closed, the terminal event follows, then open activities are cancelled.
    pub(super) fn close(
        &self,
        mut draft: Draft,
        ending: Ending,
        still_open: StillOpen,
        clock: &dyn TurnClock,
    ) -> Turn {
        let StillOpen { last, waits, dequeues } = still_open;
        let stands = |id: &u64| *id <= last;
        let mut ids = last.saturating_add(1)..;
        let mut append = |draft: &mut Draft, source: Option<u64>, kind: EventKind| {
            let event_id = ids.next().unwrap_or(u64::MAX);
            draft.delta.push(self.identity.event(event_id, source, clock, kind));
        };
        for wait in waits.into_iter().filter(stands) {
            append(&mut draft, Some(wait), cancellation(Droppable::Wait, ENDED.to_owned()));
        }
        for dequeue in dequeues.into_iter().filter(stands) {
            append(&mut draft, Some(dequeue), cancellation(Droppable::Dequeue, ENDED.to_owned()));
        }
        append(&mut draft, None, ending.event());
        for activity in self.ledger.open_activities().filter(stands) {
            let reason = ending.activity_reason().to_owned();
            append(&mut draft, Some(activity), cancellation(Droppable::Activity, reason));
            draft.cancelled_activities.push(activity);
        }
        Turn {
            orchestrator_items: self
                .start
                .and_then(|start| ending.parent_notice(start))
                .into_iter()
                .collect(),
            outcome: ending.into_outcome(),
            history_delta: draft.delta,
            worker_items: Vec::new(),
            cancelled_activities: draft.cancelled_activities,
        }
    }

    /// Fails the execution. Its code may not have been asked at all, so that counting decides what is open.
    pub(super) fn fail(&self, draft: Draft, details: ErrorDetails, clock: &dyn TurnClock) -> Turn {
        let last = draft.fixed_event_id;
        let children = self.children_under_way(last);
        let still_open =
            StillOpen { last, waits: self.ledger.open_waits(), dequeues: self.ledger.open_dequeues() };
        let mut turn = self.close(draft, Ending::Failed { details }, still_open, clock);
        turn.orchestrator_items.extend(self.cancels(&children, "parent failed"));
        turn
    }

    /// Children that were started up to this event and neither ended nor were cancelled.
    pub(super) fn children_under_way(&self, last: u64) -> Vec<u64> {
        self.ledger.open_children().filter(|id| *id <= last).collect()
    }

    /// Cancel messages to those of these children that have not ended, named by their schedule events.
    pub(super) fn cancels(&self, children: &[u64], reason: &str) -> Vec<WorkItem> {
        let instances = children.iter().filter_map(|id| self.ledger.child_under_way(*id));
        let cancels = instances.map(|child| WorkItem::CancelInstance {
            instance: build_child_instance_id(&self.identity.instance, child),
            reason: reason.to_owned(),
        });
        cancels.collect()
    }
}

/// Fails an execution from outside its code: the turn to commit when the one the code took cannot be.
///
/// `history` is what is stored of the execution; if that is nothing, `start` is recorded first. Nothing of what the
/// code decided, and none of the messages it was given, is in it.
pub fn fail_from_outside(
    identity: &ExecutionIdentity,
    history: &[Event],
    start: Option<Event>,
    details: ErrorDetails,
    payload_bytes_max: usize,
    clock: &dyn TurnClock,
) -> Turn {
    let mut draft = Draft::default();
    draft.delta.extend(start.filter(|_| history.is_empty()));
    let mut ledger = Ledger::default();
    for event in history.iter().chain(&draft.delta) {
        ledger.record(event);
    }
    let start = history.iter().chain(&draft.delta).find_map(Start::of);
    draft.fix(&ledger);
    let closing = Closing { identity, start: start.as_ref(), ledger: &ledger };
    closing.fail(draft, details.cut_to(payload_bytes_max), clock)
}
