//! From an outcome to what is written and sent.

use super::closing::{Closing, Ending, StillOpen};
use super::decide::{Draft, Pending, Successor};
use super::{Execution, ExecutionIdentity, Turn, TurnClock};
use crate::action::Action;
use crate::{Bug, ErrorDetails, INITIAL_EXECUTION_ID, WorkItem, build_child_instance_id, planted};

/// Why a child is cancelled whose future was dropped.
const DROPPED_CHILD: &str = "parent dropped sub-orchestration future";

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
        let dropped = self.closing().cancels(&draft.dropped_children, DROPPED_CHILD);
        turn.orchestrator_items.extend(dropped);
        turn.cancelled_activities = draft.cancelled_activities;
        turn.history_delta = draft.delta;
        turn
    }

    /// The code returned: what it started detached is sent, what it asked for beside that is not.
    pub(super) fn end(&mut self, mut draft: Draft, ending: Ending, clock: &dyn TurnClock) -> Turn {
        // A child that was asked for and dropped in this very turn was never started.
        let dropped =
            std::mem::take(&mut draft.dropped_children).into_iter().filter(|id| *id <= draft.fixed_event_id);
        let dropped: Vec<u64> = dropped.collect();
        let mut items = self.detached_starts(&mut draft);
        let mut turn = self.closing().close(draft, ending, self.still_open(), clock);
        items.append(&mut turn.orchestrator_items);
        items.extend(self.closing().cancels(&dropped, DROPPED_CHILD));
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
        let ending = Ending::ContinuedAsNew { input };
        let mut turn = self.closing().close(draft, ending, self.still_open(), clock);
        turn.orchestrator_items = items;
        turn
    }

    fn successor(&self, input: String, version: Option<String>) -> WorkItem {
        let start = self.start.as_ref();
        let state = self.exchange.state();
        let unread = state.queues.unread().filter(|_| !planted(Bug::UnreadDropped));
        WorkItem::ContinueAsNew {
            instance: self.identity.instance.clone(),
            orchestration: self.identity.orchestration_name.clone(),
            input,
            version,
            parent_instance: start.and_then(|start| start.parent_instance.clone()),
            parent_id: start.and_then(|start| start.parent_id),
            parent_execution_id: start.and_then(|start| start.parent_execution_id),
            carry_forward_events: unread.cloned().collect(),
            initial_custom_status: state.custom_status.clone(),
        }
    }

    /// The instance was cancelled: so are its children.
    pub(super) fn cancel(&mut self, draft: Draft, reason: String, clock: &dyn TurnClock) -> Turn {
        let closing = self.closing();
        let children = closing.children_under_way(draft.fixed_event_id);
        let mut turn = closing.close(draft, Ending::Cancelled { reason }, self.still_open(), clock);
        turn.orchestrator_items.extend(closing.cancels(&children, "parent canceled"));
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
        self.closing().fail(draft, details.cut_to(self.payload_bytes_max), clock)
    }

    fn closing(&self) -> Closing<'_> {
        Closing { identity: &self.identity, start: self.start.as_ref(), ledger: &self.ledger }
    }

    /// What is open in an execution whose code went through its whole history.
    fn still_open(&self) -> StillOpen {
        let state = self.exchange.state();
        let open = |mut ids: Vec<u64>| {
            ids.retain(|id| !state.was_answered(*id));
            ids
        };
        StillOpen {
            last: self.ledger.last_event_id(),
            waits: open(self.ledger.uncancelled_waits()),
            dequeues: open(self.ledger.uncancelled_dequeues()),
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
