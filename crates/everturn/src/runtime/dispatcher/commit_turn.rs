//! Committing a turn: retried while the lock is held, and reported only once it is durable.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use everturn_core::turn::CancelledChild;
use everturn_core::{Event, WorkItem};
use everturn_provider::store::{
    ExecutionRead, Feature, MessageNotes, NewMessage, ParentLink, Stamp, Store, TurnCommit,
};
use everturn_provider::{ProviderError, ScheduledActivityIdentifier};

use super::super::node::Node;
use super::super::retrying::retry_while_locked;
use super::super::warm_cache::CheckInSlot;
use super::super::worker::running::RunningActivities;
use super::execution_update::update_of_delta;
use super::locked_instance::LockedInstance;
use super::parent_execution::fill_in_parent_executions;

/// What a turn changes.
#[derive(Default)]
pub(super) struct TurnEffects {
    pub(super) history_delta: Vec<Event>,
    pub(super) worker_items: Vec<WorkItem>,
    pub(super) orchestrator_items: Vec<WorkItem>,
    /// Schedule ids of activities that are no longer wanted.
    pub(super) cancelled_activities: Vec<u64>,
    pub(super) cancelled_children: Vec<CancelledChild>,
}

/// How a commit ended.
#[derive(Debug)]
pub(super) enum TurnCommitOutcome {
    /// The turn is durable.
    Durable,
    /// The store failed until the lock was lost or for too long, or the history has moved on: the turn is taken again.
    GivenUp(ProviderError),
    /// The store will never accept this turn.
    Refused(ProviderError),
}

impl LockedInstance<'_> {
    /// Commits a turn of `execution_id`, then cancels the running activities that it no longer wants. Returns the turn's
    /// events, too.
    pub(super) async fn commit_turn(
        &self,
        execution_id: u64,
        mut effects: TurnEffects,
        stamp: Stamp,
        warm_slot: Option<Arc<CheckInSlot>>,
    ) -> (TurnCommitOutcome, Vec<Event>) {
        if let Err(error) = fill_in_parent_executions(self, &mut effects.orchestrator_items).await {
            return (TurnCommitOutcome::GivenUp(error), effects.history_delta);
        }
        let PreparedTurn { mut commit, after } =
            PreparedTurn::new(self.node, &self.instance, execution_id, effects, stamp, warm_slot);
        commit.lock_token.clone_from(&self.lock_token);
        // A new execution builds on no commit of its own.
        commit.base = self.base.filter(|_| execution_id == self.execution_id);
        let outcome = self.commit_while_locked(&commit, &after).await;
        if matches!(outcome, TurnCommitOutcome::Durable) {
            after.cancel_activities();
            self.note_committed();
        }
        (outcome, commit.history_delta)
    }

    /// Tries a commit until it is durable, refused, has failed for too long, or the lock is lost.
    ///
    /// An error does not prove that nothing was written: a commit that was tried before may itself be the reason why it
    /// is refused now, so the store is asked for it.
    async fn commit_while_locked(&self, commit: &TurnCommit, after: &AfterCommit) -> TurnCommitOutcome {
        let store = self.node.store.as_ref();
        let mut in_doubt = false;
        let warn = |error: &ProviderError, wait: Duration| {
            in_doubt = true;
            tracing::warn!(target: "everturn::runtime", instance_id = %self.instance,
                execution_id = %commit.execution_id, %error, retry_in_ms = wait.as_millis() as u64,
                "committing a turn failed; retrying while its lock is held");
        };
        let call = || async {
            match store.commit_turn(commit).await {
                Err(_) if after.is_durable() => Ok(()),
                answer => answer,
            }
        };
        let committed = retry_while_locked(&self.lock, ProviderError::is_retryable, warn, call).await;
        let Err(error) = committed else { return TurnCommitOutcome::Durable };
        in_doubt |= error.is_retryable();
        if after.is_durable() || (in_doubt && is_stored(store, commit).await) {
            TurnCommitOutcome::Durable
        } else if error.is_retryable() || error.is_lock_lost() || error.is_history_moved() {
            TurnCommitOutcome::GivenUp(error)
        } else {
            TurnCommitOutcome::Refused(error)
        }
    }
}

/// The commit of a turn, and what follows it.
pub(super) struct PreparedTurn {
    /// Its lock and its base are filled in by the caller.
    pub(super) commit: TurnCommit,
    pub(super) after: Arc<AfterCommit>,
}

impl PreparedTurn {
    pub(super) fn new(
        node: &Node,
        instance: &str,
        execution_id: u64,
        effects: TurnEffects,
        stamp: Stamp,
        warm_slot: Option<Arc<CheckInSlot>>,
    ) -> Self {
        let cancelled = effects.cancelled_activities.into_iter();
        let cancelled_activities: Vec<ScheduledActivityIdentifier> = cancelled
            .map(|activity_id| ScheduledActivityIdentifier {
                instance: instance.to_owned(),
                execution_id,
                activity_id,
            })
            .collect();
        let after = Arc::new(AfterCommit {
            running: node.running.clone(),
            cancelled: cancelled_activities.clone(),
            warm_slot,
            is_durable: AtomicBool::new(false),
        });
        let check_in = Arc::clone(&after);
        let mut commit = TurnCommit::new(String::new(), execution_id);
        commit.update = update_of_delta(&effects.history_delta);
        commit.history_delta = effects.history_delta;
        commit.worker_items = effects.worker_items.into_iter().map(Into::into).collect();
        let cancels = effects.cancelled_children.into_iter();
        let cancels = cancels.map(|child| cancel_message(node, instance, execution_id, child));
        commit.orchestrator_items =
            effects.orchestrator_items.into_iter().map(Into::into).chain(cancels).collect();
        commit.cancelled_activities = cancelled_activities;
        commit.stamp = Some(stamp);
        commit.check_in = Some(Arc::new(move || check_in.check_in()));
        Self { commit, after }
    }
}

/// The message that cancels a child. Its notes name the call, because another instance may have the child's id.
fn cancel_message(node: &Node, instance: &str, execution_id: u64, child: CancelledChild) -> NewMessage {
    let CancelledChild { instance: child_id, schedule_id, reason } = child;
    let message = NewMessage::from(WorkItem::CancelInstance { instance: child_id, reason });
    if !node.store.supports(Feature::MessageNotes) {
        return message;
    }
    let call = ParentLink { instance: instance.to_owned(), execution_id, schedule_id };
    message.with_notes(MessageNotes::of_parents_cancel(call))
}

/// Returns true if the store has this turn: its last event is stored as this turn made it. A turn without events leaves
/// no trace, so for it the answer is always false.
async fn is_stored(store: &dyn Store, commit: &TurnCommit) -> bool {
    let Some(last) = commit.history_delta.last() else { return false };
    let read = ExecutionRead::of(&last.instance_id, commit.execution_id);
    let stored = store.read_execution(&read).await;
    stored.is_ok_and(|execution| execution.history.iter().rev().any(|event| event == last))
}

/// What follows a commit. The provider calls it the moment the commit is durable, because the turn may have to wait for
/// its slot before it sees the answer.
pub(super) struct AfterCommit {
    running: RunningActivities,
    /// Activities that are no longer wanted.
    cancelled: Vec<ScheduledActivityIdentifier>,
    /// The execution to keep in memory, if it is worth keeping.
    warm_slot: Option<Arc<CheckInSlot>>,
    is_durable: AtomicBool,
}

impl AfterCommit {
    /// Keeps the execution in memory. Only a provider that can lend it again calls this.
    fn check_in(&self) {
        if let Some(slot) = &self.warm_slot {
            slot.check_in();
        }
        self.cancel_activities();
    }

    /// Cancels the activities that run in this process, once.
    pub(super) fn cancel_activities(&self) {
        if !self.is_durable.swap(true, Ordering::SeqCst) {
            self.running.cancel(&self.cancelled);
        }
    }

    /// Returns true if the commit is known to be durable, whatever the store answered.
    pub(super) fn is_durable(&self) -> bool {
        self.is_durable.load(Ordering::SeqCst)
    }
}
