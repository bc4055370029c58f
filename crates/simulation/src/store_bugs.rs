//! Stores that violate the contract on purpose: they show that the harness notices.

use everturn::EventKind;
use everturn::providers::store::{NewMessage, Store, Submission, TurnCommit};
use everturn::providers::{ProviderError, WorkItem};

/// How a store violates the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreBug {
    /// A client's message is acknowledged and lost.
    LosesMessages,
    /// The activities of a turn are not committed with it.
    SplitsCommits,
    /// Timers fire a millisecond early.
    HastensTimers,
    /// Timers are lost.
    ForgetsTimers,
    /// It answers each node with the node's own time.
    TellsNodeTime,
    /// Activities are enqueued before their turn is committed.
    DispatchesBeforeCommit,
    /// Activities that are no longer wanted stay in the queue.
    KeepsWithdrawn,
    /// An event is changed on its way into the history.
    RewritesHistory,
    /// Every start of a child also starts a second instance under another name.
    StartsExtraInstances,
    /// An outcome is changed after its worker committed it.
    ChangesOutcomes,
    /// Turns and outcomes are acknowledged and not committed.
    AnswersLostCommits,
    /// Calls with a lock that has ended, or that another worker has by now, succeed.
    AcceptsAnyToken,
    /// Rows that are locked are offered to the next fetch.
    OffersLockedRows,
}

/// All of them.
pub const STORE_BUGS: [StoreBug; 13] = [
    StoreBug::LosesMessages,
    StoreBug::SplitsCommits,
    StoreBug::HastensTimers,
    StoreBug::ForgetsTimers,
    StoreBug::TellsNodeTime,
    StoreBug::DispatchesBeforeCommit,
    StoreBug::KeepsWithdrawn,
    StoreBug::RewritesHistory,
    StoreBug::StartsExtraInstances,
    StoreBug::ChangesOutcomes,
    StoreBug::AnswersLostCommits,
    StoreBug::AcceptsAnyToken,
    StoreBug::OffersLockedRows,
];

/// The bug shows in one of so many calls.
pub(crate) const SHOWS_ONE_IN: u64 = 5;

impl StoreBug {
    /// Changes a turn on its way into the store.
    pub(crate) fn apply(self, commit: &mut TurnCommit) {
        match self {
            Self::SplitsCommits => commit.worker_items.clear(),
            Self::ForgetsTimers => {
                commit
                    .orchestrator_items
                    .retain(|message| !matches!(message.item, WorkItem::TimerFired { .. }));
            }
            Self::HastensTimers => {
                for message in &mut commit.orchestrator_items {
                    if let WorkItem::TimerFired { fire_at_ms, .. } = &mut message.item {
                        *fire_at_ms = fire_at_ms.saturating_sub(1);
                    }
                }
            }
            Self::KeepsWithdrawn => commit.cancelled_activities.clear(),
            Self::RewritesHistory => {
                for event in &mut commit.history_delta {
                    if let EventKind::ActivityScheduled { input, .. } = &mut event.kind {
                        input.push('!');
                    }
                }
            }
            Self::StartsExtraInstances => {
                let starts = commit.orchestrator_items.iter().filter(|message| message.item.is_start());
                let extra: Vec<NewMessage> = starts.map(|start| renamed(start.item.clone()).into()).collect();
                commit.orchestrator_items.extend(extra);
            }
            Self::LosesMessages
            | Self::TellsNodeTime
            | Self::DispatchesBeforeCommit
            | Self::ChangesOutcomes
            | Self::AnswersLostCommits
            | Self::AcceptsAnyToken
            | Self::OffersLockedRows => {}
        }
    }
}

/// Commits a turn without its lock.
pub(crate) async fn commit_without_lock(store: &dyn Store, commit: &TurnCommit) -> Result<(), ProviderError> {
    if let (Some(first), Some(raw)) = (commit.history_delta.first(), store.raw_writes()) {
        let (execution_id, events) = (commit.execution_id, commit.history_delta.clone());
        raw.append_events(&first.instance_id, execution_id, events).await?;
    }
    for work in &commit.worker_items {
        enqueue_work(store, work.item.clone()).await?;
    }
    for message in &commit.orchestrator_items {
        store.submit(&Submission::of(message.clone())).await?;
    }
    if let Some(check_in) = &commit.check_in {
        check_in();
    }
    Ok(())
}

/// Enqueues an activity past the engine.
pub(crate) async fn enqueue_work(store: &dyn Store, item: WorkItem) -> Result<(), ProviderError> {
    match store.raw_writes() {
        Some(raw) => raw.enqueue_work(item).await,
        None => Err(ProviderError::unsupported("enqueue_work", "this store has no raw writes")),
    }
}

fn renamed(mut item: WorkItem) -> WorkItem {
    if let WorkItem::StartOrchestration { instance, .. } = &mut item {
        instance.push('\'');
    }
    item
}
