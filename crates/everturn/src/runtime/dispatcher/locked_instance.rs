//! A locked instance: its lock is renewed while a turn is decided on, taken and committed.

use std::time::Duration;

use everturn_core::WorkItem;
use everturn_provider::store::{FetchedTurn, LentInstance, LockKind, Stamp, TurnAbandon};
use everturn_provider::{OrchestrationItem, ProviderError};
use tokio_util::sync::CancellationToken;

use super::super::lock_keeper::{LockGuard, LockTerms};
use super::super::node::Node;
use super::super::retrying::retrying;
use super::commit_turn::{TurnCommitOutcome, TurnEffects};

/// A locked instance. Its lock is renewed until this is dropped.
pub(crate) struct LockedInstance<'a> {
    pub(crate) node: &'a Node,
    pub(crate) worker_id: &'a str,
    pub(crate) instance: String,
    /// The current execution, as stored.
    pub(crate) execution_id: u64,
    pub(crate) attempt_count: u32,
    pub(super) lock_token: String,
    /// The stamp of the current execution, as stored.
    pub(super) base: Option<Stamp>,
    pub(super) lock: LockGuard,
}

impl<'a> LockedInstance<'a> {
    /// Starts to renew the lock of a fetched turn. Returns with it what was fetched: the stored instance and, if it is
    /// warm, its execution.
    pub(super) fn new(
        node: &'a Node,
        worker_id: &'a str,
        fetched: FetchedTurn,
    ) -> (Self, OrchestrationItem, Option<LentInstance>) {
        let FetchedTurn { item, lock_token, attempt_count, warm, stamp: base, .. } = fetched;
        let terms = LockTerms {
            kind: LockKind::Orchestration,
            timeout: node.options.orchestrator_lock_timeout,
            buffer: node.options.orchestrator_lock_renewal_buffer,
        };
        let lock = node.locks.keep(lock_token.clone(), terms, CancellationToken::new());
        let (instance, execution_id) = (item.instance.clone(), item.execution_id);
        let locked = Self { node, worker_id, instance, execution_id, attempt_count, lock_token, base, lock };
        (locked, item, warm)
    }

    /// Abandons the lock: the messages return to the queue.
    pub(super) async fn abandon(self, delay: Option<Duration>, ignore_attempt: bool) {
        abandon_turn(self.node, &self.lock_token, delay, ignore_attempt).await;
    }

    /// Removes the messages from the queue and sends `notices` to other instances. Nothing else changes.
    pub(super) async fn acknowledge(&self, notices: Vec<WorkItem>) {
        let effects = TurnEffects { orchestrator_items: notices, ..TurnEffects::default() };
        let stamp = self.node.new_stamp();
        if let (TurnCommitOutcome::GivenUp(error) | TurnCommitOutcome::Refused(error), _) =
            self.commit_turn(self.execution_id, effects, stamp, None).await
        {
            tracing::warn!(target: "everturn::runtime", instance_id = %self.instance,
                execution_id = %self.execution_id, %error,
                "acknowledging messages failed; they return to the queue when the lock ends");
        }
    }

    /// Logs that a commit did not happen.
    pub(super) fn warn_not_committed(&self, execution_id: u64, error: &ProviderError) {
        tracing::warn!(target: "everturn::runtime", instance_id = %self.instance, execution_id = %execution_id,
            worker_id = %self.worker_id, %error, "turn not committed; its messages return to the queue");
    }
}

/// Abandons the lock of a fetched turn. If that fails, the lock expires instead.
pub(super) async fn abandon_turn(
    node: &Node,
    lock_token: &str,
    delay: Option<Duration>,
    ignore_attempt: bool,
) {
    let abandon = TurnAbandon::new(lock_token).with_delay(delay).with_ignored_attempt(ignore_attempt);
    let abandoned = retrying(node.options.orchestrator_lock_timeout, || node.store.abandon_turn(&abandon));
    if let Err(error) = abandoned.await {
        tracing::warn!(target: "everturn::runtime::dispatchers::orchestration", %lock_token, %error,
            "abandoning the lock of an instance failed; the instance waits until the lock expires");
    }
}
