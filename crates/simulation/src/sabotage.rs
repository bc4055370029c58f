//! Stores that break the contract on purpose: a harness that never caught anything is not known to work.

use everturn::EventKind;
use everturn::providers::{Provider, ProviderError, TurnCommit, WorkItem};

/// How a store breaks the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sabotage {
    /// A client's message is acknowledged and lost.
    LosesMessages,
    /// The activities of a turn are not committed with it.
    SplitsCommits,
    /// Timers come a millisecond early.
    HastensTimers,
    /// Timers are forgotten.
    ForgetsTimers,
    /// It tells each node the node's own time.
    TellsNodeTime,
    /// Activities are dispatched before their turn is committed.
    RunsAhead,
    /// Activities that are no longer wanted stay in the queue.
    KeepsWithdrawn,
    /// An event is changed on its way into the history.
    RewritesHistory,
    /// Messages to other instances are sent twice, under another name the second time.
    StartsStrangers,
    /// An outcome is changed after its worker committed it.
    ChangesOutcomes,
    /// Turns and outcomes are answered as if they were committed, and are not.
    AnswersLostCommits,
    /// Whoever comes with a lock that ended, or that somebody else has by now, gets what it wants.
    AcceptsAnyToken,
    /// What is handed out can be had by the next one who asks.
    HandsOutLocked,
}

/// All of them, to be gone through.
pub const SABOTAGES: [Sabotage; 13] = [
    Sabotage::LosesMessages,
    Sabotage::SplitsCommits,
    Sabotage::HastensTimers,
    Sabotage::ForgetsTimers,
    Sabotage::TellsNodeTime,
    Sabotage::RunsAhead,
    Sabotage::KeepsWithdrawn,
    Sabotage::RewritesHistory,
    Sabotage::StartsStrangers,
    Sabotage::ChangesOutcomes,
    Sabotage::AnswersLostCommits,
    Sabotage::AcceptsAnyToken,
    Sabotage::HandsOutLocked,
];

/// Of so many things that could be spoilt one is.
pub(crate) const SPOILT_ONE_IN: u64 = 5;

impl Sabotage {
    /// Spoils a turn on its way into the store.
    pub(crate) fn spoil(self, commit: &mut TurnCommit) {
        match self {
            Self::SplitsCommits => commit.worker_items.clear(),
            Self::ForgetsTimers => {
                commit.orchestrator_items.retain(|item| !matches!(item, WorkItem::TimerFired { .. }));
            }
            Self::HastensTimers => {
                for item in &mut commit.orchestrator_items {
                    if let WorkItem::TimerFired { fire_at_ms, .. } = item {
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
            Self::StartsStrangers => {
                let starts = commit.orchestrator_items.iter().filter(|item| item.is_start()).cloned();
                let strangers: Vec<WorkItem> = starts.map(renamed).collect();
                commit.orchestrator_items.extend(strangers);
            }
            Self::LosesMessages
            | Self::TellsNodeTime
            | Self::RunsAhead
            | Self::ChangesOutcomes
            | Self::AnswersLostCommits
            | Self::AcceptsAnyToken
            | Self::HandsOutLocked => {}
        }
    }
}

/// Carries out a turn past all locks.
pub(crate) async fn force(provider: &dyn Provider, commit: &TurnCommit) -> Result<(), ProviderError> {
    if let Some(first) = commit.history_delta.first() {
        let (execution_id, events) = (commit.execution_id, commit.history_delta.clone());
        provider.append_with_execution(&first.instance_id, execution_id, events).await?;
    }
    for item in commit.worker_items.clone() {
        provider.enqueue_for_worker(item).await?;
    }
    for item in commit.orchestrator_items.clone() {
        provider.enqueue_for_orchestrator(item, None).await?;
    }
    if let Some(check_in) = &commit.check_in {
        check_in();
    }
    Ok(())
}

fn renamed(mut item: WorkItem) -> WorkItem {
    if let WorkItem::StartOrchestration { instance, .. } = &mut item {
        instance.push('\'');
    }
    item
}
