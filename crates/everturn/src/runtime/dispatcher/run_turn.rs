//! Taking a turn of the user's code and committing it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use everturn_core::turn::{Execution, Turn, TurnClock, TurnOutcome};
use everturn_core::{EventKind, WorkItem};
use tokio::sync::SemaphorePermit;
use tokio::task::unconstrained;
use tokio::time::Instant;

use super::super::node::Node;
use super::super::warm_cache::{CheckInSlot, WarmEntry};
use super::commit_turn::{TurnCommitOutcome, TurnEffects};
use super::locked_instance::LockedInstance;
use super::record_failure::record_failure;
use super::shadow_replay::{self, ShadowedTurn};
use super::turn_report::TurnReport;

/// Delay before an instance whose turn hit a bug of the engine is offered again.
const AFTER_ENGINE_PANIC: Duration = Duration::from_secs(1);

/// An execution and the messages of its next turn.
pub(super) struct ReadyTurn {
    pub(super) entry: WarmEntry,
    /// Whether the execution was in memory, not replayed.
    pub(super) was_warm: bool,
    pub(super) messages: Vec<WorkItem>,
    /// Messages to other instances that are committed with this turn.
    pub(super) notices: Vec<WorkItem>,
}

/// The two times of a turn.
pub(super) struct NodeTime<'a>(pub(super) &'a Node);

impl TurnClock for NodeTime<'_> {
    fn store_ms(&self) -> u64 {
        self.0.store.now_ms()
    }

    fn stamp_ms(&self) -> u64 {
        self.0.clock().wall_ms()
    }
}

/// Voids an uncommitted entry when its turn ends, also if the turn is dropped: a commit that is still under way in the
/// store must not put the execution into memory after that.
pub(super) struct VoidOnDrop(pub(super) Arc<CheckInSlot>);

impl Drop for VoidOnDrop {
    fn drop(&mut self) {
        self.0.void();
    }
}

/// Takes the turn, compares it with a replay if that is due, and commits it.
pub(super) async fn run_turn(locked: LockedInstance<'_>, ready: ReadyTurn) {
    let node = locked.node;
    let began = Instant::now();
    let ReadyTurn { mut entry, was_warm, messages, notices } = ready;
    let shadowed =
        (was_warm && shadow_replay::is_due(node)).then(|| ShadowedTurn::new(&entry, messages.clone()));
    let events_before = entry.execution().map_or(0, Execution::event_count);
    let turn = match run_code(&locked, &mut entry, messages).await {
        Ok(turn) => turn,
        Err(NoTurn::LockLost) => {
            drop(entry);
            return locked.leave_unbegun();
        }
        Err(NoTurn::EnginePanicked) => {
            drop(entry);
            return locked.abandon(Some(AFTER_ENGINE_PANIC), false).await;
        }
    };
    entry.turns += 1;
    let event_count = events_before + turn.history_delta.len();
    let report = TurnReport::of_turn(node, locked.worker_id, &locked.instance, &entry, event_count, began);
    let difference = match shadowed {
        Some(shadowed) => {
            let _place = locked.slot.place().await;
            let permit = async { node.turn_slots.acquire().await.ok() };
            shadowed.difference(node, &locked.instance, None, &turn, permit).await.found()
        }
        // A step that was not committed because its replay differed: it is judged here, under the lock.
        None => locked.base.and_then(|base| node.steps.take_difference(&locked.instance, base)),
    };
    if let Some(difference) = difference {
        drop(entry);
        return record_failure(locked, report, None, notices, difference).await;
    }
    let stamp = node.new_stamp();
    entry.stamp = stamp;
    // Only an execution that waits is worth keeping, and only once its commit is durable.
    let keeps = turn.outcome == TurnOutcome::Continue && node.warm.is_enabled();
    let slot = keeps
        .then(|| VoidOnDrop(Arc::new(CheckInSlot::new(locked.instance.clone(), entry, node.warm.clone()))));
    let warm_slot = slot.as_ref().map(|VoidOnDrop(slot)| Arc::clone(slot));
    let mut orchestrator_items = turn.orchestrator_items;
    orchestrator_items.extend(notices.iter().cloned());
    let effects = TurnEffects {
        history_delta: turn.history_delta,
        worker_items: turn.worker_items,
        orchestrator_items,
        cancelled_activities: turn.cancelled_activities,
        cancelled_children: turn.cancelled_children,
    };
    let (outcome, history_delta) = locked.commit_turn(report.execution_id, effects, stamp, warm_slot).await;
    drop(slot);
    match outcome {
        TurnCommitOutcome::Durable => report.committed(&history_delta),
        TurnCommitOutcome::GivenUp(error) => locked.give_up(report.execution_id, &error).await,
        TurnCommitOutcome::Refused(error) if was_warm => {
            locked.warn_not_committed(report.execution_id, &error);
            // Perhaps memory was wrong: the next fetch replays what is stored.
            locked.abandon(None, false).await;
        }
        TurnCommitOutcome::Refused(error) => {
            locked.warn_not_committed(report.execution_id, &error);
            // The start event, if nothing of the execution was stored before this turn.
            let first = history_delta.into_iter().next();
            let start = first.filter(|event| matches!(event.kind, EventKind::OrchestrationStarted { .. }));
            record_failure(locked, report, start, notices, error.to_infrastructure_error()).await;
        }
    }
}

/// Why there is no turn.
enum NoTurn {
    /// The lock was lost before the code could run.
    LockLost,
    /// Code that panics is an outcome like any other; this is a bug of the engine.
    EnginePanicked,
}

/// Runs the user's code.
async fn run_code(
    locked: &LockedInstance<'_>,
    entry: &mut WarmEntry,
    messages: Vec<WorkItem>,
) -> Result<Turn, NoTurn> {
    let place_and_permit = async {
        let place = locked.slot.place().await;
        (place, locked.node.turn_slots.acquire().await.ok())
    };
    let (_place, permit) = tokio::select! {
        biased;
        both = place_and_permit => both,
        () = locked.lock.lost() => return Err(NoTurn::LockLost),
    };
    if !locked.begin() {
        return Err(NoTurn::LockLost);
    }
    let execution = entry.execution_mut().ok_or(NoTurn::EnginePanicked)?;
    let turn = take_turn(permit, execution, messages, locked.node).await;
    if turn.is_err() {
        tracing::error!(target: "everturn::runtime", instance_id = %locked.instance,
            execution_id = %locked.execution_id, worker_id = %locked.worker_id,
            "the engine panicked in a turn; abandoning the lock, the turn is tried again; please report this bug");
    }
    turn.map_err(|_panic| NoTurn::EnginePanicked)
}

/// Takes a turn with one of the permits that turns of fetched instances and of fused steps share. It has no cooperative budget
/// of tokio: what is left of that is chance, and a resource of tokio that the code uses would be pending when it is spent.
/// Fails if the engine itself panicked.
pub(super) async fn take_turn(
    _permit: Option<SemaphorePermit<'_>>,
    execution: &mut Execution,
    messages: Vec<WorkItem>,
    node: &Node,
) -> std::thread::Result<Turn> {
    let time = NodeTime(node);
    unconstrained(async { catch_unwind(AssertUnwindSafe(|| execution.take_turn(messages, &time))) }).await
}
