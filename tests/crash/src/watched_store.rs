//! The store as a runtime uses it, with somebody who counts turns and looks at the clock.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use everturn::providers::{
    DispatcherCapabilityFilter, ExecutionMetadata, FetchedTurn, InstanceWatch, LockRenewal,
    OrchestrationItem, Provider, ProviderAdmin, ProviderError, ScheduledActivityIdentifier,
    SessionFetchConfig, TagFilter, TurnCommit, WarmView, WorkItem,
};
use everturn::{Event, OrchestrationStatus, SystemStats};
use tokio::time::Instant;

use crate::ledger::{Fact, Ledger};

/// Forwards every call. The ledger learns of every turn whose commit was answered with `Ok`, and of every commit that
/// was tried when its lock had ended by the holder's own clock.
pub struct WatchedStore {
    inner: Arc<dyn Provider>,
    ledger: Arc<Ledger>,
    held: Mutex<Held>,
}

/// The locks of this process, as far as it knows.
#[derive(Default)]
struct Held {
    /// When each ends at the latest: counted from the answer, which comes after the store began to count.
    until: HashMap<String, Instant>,
    /// Those that have ended, and were not let go.
    ended: HashSet<String>,
    /// Those whose renewal is under way: when they end is not known.
    renewing: HashSet<String>,
}

impl WatchedStore {
    /// Watches what is asked of `inner`.
    pub fn new(inner: Arc<dyn Provider>, ledger: Arc<Ledger>) -> Self {
        Self { inner, ledger, held: Mutex::default() }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hold(&self, token: &str, lock_timeout: Duration) {
        self.note_ended();
        self.held().until.insert(token.to_owned(), Instant::now() + lock_timeout);
    }

    /// Notices which locks have ended in the hands of this process.
    fn note_ended(&self) {
        let now = Instant::now();
        let mut held = self.held();
        let ended: Vec<String> =
            held.until.iter().filter(|(_, until)| **until < now).map(|(token, _)| token.clone()).collect();
        for token in ended {
            held.until.remove(&token);
            held.ended.insert(token);
            self.ledger.learn(Fact::LockEnded);
        }
    }

    /// Whether a lock has surely ended. It is not asked again after that: a commit that is repeated because its answer was
    /// lost may be told that it had succeeded in time.
    fn let_go(&self, token: &str) -> bool {
        self.note_ended();
        let mut held = self.held();
        held.until.remove(token);
        held.ended.remove(token) && !held.renewing.contains(token)
    }

    /// What became of a commit or a renewal, by whether it came late.
    fn judge(&self, what: &str, late: bool, answer: &Result<(), ProviderError>) {
        match answer {
            Ok(()) if late => self.ledger.learn(Fact::Wrong(format!("{what} came late and was accepted"))),
            Err(error) if late && !error.is_retryable() => self.ledger.learn(Fact::RefusedLate),
            _ => {}
        }
    }

    async fn renewed(
        &self,
        token: &str,
        extend_for: Duration,
        renewal: impl Future<Output = Result<(), ProviderError>>,
    ) -> Result<(), ProviderError> {
        let late = self.begin_renewal(token);
        let answer = renewal.await;
        self.end_renewal(token, extend_for, late, &answer);
        answer
    }

    /// Whether the lock has surely ended when its renewal begins.
    fn begin_renewal(&self, token: &str) -> bool {
        self.note_ended();
        let mut held = self.held();
        let ended = held.ended.contains(token);
        held.renewing.insert(token.to_owned()) && ended
    }

    fn end_renewal(&self, token: &str, extend_for: Duration, late: bool, answer: &Result<(), ProviderError>) {
        self.judge("a renewal", late, answer);
        let mut held = self.held();
        // An error that is no refusal leaves open what happened.
        if !answer.as_ref().is_err_and(ProviderError::is_retryable) {
            held.renewing.remove(token);
        }
        if answer.is_ok() && (held.ended.remove(token) || held.until.contains_key(token)) {
            held.until.insert(token.to_owned(), Instant::now() + extend_for);
        }
    }
}

#[async_trait]
impl Provider for WatchedStore {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn version(&self) -> &str {
        self.inner.version()
    }

    async fn fetch_orchestration_item(
        &self,
        lock_timeout: Duration,
        poll_timeout: Duration,
        filter: Option<&DispatcherCapabilityFilter>,
    ) -> Result<Option<(OrchestrationItem, String, u32)>, ProviderError> {
        let fetched = self.inner.fetch_orchestration_item(lock_timeout, poll_timeout, filter).await?;
        if let Some((_, token, _)) = &fetched {
            self.hold(token, lock_timeout);
        }
        Ok(fetched)
    }

    async fn ack_orchestration_item(
        &self,
        lock_token: &str,
        execution_id: u64,
        history_delta: Vec<Event>,
        worker_items: Vec<WorkItem>,
        orchestrator_items: Vec<WorkItem>,
        metadata: ExecutionMetadata,
        cancelled_activities: Vec<ScheduledActivityIdentifier>,
    ) -> Result<(), ProviderError> {
        let (late, is_turn) = (self.let_go(lock_token), !history_delta.is_empty());
        let answer = self.inner.ack_orchestration_item(
            lock_token,
            execution_id,
            history_delta,
            worker_items,
            orchestrator_items,
            metadata,
            cancelled_activities,
        );
        let answer = answer.await;
        self.judge("the commit of a turn", late, &answer);
        if answer.is_ok() && is_turn {
            self.ledger.learn(Fact::Turn);
        }
        answer
    }

    async fn abandon_orchestration_item(
        &self,
        lock_token: &str,
        delay: Option<Duration>,
        ignore_attempt: bool,
    ) -> Result<(), ProviderError> {
        self.let_go(lock_token);
        self.inner.abandon_orchestration_item(lock_token, delay, ignore_attempt).await
    }

    async fn read(&self, instance: &str) -> Result<Vec<Event>, ProviderError> {
        self.inner.read(instance).await
    }

    async fn read_with_execution(
        &self,
        instance: &str,
        execution_id: u64,
    ) -> Result<Vec<Event>, ProviderError> {
        self.inner.read_with_execution(instance, execution_id).await
    }

    async fn append_with_execution(
        &self,
        instance: &str,
        execution_id: u64,
        new_events: Vec<Event>,
    ) -> Result<(), ProviderError> {
        self.inner.append_with_execution(instance, execution_id, new_events).await
    }

    async fn enqueue_for_worker(&self, item: WorkItem) -> Result<(), ProviderError> {
        self.inner.enqueue_for_worker(item).await
    }

    async fn fetch_work_item(
        &self,
        lock_timeout: Duration,
        poll_timeout: Duration,
        session: Option<&SessionFetchConfig>,
        tag_filter: &TagFilter,
    ) -> Result<Option<(WorkItem, String, u32)>, ProviderError> {
        let fetched = self.inner.fetch_work_item(lock_timeout, poll_timeout, session, tag_filter).await?;
        if let Some((_, token, _)) = &fetched {
            self.hold(token, lock_timeout);
        }
        Ok(fetched)
    }

    async fn ack_work_item(&self, token: &str, completion: Option<WorkItem>) -> Result<(), ProviderError> {
        let late = self.let_go(token);
        let answer = self.inner.ack_work_item(token, completion).await;
        self.judge("the outcome of an activity", late, &answer);
        answer
    }

    async fn renew_work_item_lock(&self, token: &str, extend_for: Duration) -> Result<(), ProviderError> {
        self.renewed(token, extend_for, self.inner.renew_work_item_lock(token, extend_for)).await
    }

    async fn renew_session_lock(
        &self,
        owner_ids: &[&str],
        extend_for: Duration,
        idle_timeout: Duration,
    ) -> Result<usize, ProviderError> {
        self.inner.renew_session_lock(owner_ids, extend_for, idle_timeout).await
    }

    async fn cleanup_orphaned_sessions(&self, idle_timeout: Duration) -> Result<usize, ProviderError> {
        self.inner.cleanup_orphaned_sessions(idle_timeout).await
    }

    async fn abandon_work_item(
        &self,
        token: &str,
        delay: Option<Duration>,
        ignore_attempt: bool,
    ) -> Result<(), ProviderError> {
        self.let_go(token);
        self.inner.abandon_work_item(token, delay, ignore_attempt).await
    }

    async fn renew_orchestration_item_lock(
        &self,
        token: &str,
        extend_for: Duration,
    ) -> Result<(), ProviderError> {
        self.renewed(token, extend_for, self.inner.renew_orchestration_item_lock(token, extend_for)).await
    }

    async fn enqueue_for_orchestrator(
        &self,
        item: WorkItem,
        delay: Option<Duration>,
    ) -> Result<(), ProviderError> {
        self.inner.enqueue_for_orchestrator(item, delay).await
    }

    fn as_management_capability(&self) -> Option<&dyn ProviderAdmin> {
        self.inner.as_management_capability()
    }

    async fn get_custom_status(
        &self,
        instance: &str,
        last_seen_version: u64,
    ) -> Result<Option<(Option<String>, u64)>, ProviderError> {
        self.inner.get_custom_status(instance, last_seen_version).await
    }

    async fn get_kv_value(&self, instance: &str, key: &str) -> Result<Option<String>, ProviderError> {
        self.inner.get_kv_value(instance, key).await
    }

    async fn get_kv_all_values(&self, instance: &str) -> Result<HashMap<String, String>, ProviderError> {
        self.inner.get_kv_all_values(instance).await
    }

    async fn get_instance_stats(&self, instance: &str) -> Result<Option<SystemStats>, ProviderError> {
        self.inner.get_instance_stats(instance).await
    }

    fn payload_bytes_max(&self) -> usize {
        self.inner.payload_bytes_max()
    }

    fn now_ms(&self) -> u64 {
        self.inner.now_ms()
    }

    async fn fetch_turn(
        &self,
        lock_timeout: Duration,
        poll_timeout: Duration,
        filter: Option<&DispatcherCapabilityFilter>,
        warm: Arc<dyn WarmView>,
    ) -> Result<Option<FetchedTurn>, ProviderError> {
        let fetched = self.inner.fetch_turn(lock_timeout, poll_timeout, filter, warm).await?;
        if let Some(turn) = &fetched {
            self.hold(&turn.lock_token, lock_timeout);
        }
        Ok(fetched)
    }

    async fn commit_turn(&self, commit: &TurnCommit) -> Result<(), ProviderError> {
        let late = self.let_go(&commit.lock_token);
        let answer = self.inner.commit_turn(commit).await;
        self.judge("the commit of a turn", late, &answer);
        if answer.is_ok() && !commit.history_delta.is_empty() {
            self.ledger.learn(Fact::Turn);
        }
        answer
    }

    async fn renew_locks(&self, renewals: &[LockRenewal]) -> Vec<Result<(), ProviderError>> {
        let late: Vec<bool> = renewals.iter().map(|renewal| self.begin_renewal(&renewal.token)).collect();
        let answers = self.inner.renew_locks(renewals).await;
        for ((renewal, late), answer) in renewals.iter().zip(late).zip(&answers) {
            self.end_renewal(&renewal.token, renewal.extend_for, late, answer);
        }
        answers
    }

    async fn read_status(&self, instance: &str) -> Result<OrchestrationStatus, ProviderError> {
        self.inner.read_status(instance).await
    }

    fn watch_instance(&self, instance: &str) -> InstanceWatch {
        self.inner.watch_instance(instance)
    }

    async fn read_orchestration_name(
        &self,
        instance: &str,
    ) -> Result<Option<(String, String)>, ProviderError> {
        self.inner.read_orchestration_name(instance).await
    }
}
