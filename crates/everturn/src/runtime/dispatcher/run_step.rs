//! Taking a turn on the outcomes of activities that ended in this process, and committing both together.
//!
//! The turn is taken without a lock of the instance. That is safe because the commit names the stamp that the turn builds
//! on: if anything else has changed the instance or waits for it, the store declines, the execution in memory is dropped,
//! and the outcomes go the ordinary way.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use everturn_core::WorkItem;
use everturn_core::turn::{Execution, Turn, TurnOutcome};
use everturn_provider::ProviderError;
use everturn_provider::store::{EndedWork, FetchedWork, Settlement, Stamp, StepAnswer, StepCommit};
use tokio::sync::SemaphorePermit;
use tokio::time::{Instant, timeout};

use super::super::lock_keeper::LockGuard;
use super::super::node::Node;
use super::super::retrying::{retry_while_locked, retrying};
use super::super::steps::{EndedActivity, StepLead, StepNews, TakenWork, WaitingActivity};
use super::super::uncounted_attempts::AttemptKey;
use super::super::warm_cache::{CheckInSlot, SteppingMark, WarmEntry};
use super::commit_turn::{PreparedTurn, TurnEffects};
use super::locked_instance::turn_key;
use super::run_turn::{VoidOnDrop, take_turn};
use super::shadow_replay::{self, ReplayComparison, ShadowedTurn};
use super::turn_report::TurnReport;

/// How long a step is tried again. The ordinary way is always open, and may need other rows.
const RETRIED_MAX: Duration = Duration::from_secs(5);

/// How long a step waits for its turn's permit. While the code of other turns does not return, outcomes are stored.
const PERMIT_WAIT_MAX: Duration = Duration::from_millis(20);

/// The worker that leads a step.
pub(crate) struct StepLeader<'a> {
    pub(crate) node: &'a Node,
    pub(crate) worker_id: &'a str,
    pub(crate) ended: &'a Arc<EndedActivity>,
    /// The lock of the leader's own activity.
    pub(crate) lock: &'a LockGuard,
}

/// The outcomes of one step.
struct StepBatch {
    /// Whether the leader's own outcome is among them.
    with_leader: bool,
    others: VecDeque<WaitingActivity>,
}

impl StepBatch {
    /// The outcomes that the execution waits for; the others go the ordinary way. An earlier step may have cancelled an
    /// activity that has ended since.
    fn awaited(entry: &WarmEntry, leader: &EndedActivity, waiting: VecDeque<WaitingActivity>) -> Self {
        let is_awaited = |ended: &EndedActivity| {
            ended.execution_id == entry.execution_id && entry.awaits_activity(ended.activity_id)
        };
        let (others, unawaited): (VecDeque<_>, VecDeque<_>) =
            waiting.into_iter().partition(|waiting| is_awaited(&waiting.ended));
        unawaited.into_iter().for_each(|waiting| waiting.tell(StepNews::NotFused));
        Self { with_leader: is_awaited(leader), others }
    }

    /// The ended activities, the leader's first.
    fn ended<'a>(&'a self, leader: &'a Arc<EndedActivity>) -> impl Iterator<Item = &'a Arc<EndedActivity>> {
        let own = self.with_leader.then_some(leader);
        own.into_iter().chain(self.others.iter().map(|waiting| &waiting.ended))
    }
}

/// Takes and commits one turn on the outcomes at hand. Returns what became of the leader's own, and tells the others.
pub(crate) async fn run_step(leader: StepLeader<'_>, lead: StepLead) -> StepNews {
    let node = leader.node;
    // Before the execution is taken out of memory.
    let Some(permit) = turn_permit(node).await else {
        lead.take_waiting().into_iter().for_each(|waiting| waiting.tell(StepNews::NotFused));
        return StepNews::NotFused;
    };
    let waiting = lead.take_waiting();
    let own = leader.ended;
    let ids = || {
        let others = waiting.iter().map(|waiting| &waiting.ended);
        let all = std::iter::once(own).chain(others);
        all.filter(|ended| ended.execution_id == own.execution_id).map(|ended| ended.activity_id)
    };
    let Some((entry, mark)) = node.warm.take_for_step(&lead.instance, own.execution_id, ids()) else {
        waiting.into_iter().for_each(|waiting| waiting.tell(StepNews::NotFused));
        return StepNews::NotFused;
    };
    let batch = StepBatch::awaited(&entry, own, waiting);
    let with_leader = batch.with_leader;
    let Some(next) = leader.take_and_commit(permit, &lead, entry, mark, &batch).await else {
        node.steps.note_declined(&lead.instance);
        batch.others.into_iter().for_each(|waiting| waiting.tell(StepNews::NotFused));
        return StepNews::NotFused;
    };
    let mut next = next.into_iter().map(|work| work.map(|work| Box::new(node.taken(work))));
    let for_leader = if with_leader { next.next().flatten() } else { None };
    let mut untaken = Vec::new();
    for waiting in batch.others {
        untaken.extend(waiting.tell_committed(next.next().flatten()));
    }
    for taken in untaken {
        give_back(node, *taken).await;
    }
    if with_leader { StepNews::Committed(for_leader) } else { StepNews::NotFused }
}

/// Abandons an activity whose worker waited no longer. It has not run, so its attempt does not count.
async fn give_back(node: &Node, taken: TakenWork) {
    let TakenWork { work, under_way } = taken;
    let (lock_token, abandon) = (&work.lock_token, Settlement::abandon(&work.lock_token, None, true));
    let abandoned = retrying(node.options.worker_lock_timeout, || node.store.settle_work(&abandon));
    if let Err(error) = abandoned.await {
        tracing::warn!(target: "everturn::runtime::worker", %lock_token, instance_id = %work.item.instance(), %error,
            "abandoning the lock of an activity that no worker waits for failed; it returns when its lock expires");
        if let WorkItem::ActivityExecute { instance, execution_id, id, .. } = work.item {
            node.uncounted.note(AttemptKey::Activity { instance, execution_id, activity_id: id });
        }
    }
    under_way.finished();
}

/// The permit of a step's turn, if there is one soon.
async fn turn_permit(node: &Node) -> Option<SemaphorePermit<'_>> {
    match node.turn_slots.try_acquire() {
        Ok(permit) => Some(permit),
        Err(_none_is_free) => timeout(PERMIT_WAIT_MAX, node.turn_slots.acquire()).await.ok()?.ok(),
    }
}

impl StepLeader<'_> {
    /// Takes the turn and commits it. `None` if the outcomes must go the ordinary way.
    async fn take_and_commit(
        &self,
        permit: SemaphorePermit<'_>,
        lead: &StepLead,
        mut entry: WarmEntry,
        mark: SteppingMark,
        batch: &StepBatch,
    ) -> Option<Vec<Option<FetchedWork>>> {
        let node = self.node;
        let began = Instant::now();
        let base = entry.stamp;
        let messages: Vec<WorkItem> = batch.ended(self.ended).map(|ended| ended.completion.clone()).collect();
        let shadowed = shadow_replay::is_due(node).then(|| ShadowedTurn::new(&entry, messages.clone()));
        let events_before = entry.execution().map_or(0, Execution::event_count);
        // If the engine itself panics, the ordinary way says so.
        let turn = take_turn(Some(permit), entry.execution_mut()?, messages, node).await.ok()?;
        entry.turns += 1;
        if let Some(shadowed) = shadowed {
            match shadowed.difference(node, &lead.instance, Some(base), &turn, turn_permit(node)).await {
                ReplayComparison::Same => {}
                ReplayComparison::NotPossible => return None,
                ReplayComparison::Different(difference) => {
                    node.steps.note_difference(&lead.instance, base, difference);
                    return None;
                }
            }
        }
        if turn.orchestrator_items.iter().any(lacks_parent_execution) {
            // It is read from the store under the lock.
            return None;
        }
        let event_count = events_before + turn.history_delta.len();
        let report = TurnReport::of_turn(node, self.worker_id, &lead.instance, &entry, event_count, began);
        let (next, history_delta) = self.commit(lead, entry, mark, batch, turn, base).await?;
        node.uncounted.forget(|| turn_key(&lead.instance));
        report.committed(&history_delta);
        Some(next)
    }

    /// Commits the turn together with the end of its activities. `None` if it was declined or could not be committed.
    async fn commit(
        &self,
        lead: &StepLead,
        mut entry: WarmEntry,
        mark: SteppingMark,
        batch: &StepBatch,
        turn: Turn,
        base: Stamp,
    ) -> Option<(Vec<Option<FetchedWork>>, Vec<everturn_core::Event>)> {
        let node = self.node;
        let began = Instant::now();
        let execution_id = entry.execution_id;
        let stamp = node.new_stamp();
        entry.stamp = stamp;
        // Only an execution that waits is worth keeping. Until the commit no fetch may take the instance.
        let entry = Some(entry).filter(|_| turn.outcome == TurnOutcome::Continue);
        let slot = CheckInSlot::of_step(lead.instance.clone(), entry, mark, node.warm.clone());
        let slot = VoidOnDrop(Arc::new(slot));
        let has_ended = |id: &u64| batch.ended(self.ended).any(|ended| ended.activity_id == *id);
        let cancelled = turn.cancelled_activities.into_iter();
        let effects = TurnEffects {
            history_delta: turn.history_delta,
            worker_items: turn.worker_items,
            orchestrator_items: turn.orchestrator_items,
            cancelled_activities: cancelled.filter(|id| !has_ended(id)).collect(),
            cancelled_children: turn.cancelled_children,
        };
        let warm_slot = Some(Arc::clone(&slot.0));
        let PreparedTurn { mut commit, after } =
            PreparedTurn::new(node, &lead.instance, execution_id, effects, stamp, warm_slot);
        commit.base = Some(base);
        // An activity that another runtime has the handler for is left to its fetches.
        let goes_on = commit.worker_items.iter().all(|work| node.has_activity(&work.item));
        let ended = batch.ended(self.ended);
        let next_of = |ended: &EndedActivity| ended.next.clone().filter(|_| goes_on);
        let ended = ended.map(|ended| EndedWork::new(&ended.lock_token, next_of(ended))).collect();
        let commit = StepCommit::new(&lead.instance, ended, commit);
        let warn = |error: &ProviderError, wait: Duration| {
            tracing::warn!(target: "everturn::runtime", instance_id = %lead.instance, %execution_id, %error,
                retry_in_ms = wait.as_millis() as u64, "committing a step failed; retrying while its lock is held");
        };
        let may_pass = |error: &ProviderError| error.is_retryable() && began.elapsed() < RETRIED_MAX;
        let call = || node.store.commit_step(&commit);
        let mut answer = retry_while_locked(self.lock, may_pass, warn, call).await;
        if answer.as_ref().is_err_and(|error| error.is_retryable() || after.is_durable()) {
            // It may be committed although its answer was lost. The lock says nothing: the step has consumed it. The repeated
            // call is answered with the activities that the step has locked.
            answer = call().await;
        }
        let next = match answer {
            Ok(StepAnswer::Committed(next)) => next,
            _ if after.is_durable() => commit.ended.iter().map(|_| None).collect(),
            Ok(StepAnswer::Declined(reason)) => {
                tracing::debug!(target: "everturn::runtime", instance_id = %lead.instance, %execution_id,
                    ?reason, "step declined; its outcomes go through the queue");
                return None;
            }
            Err(error) => {
                tracing::warn!(target: "everturn::runtime", instance_id = %lead.instance, %execution_id, %error,
                    "step not committed; its outcomes go through the queue");
                return None;
            }
        };
        after.cancel_activities();
        drop(slot);
        Some((next, commit.turn.history_delta))
    }
}

/// A notice to a parent whose execution must be looked up.
fn lacks_parent_execution(item: &WorkItem) -> bool {
    matches!(
        item,
        WorkItem::SubOrchCompleted { parent_execution_id: 0, .. }
            | WorkItem::SubOrchFailed { parent_execution_id: 0, .. }
    )
}
