//! Taking a turn and committing it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use everturn_core::turn::{Execution, Turn, TurnClock, TurnOutcome};
use everturn_core::{EventKind, WorkItem};
use tokio::time::Instant;

use super::super::node::Node;
use super::super::warm_cache::{CheckInSlot, WarmEntry};
use super::claim::{Claim, Decisions};
use super::commit::Committed;
use super::outcome_metrics::TurnReport;
use super::{refusal, shadow};

/// How long an instance rests whose turn met a bug of the engine.
const AFTER_ENGINE_PANIC: Duration = Duration::from_secs(1);

/// An execution and what it is to be given.
pub(crate) struct PreparedTurn {
    pub(crate) entry: WarmEntry,
    /// Whether the execution was in memory, not replayed.
    pub(crate) was_warm: bool,
    pub(crate) messages: Vec<WorkItem>,
    /// Notices to other instances that go out with this turn.
    pub(crate) notices: Vec<WorkItem>,
}

/// The two times of a turn.
pub(crate) struct NodeTime<'a>(pub(crate) &'a Node);

impl TurnClock for NodeTime<'_> {
    fn store_ms(&self) -> u64 {
        self.0.store.now_ms()
    }

    fn stamp_ms(&self) -> u64 {
        self.0.clock().wall_ms()
    }
}

/// Takes the turn and commits it, or records why it cannot be.
pub(crate) async fn run(claim: Claim<'_>, prepared: PreparedTurn) {
    let node = claim.node;
    let began = Instant::now();
    let PreparedTurn { mut entry, was_warm, messages, notices } = prepared;
    let shadowed =
        (was_warm && shadow::is_due(node)).then(|| shadow::WarmTurn::new(&entry, messages.clone()));
    let events_before = entry.execution().map_or(0, Execution::event_count);
    let Ok(turn) = take_turn(&claim, &mut entry, messages) else {
        drop(entry);
        claim.abandon(Some(AFTER_ENGINE_PANIC), false).await;
        return;
    };
    entry.turns += 1;
    let execution_id = entry.execution_id;
    let report = TurnReport {
        facts: Arc::clone(&entry.facts),
        execution_id,
        turns: entry.turns,
        event_count: events_before + turn.history_delta.len(),
        began,
    };
    if let Some(shadowed) = shadowed
        && let Some(difference) = shadowed.differs(&claim, &turn).await
    {
        drop(entry);
        refusal::record(claim, report, None, notices, difference).await;
        return;
    }
    commit(claim, entry, turn, was_warm, notices, report).await;
}

/// The engine itself panicked: code that panics is an outcome like any other.
struct EnginePanicked;

/// Runs the user's code.
fn take_turn(
    claim: &Claim<'_>,
    entry: &mut WarmEntry,
    messages: Vec<WorkItem>,
) -> Result<Turn, EnginePanicked> {
    let execution = entry.execution_mut().ok_or(EnginePanicked)?;
    let time = NodeTime(claim.node);
    catch_unwind(AssertUnwindSafe(|| execution.take_turn(messages, &time))).map_err(|_| {
        tracing::error!(target: "everturn::runtime", instance_id = %claim.instance,
            execution_id = %claim.execution_id, worker_id = %claim.worker_id,
            "the engine panicked in a turn, the instance is set aside; please report this");
        EnginePanicked
    })
}

/// Voids what was not checked in when its turn ends, also by being dropped: a commit that is still under way in the
/// store must not bring an execution back after that.
struct VoidOnDrop(Arc<CheckInSlot>);

impl Drop for VoidOnDrop {
    fn drop(&mut self) {
        self.0.void();
    }
}

async fn commit(
    claim: Claim<'_>,
    mut entry: WarmEntry,
    turn: Turn,
    was_warm: bool,
    notices: Vec<WorkItem>,
    report: TurnReport,
) {
    let node = claim.node;
    let stamp = node.new_stamp();
    entry.stamp = stamp;
    // Only an execution that waits is worth keeping, and only once its commit is durable.
    let keeps = turn.outcome == TurnOutcome::Continue && node.warm.is_enabled();
    let slot = keeps
        .then(|| VoidOnDrop(Arc::new(CheckInSlot::new(claim.instance.clone(), entry, node.warm.clone()))));
    let kept = slot.as_ref().map(|VoidOnDrop(slot)| Arc::clone(slot));
    let mut orchestrator_items = turn.orchestrator_items;
    orchestrator_items.extend(notices.iter().cloned());
    let decisions = Decisions {
        history_delta: turn.history_delta,
        worker_items: turn.worker_items,
        orchestrator_items,
        cancelled_activities: turn.cancelled_activities,
    };
    let (committed, commit) = claim.commit(report.execution_id, decisions, stamp, kept).await;
    drop(slot);
    match committed {
        Committed::Yes => report.tell(&claim, &commit.history_delta),
        Committed::GivenUp(error) => {
            claim.warn_not_committed(report.execution_id, &error);
            if error.is_history_moved() {
                // The lock is still ours, and nobody needs to wait for its end.
                claim.abandon(None, false).await;
            }
        }
        Committed::Refused(error) if was_warm => {
            // Perhaps memory was wrong: the next fetch replays what is stored.
            claim.warn_not_committed(report.execution_id, &error);
            claim.abandon(None, false).await;
        }
        Committed::Refused(error) => {
            claim.warn_not_committed(report.execution_id, &error);
            let start = commit
                .history_delta
                .into_iter()
                .next()
                .filter(|event| matches!(event.kind, EventKind::OrchestrationStarted { .. }));
            refusal::record(claim, report, start, notices, error.to_infrastructure_error()).await;
        }
    }
}
