//! A locked instance: its lock is renewed while a turn is decided on, taken and committed.

use std::future::Future;
use std::time::Duration;

use everturn_core::{Event, WorkItem};
use everturn_provider::ProviderError;
use everturn_provider::store::{ExecutionRead, FetchedTurn, HandlerKey, LockKind, Stamp, TurnAbandon};

use super::super::lock_keeper::{LockGuard, LockTerms};
use super::super::node::Node;
use super::super::retrying::{AFTER_LONG_FAILURE, retry_while_locked, retrying};
use super::super::uncounted_attempts::AttemptKey;
use super::super::unfinished_work::WorkUnderWay;
use super::commit_turn::{TurnCommitOutcome, TurnEffects};
use super::slot_turns::{SlotTurns, UnbegunTurn};

/// A locked instance. Its lock is renewed until this is dropped.
pub(crate) struct LockedInstance<'a> {
    pub(crate) node: &'a Node,
    pub(crate) worker_id: &'a str,
    pub(super) slot: &'a SlotTurns,
    pub(crate) instance: String,
    /// The current execution, as stored.
    pub(crate) execution_id: u64,
    pub(crate) attempt_count: u32,
    pub(super) lock_token: String,
    /// The stamp of the current execution, as stored.
    pub(super) base: Option<Stamp>,
    pub(super) lock: LockGuard,
    unbegun: UnbegunTurn<'a>,
}

impl<'a> LockedInstance<'a> {
    /// Starts to renew the lock of a fetched turn.
    pub(super) fn new(
        node: &'a Node,
        worker_id: &'a str,
        slot: &'a SlotTurns,
        fetched: &FetchedTurn,
    ) -> Self {
        let terms = LockTerms {
            kind: LockKind::Orchestration,
            timeout: node.options.orchestrator_lock_timeout,
            buffer: node.options.orchestrator_lock_renewal_buffer,
        };
        let FetchedTurn { item, lock_token, lock_left, attempt_count, stamp, .. } = fetched;
        Self {
            node,
            worker_id,
            slot,
            instance: item.instance.clone(),
            execution_id: item.execution_id,
            attempt_count: node.uncounted.subtract_from(*attempt_count, || turn_key(&item.instance)),
            lock_token: lock_token.clone(),
            base: *stamp,
            lock: node.locks.keep_unbegun(lock_token.clone(), terms, *lock_left, turn_key(&item.instance)),
            unbegun: slot.note_unbegun(),
        }
    }

    /// The turn's code runs now: its lock is renewed for as long as that takes. Returns false if the lock is lost.
    pub(super) fn begin(&self) -> bool {
        self.unbegun.end();
        self.lock.keep_on()
    }

    /// The lock was lost before the turn's code could run, perhaps because the code of other turns does not return. The attempt
    /// does not count; a lock that was given up is abandoned by the keeper.
    pub(super) fn leave_unbegun(self) {
        tracing::warn!(target: "everturn::runtime", instance_id = %self.instance, execution_id = %self.execution_id,
            worker_id = %self.worker_id,
            "the lock of a turn was lost before its code could run; its messages return to the queue");
        if !self.lock.is_given_up() {
            self.node.uncounted.note(turn_key(&self.instance));
        }
    }

    /// Abandons the lock: the messages return to the queue. If the store cannot take the attempt back although it should, the
    /// runtime remembers that it does not count.
    pub(super) async fn abandon(self, delay: Option<Duration>, ignore_attempt: bool) {
        let abandon =
            TurnAbandon::new(&self.lock_token).with_delay(delay).with_ignored_attempt(ignore_attempt);
        let abandoned = send_abandon(self.node, &abandon).await;
        if abandoned.is_err() && ignore_attempt {
            self.node.uncounted.note(turn_key(&self.instance));
        }
    }

    /// Abandons the lock because this runtime lacks the handler. A store that cannot look for another runtime that has it
    /// delays the instance for all.
    pub(super) async fn leave_to_others(self, delay: Duration, handler: HandlerKey) {
        let handler = self.node.handlers.as_ref().map(|_| handler);
        let abandon =
            TurnAbandon::new(&self.lock_token).with_delay(Some(delay)).with_missing_handler(handler);
        // The failure is logged, and costs one attempt.
        send_abandon(self.node, &abandon).await.ok();
    }

    /// Removes the messages from the queue and sends `notices` to other instances. Nothing else changes.
    pub(super) async fn acknowledge(self, notices: Vec<WorkItem>) {
        let effects = TurnEffects { orchestrator_items: notices, ..TurnEffects::default() };
        let (execution_id, stamp) = (self.execution_id, self.node.new_stamp());
        match self.commit_turn(execution_id, effects, stamp, None).await.0 {
            TurnCommitOutcome::Durable => {}
            TurnCommitOutcome::GivenUp(error) => self.give_up(execution_id, &error).await,
            TurnCommitOutcome::Refused(error) => self.warn_not_committed(execution_id, &error),
        }
    }

    /// Reads the history of an execution. A retryable error is retried for as long as the lock is held.
    pub(super) async fn read_history(&self, execution_id: u64) -> Result<Vec<Event>, ProviderError> {
        let read = ExecutionRead::of(&self.instance, execution_id);
        self.retry_while_locked(|| self.node.store.read_execution(&read)).await.map(|stored| stored.history)
    }

    /// Makes a call until it succeeds, fails with a permanent error, fails for too long, or the lock is lost. Returns the last
    /// error then.
    pub(super) async fn retry_while_locked<T, F>(&self, call: impl Fn() -> F) -> Result<T, ProviderError>
    where
        F: Future<Output = Result<T, ProviderError>>,
    {
        retry_while_locked(&self.lock, ProviderError::is_retryable, |_, _| {}, call).await
    }

    /// Logs that the turn was not committed because the store failed, the lock is lost or the history moved on. Abandons
    /// the lock if the store may still count it as held. None of this is the turn's fault, so the attempt is taken back.
    pub(super) async fn give_up(self, execution_id: u64, error: &ProviderError) {
        self.warn_not_committed(execution_id, error);
        if error.is_history_moved() || self.lock.is_given_up() {
            self.abandon(None, true).await;
        } else if error.is_retryable() && !self.lock.is_lost() {
            self.abandon(Some(AFTER_LONG_FAILURE), true).await;
        }
    }

    /// The turn is committed: attempts before it no longer matter.
    pub(super) fn note_committed(&self) {
        self.node.uncounted.forget(|| turn_key(&self.instance));
    }

    /// Logs that a commit did not happen.
    pub(super) fn warn_not_committed(&self, execution_id: u64, error: &ProviderError) {
        tracing::warn!(target: "everturn::runtime", instance_id = %self.instance, execution_id = %execution_id,
            worker_id = %self.worker_id, %error, "turn not committed; its messages return to the queue");
    }
}

/// Abandons the lock of a fetched turn of which nothing has run, so that the attempt does not count. If that fails, the lock
/// expires instead.
pub(super) async fn abandon_unbegun(node: &Node, turn: FetchedTurn, under_way: WorkUnderWay) {
    let abandon = TurnAbandon::new(&turn.lock_token).with_ignored_attempt(true);
    if send_abandon(node, &abandon).await.is_err() {
        node.uncounted.note(turn_key(&turn.item.instance));
    }
    under_way.finished();
}

async fn send_abandon(node: &Node, abandon: &TurnAbandon) -> Result<(), ProviderError> {
    let lock_token = &abandon.lock_token;
    let abandoned = retrying(node.options.orchestrator_lock_timeout, || node.store.abandon_turn(abandon));
    abandoned.await.inspect_err(|error| {
        tracing::warn!(target: "everturn::runtime::dispatchers::orchestration", %lock_token, %error,
            "abandoning the lock of an instance failed; the instance waits until the lock expires");
    })
}

pub(super) fn turn_key(instance: &str) -> AttemptKey {
    AttemptKey::Turn { instance: instance.to_owned() }
}
