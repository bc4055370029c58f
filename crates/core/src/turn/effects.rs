//! From an outcome to what is written and sent.

use super::decide::{Draft, Pending, Successor};
use super::finalise::cancellation;
use super::{Execution, ExecutionIdentity, Turn, TurnClock, TurnOutcome};
use crate::action::Action;
use crate::exchange::Droppable;
use crate::{ErrorDetails, EventKind, INITIAL_EXECUTION_ID, WorkItem, build_child_instance_id};

/// Where a history ends.
struct Ending {
    /// The last event that stands; whatever the ledger knows beyond it was forgotten.
    last: u64,
    /// The waits that are still open then.
    waits: Vec<u64>,
    /// The queue reads that are still open then.
    dequeues: Vec<u64>,
}

impl Execution {
    /// The code waits: everything it asked for is dispatched.
    pub(super) fn continue_waiting(&mut self, draft: Draft) -> Turn {
        let mut turn = Turn::nothing();
        for Pending { event_id, action, child } in draft.pending {
            match work_item(&self.identity, event_id, action, child) {
                Some(item @ WorkItem::ActivityExecute { .. }) => turn.worker_items.push(item),
                Some(item) => turn.orchestrator_items.push(item),
                None => {}
            }
        }
        let dropped = self.cancels(&draft.dropped_children, "parent dropped sub-orchestration future");
        turn.orchestrator_items.extend(dropped);
        turn.cancelled_activities = draft.cancelled_activities;
        turn.history_delta = draft.delta;
        turn
    }

    /// The code returned: what it started detached is sent, what it asked for beside that is not.
    pub(super) fn end(&mut self, mut draft: Draft, outcome: TurnOutcome, clock: &dyn TurnClock) -> Turn {
        // A child that was asked for and dropped in this very turn was never started.
        let dropped =
            std::mem::take(&mut draft.dropped_children).into_iter().filter(|id| *id <= draft.fixed_event_id);
        let dropped: Vec<u64> = dropped.collect();
        let mut items = self.detached_starts(&mut draft);
        let mut turn = self.terminal(draft, outcome, self.ending(), clock);
        items.append(&mut turn.orchestrator_items);
        items.extend(self.cancels(&dropped, "parent dropped sub-orchestration future"));
        turn.orchestrator_items = items;
        turn
    }

    /// The code asked for a successor: unread messages and the status go with it, children stay.
    pub(super) fn continue_as_new(
        &mut self,
        mut draft: Draft,
        successor: Successor,
        clock: &dyn TurnClock,
    ) -> Turn {
        let Successor { input, version } = successor;
        let mut items = vec![self.successor(input.clone(), version)];
        items.extend(self.detached_starts(&mut draft));
        let outcome = TurnOutcome::ContinuedAsNew { input };
        let mut turn = self.terminal(draft, outcome, self.ending(), clock);
        turn.orchestrator_items = items;
        turn
    }

    fn successor(&self, input: String, version: Option<String>) -> WorkItem {
        let start = self.start.as_ref();
        let state = self.exchange.state();
        WorkItem::ContinueAsNew {
            instance: self.identity.instance.clone(),
            orchestration: self.identity.orchestration_name.clone(),
            input,
            version,
            parent_instance: start.and_then(|start| start.parent_instance.clone()),
            parent_id: start.and_then(|start| start.parent_id),
            parent_execution_id: start.and_then(|start| start.parent_execution_id),
            carry_forward_events: state.queues.unread().cloned().collect(),
            initial_custom_status: state.custom_status.clone(),
        }
    }

    /// The instance was cancelled: so are its children.
    pub(super) fn cancel(&mut self, draft: Draft, reason: String, clock: &dyn TurnClock) -> Turn {
        let children = self.children_under_way(&draft);
        let outcome = TurnOutcome::Cancelled { reason };
        let mut turn = self.terminal(draft, outcome, self.ending(), clock);
        turn.orchestrator_items.extend(self.cancels(&children, "parent canceled"));
        turn
    }

    /// The turn cannot stand: what came in is recorded, what the code decided is not.
    pub(super) fn fail_hard(
        &mut self,
        mut draft: Draft,
        details: ErrorDetails,
        clock: &dyn TurnClock,
    ) -> Turn {
        draft.forget_decisions();
        let children = self.children_under_way(&draft);
        // The code may not have been asked at all, so that counting decides what is open.
        let ending = Ending {
            last: draft.fixed_event_id,
            waits: self.ledger.open_waits(),
            dequeues: self.ledger.open_dequeues(),
        };
        let mut turn = self.terminal(draft, TurnOutcome::Failed { details }, ending, clock);
        turn.orchestrator_items.extend(self.cancels(&children, "parent failed"));
        turn
    }

    /// The ending of an execution whose code went through its whole history.
    fn ending(&self) -> Ending {
        let state = self.exchange.state();
        let open = |mut ids: Vec<u64>| {
            ids.retain(|id| !state.was_answered(*id));
            ids
        };
        Ending {
            last: self.ledger.last_event_id(),
            waits: open(self.ledger.uncancelled_waits()),
            dequeues: open(self.ledger.uncancelled_dequeues()),
        }
    }

    /// Ends the history: waits are closed, the terminal event follows, then open activities are cancelled.
    fn terminal(
        &self,
        mut draft: Draft,
        outcome: TurnOutcome,
        ending: Ending,
        clock: &dyn TurnClock,
    ) -> Turn {
        let Ending { last, waits, dequeues } = ending;
        let stands = |id: &u64| *id <= last;
        let mut ids = last.saturating_add(1)..;
        let mut append = |draft: &mut Draft, source: Option<u64>, kind: EventKind| {
            let event_id = ids.next().unwrap_or(u64::MAX);
            draft.delta.push(self.event(event_id, source, clock, kind));
        };
        let closed = "orchestration_terminal";
        for wait in waits.into_iter().filter(stands) {
            append(&mut draft, Some(wait), cancellation(Droppable::Wait, closed.to_owned()));
        }
        for dequeue in dequeues.into_iter().filter(stands) {
            append(&mut draft, Some(dequeue), cancellation(Droppable::Dequeue, closed.to_owned()));
        }
        append(&mut draft, None, terminal_event(&outcome));
        for activity in self.ledger.open_activities().filter(stands) {
            let reason = activity_reason(&outcome).to_owned();
            append(&mut draft, Some(activity), cancellation(Droppable::Activity, reason));
            draft.cancelled_activities.push(activity);
        }
        Turn {
            orchestrator_items: self.parent_notice(&outcome).into_iter().collect(),
            outcome,
            history_delta: draft.delta,
            worker_items: Vec::new(),
            cancelled_activities: draft.cancelled_activities,
        }
    }

    /// The detached starts of a turn: they outlive the execution that asked for them.
    fn detached_starts(&self, draft: &mut Draft) -> Vec<WorkItem> {
        let pending = std::mem::take(&mut draft.pending).into_iter();
        let detached = pending.filter(|pending| matches!(pending.action, Action::StartDetached { .. }));
        let starts = detached
            .filter_map(|Pending { event_id, action, .. }| work_item(&self.identity, event_id, action, None));
        starts.collect()
    }

    fn parent_notice(&self, outcome: &TurnOutcome) -> Option<WorkItem> {
        let start = self.start.as_ref()?;
        match outcome {
            TurnOutcome::Completed { output } => start.notice(Ok(output)),
            TurnOutcome::Failed { details } => start.notice(Err(details)),
            TurnOutcome::Cancelled { reason } => start.notice(Err(&ErrorDetails::cancelled(reason))),
            TurnOutcome::Continue | TurnOutcome::ContinuedAsNew { .. } => None,
        }
    }

    /// Children that were started by an earlier turn and neither ended nor were cancelled.
    fn children_under_way(&self, draft: &Draft) -> Vec<u64> {
        self.ledger.open_children().filter(|id| *id <= draft.fixed_event_id).collect()
    }

    /// Cancel messages to those of these children that have not ended, named by their schedule events.
    fn cancels(&self, children: &[u64], reason: &str) -> Vec<WorkItem> {
        let instances = children.iter().filter_map(|id| self.ledger.child_under_way(*id));
        let cancels = instances.map(|child| WorkItem::CancelInstance {
            instance: build_child_instance_id(&self.identity.instance, child),
            reason: reason.to_owned(),
        });
        cancels.collect()
    }
}

fn terminal_event(outcome: &TurnOutcome) -> EventKind {
    match outcome {
        TurnOutcome::Completed { output } => EventKind::OrchestrationCompleted { output: output.clone() },
        TurnOutcome::ContinuedAsNew { input } => {
            EventKind::OrchestrationContinuedAsNew { input: input.clone() }
        }
        TurnOutcome::Failed { details } => EventKind::OrchestrationFailed { details: details.clone() },
        TurnOutcome::Cancelled { reason } => {
            EventKind::OrchestrationFailed { details: ErrorDetails::cancelled(reason) }
        }
        TurnOutcome::Continue => EventKind::OrchestrationCompleted { output: String::new() },
    }
}

fn activity_reason(outcome: &TurnOutcome) -> &'static str {
    match outcome {
        TurnOutcome::Completed { .. } | TurnOutcome::Continue => "orchestration_terminal_completed",
        TurnOutcome::Failed { .. } | TurnOutcome::Cancelled { .. } => "orchestration_terminal_failed",
        TurnOutcome::ContinuedAsNew { .. } => "orchestration_terminal_continued_as_new",
    }
}

/// The message that carries a decision out, if it needs one.
fn work_item(
    identity: &ExecutionIdentity,
    event_id: u64,
    action: Action,
    child: Option<String>,
) -> Option<WorkItem> {
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
