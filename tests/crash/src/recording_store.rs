//! A store wrapper that records committed turns, and checks that no expired lock commits.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use everturn::providers::{
    DispatcherCapabilityFilter, ExecutionMetadata, FetchedTurn, InstanceWatch, LockRenewal,
    OrchestrationItem, Provider, ProviderAdmin, ProviderError, ScheduledActivityIdentifier,
    SessionFetchConfig, TagFilter, TurnCommit, WarmView, WorkItem,
};
use everturn::{Event, OrchestrationStatus, SystemStats};

use crate::lock_tracker::LockTracker;
use crate::observations::{Observation, ObservationLog};

/// Forwards every call. Records every turn whose commit was answered with `Ok`, and every commit or renewal that was
/// sent after its lock had expired by the holder's own clock.
pub(crate) struct RecordingStore {
    inner: Arc<dyn Provider>,
    log: Arc<ObservationLog>,
    locks: LockTracker,
}

impl RecordingStore {
    /// Records the calls to `inner`.
    pub(crate) fn new(inner: Arc<dyn Provider>, log: Arc<ObservationLog>) -> Self {
        Self { inner, locks: LockTracker::new(Arc::clone(&log)), log }
    }

    fn committed(&self, late: bool, has_events: bool, answer: &Result<(), ProviderError>) {
        self.locks.check_answer("the commit of a turn", late, answer);
        if answer.is_ok() && has_events {
            self.log.record(Observation::Turn);
        }
    }

    async fn renewed(
        &self,
        token: &str,
        extend_for: Duration,
        renewal: impl Future<Output = Result<(), ProviderError>>,
    ) -> Result<(), ProviderError> {
        let late = self.locks.begin_renewal(token);
        let answer = renewal.await;
        self.locks.end_renewal(token, extend_for, late, &answer);
        answer
    }
}

#[async_trait]
impl Provider for RecordingStore {
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
            self.locks.acquired(token, lock_timeout);
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
        let (late, has_events) = (self.locks.release(lock_token), !history_delta.is_empty());
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
        self.committed(late, has_events, &answer);
        answer
    }

    async fn abandon_orchestration_item(
        &self,
        lock_token: &str,
        delay: Option<Duration>,
        ignore_attempt: bool,
    ) -> Result<(), ProviderError> {
        self.locks.release(lock_token);
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
            self.locks.acquired(token, lock_timeout);
        }
        Ok(fetched)
    }

    async fn ack_work_item(&self, token: &str, completion: Option<WorkItem>) -> Result<(), ProviderError> {
        let late = self.locks.release(token);
        let answer = self.inner.ack_work_item(token, completion).await;
        self.locks.check_answer("the outcome of an activity", late, &answer);
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
        self.locks.release(token);
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
            self.locks.acquired(&turn.lock_token, lock_timeout);
        }
        Ok(fetched)
    }

    async fn commit_turn(&self, commit: &TurnCommit) -> Result<(), ProviderError> {
        let late = self.locks.release(&commit.lock_token);
        let answer = self.inner.commit_turn(commit).await;
        self.committed(late, !commit.history_delta.is_empty(), &answer);
        answer
    }

    async fn renew_locks(&self, renewals: &[LockRenewal]) -> Vec<Result<(), ProviderError>> {
        let late: Vec<bool> =
            renewals.iter().map(|renewal| self.locks.begin_renewal(&renewal.token)).collect();
        let answers = self.inner.renew_locks(renewals).await;
        for ((renewal, late), answer) in renewals.iter().zip(late).zip(&answers) {
            self.locks.end_renewal(&renewal.token, renewal.extend_for, late, answer);
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
