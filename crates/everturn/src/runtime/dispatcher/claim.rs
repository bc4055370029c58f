//! A locked instance: what may be done with it.

use std::sync::Arc;
use std::time::Duration;

use everturn_core::{Bug, Event, WorkItem, planted};
use everturn_provider::{LockKind, ScheduledActivityIdentifier, Stamp, TurnCommit};
use tokio_util::sync::CancellationToken;

use super::super::lock_keeper::{LockGuard, LockTerms};
use super::super::node::Node;
use super::super::retrying::retrying;
use super::super::warm_cache::CheckInSlot;
use super::after_commit::AfterCommit;
use super::commit::{Committed, commit_while_locked};
use super::metadata;
use super::parent_execution;

/// A locked instance, whose lock is renewed until this is dropped.
pub(crate) struct Claim<'a> {
    pub(crate) node: &'a Node,
    pub(crate) worker_id: &'a str,
    pub(crate) instance: String,
    /// The current execution, as stored.
    pub(crate) execution_id: u64,
    pub(crate) attempt_count: u32,
    lock_token: String,
    /// The stamp of the current execution, as stored.
    base: Option<Stamp>,
    lock: LockGuard,
}

/// What is to be committed of an execution.
#[derive(Default)]
pub(crate) struct Decisions {
    pub(crate) history_delta: Vec<Event>,
    pub(crate) worker_items: Vec<WorkItem>,
    pub(crate) orchestrator_items: Vec<WorkItem>,
    /// Schedule ids of activities no longer wanted.
    pub(crate) cancelled_activities: Vec<u64>,
}

impl<'a> Claim<'a> {
    /// Takes over a lock that was just handed out.
    pub(crate) fn new(
        node: &'a Node,
        worker_id: &'a str,
        (instance, execution_id): (String, u64),
        (lock_token, attempt_count): (String, u32),
        base: Option<Stamp>,
    ) -> Self {
        let terms = LockTerms {
            kind: LockKind::Orchestration,
            timeout: node.options.orchestrator_lock_timeout,
            buffer: node.options.orchestrator_lock_renewal_buffer,
        };
        let lock = node.locks.keep(lock_token.clone(), terms, CancellationToken::new());
        Self { node, worker_id, instance, execution_id, attempt_count, lock_token, base, lock }
    }

    /// Gives the instance back; its messages come again.
    pub(crate) async fn abandon(self, delay: Option<Duration>, ignore_attempt: bool) {
        abandon(self.node, &self.lock_token, delay, ignore_attempt).await;
    }

    /// Commits decisions of an execution, and tells the activities they no longer want. Where a parent's execution is
    /// not known it is looked up first.
    pub(crate) async fn commit(
        &self,
        execution_id: u64,
        mut decisions: Decisions,
        stamp: Stamp,
        kept: Option<Arc<CheckInSlot>>,
    ) -> (Committed, TurnCommit) {
        parent_execution::fill_in(self.node.store.as_ref(), &mut decisions.orchestrator_items).await;
        let metadata = metadata::of_delta(&decisions.history_delta);
        let cancelled_activities: Vec<ScheduledActivityIdentifier> = decisions
            .cancelled_activities
            .into_iter()
            .map(|activity_id| ScheduledActivityIdentifier {
                instance: self.instance.clone(),
                execution_id,
                activity_id,
            })
            .collect();
        let after = AfterCommit::new(self.node.running.clone(), cancelled_activities.clone(), kept);
        let commit = TurnCommit {
            lock_token: self.lock_token.clone(),
            execution_id,
            history_delta: decisions.history_delta,
            worker_items: decisions.worker_items,
            orchestrator_items: decisions.orchestrator_items,
            metadata,
            cancelled_activities,
            // A new execution builds on no commit of its own.
            base: self.base.filter(|_| execution_id == self.execution_id),
            stamp,
            check_in: Some(after.as_check_in()),
        };
        if planted(Bug::WithdrawnBeforeCommit) {
            self.node.running.withdraw(&commit.cancelled_activities);
        }
        let committed = commit_while_locked(self.node.store.as_ref(), &commit, &after, &self.lock).await;
        if matches!(committed, Committed::Yes) {
            after.is_durable_now();
        }
        (committed, commit)
    }

    /// Commits decisions that keep nothing in memory.
    pub(crate) async fn commit_plain(
        &self,
        execution_id: u64,
        decisions: Decisions,
    ) -> (Committed, TurnCommit) {
        self.commit(execution_id, decisions, self.node.new_stamp(), None).await
    }

    /// Takes the messages out of the queue and changes nothing else but what `notices` say to others.
    pub(crate) async fn acknowledge(&self, notices: Vec<WorkItem>) {
        let decisions = Decisions { orchestrator_items: notices, ..Decisions::default() };
        if let (Committed::GivenUp(error) | Committed::Refused(error), _) =
            self.commit_plain(self.execution_id, decisions).await
        {
            tracing::warn!(target: "everturn::runtime", instance_id = %self.instance,
                execution_id = %self.execution_id, %error, "acknowledging messages failed, they come again");
        }
    }

    /// Tells the operator that a commit did not happen.
    pub(crate) fn warn_not_committed(&self, execution_id: u64, error: &everturn_provider::ProviderError) {
        tracing::warn!(target: "everturn::runtime", instance_id = %self.instance, execution_id = %execution_id,
            worker_id = %self.worker_id, %error, "turn not committed, its messages come again");
    }
}

/// Gives a fetched instance back. If that fails its lock runs out instead.
pub(crate) async fn abandon(node: &Node, lock_token: &str, delay: Option<Duration>, ignore_attempt: bool) {
    let abandoned = retrying(node.options.orchestrator_lock_timeout, || {
        node.store.abandon_orchestration_item(lock_token, delay, ignore_attempt)
    });
    if let Err(error) = abandoned.await {
        tracing::warn!(target: "everturn::runtime::dispatchers::orchestration", %lock_token, %error,
            "giving an orchestration back failed, its lock will run out");
    }
}
