//! The plain verbs of every [`Store`]: one blanket implementation of [`Provider`].

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use everturn_core::{Event, SystemStats, WorkItem};

use crate::error::ProviderError;
use crate::management::ProviderAdmin;
use crate::provider::Provider;
use crate::store::{
    ExecutionRead, LockKind, LockRenewal, NewMessage, RawWrites, Renewal, SessionRenewal, Settlement, Store,
    Submission, Sweep, TurnAbandon, TurnCommit, TurnFetch, WorkFetch,
};
use crate::tags::TagFilter;
use crate::types::{
    DispatcherCapabilityFilter, ExecutionMetadata, OrchestrationItem, ScheduledActivityIdentifier,
    SessionFetchConfig,
};

#[async_trait]
impl<S: Store> Provider for S {
    fn name(&self) -> &str {
        Store::name(self)
    }

    fn version(&self) -> &str {
        Store::version(self)
    }

    fn as_store(self: Arc<Self>) -> Option<Arc<dyn Store>> {
        Some(self)
    }

    async fn fetch_orchestration_item(
        &self,
        lock_timeout: Duration,
        poll_timeout: Duration,
        filter: Option<&DispatcherCapabilityFilter>,
    ) -> Result<Option<(OrchestrationItem, String, u32)>, ProviderError> {
        let mut fetch = TurnFetch::new(lock_timeout, poll_timeout);
        fetch.filter = filter.cloned();
        let turn = self.fetch_turns(&fetch).await?.pop();
        Ok(turn.map(|turn| (turn.item, turn.lock_token, turn.attempt_count)))
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
        let mut commit = TurnCommit::new(lock_token, execution_id);
        commit.history_delta = history_delta;
        commit.worker_items = worker_items.into_iter().map(Into::into).collect();
        commit.orchestrator_items = orchestrator_items.into_iter().map(Into::into).collect();
        commit.update = metadata.try_into()?;
        commit.cancelled_activities = cancelled_activities;
        self.commit_turn(&commit).await
    }

    async fn abandon_orchestration_item(
        &self,
        lock_token: &str,
        delay: Option<Duration>,
        ignore_attempt: bool,
    ) -> Result<(), ProviderError> {
        let abandon = TurnAbandon::new(lock_token).with_delay(delay).with_ignored_attempt(ignore_attempt);
        self.abandon_turn(&abandon).await
    }

    async fn read(&self, instance: &str) -> Result<Vec<Event>, ProviderError> {
        Ok(self.read_execution(&ExecutionRead::latest(instance)).await?.history)
    }

    async fn read_with_execution(
        &self,
        instance: &str,
        execution_id: u64,
    ) -> Result<Vec<Event>, ProviderError> {
        Ok(self.read_execution(&ExecutionRead::of(instance, execution_id)).await?.history)
    }

    async fn append_with_execution(
        &self,
        instance: &str,
        execution_id: u64,
        new_events: Vec<Event>,
    ) -> Result<(), ProviderError> {
        raw_writes(self, "append_with_execution")?.append_events(instance, execution_id, new_events).await
    }

    async fn enqueue_for_worker(&self, item: WorkItem) -> Result<(), ProviderError> {
        raw_writes(self, "enqueue_for_worker")?.enqueue_work(item).await
    }

    async fn fetch_work_item(
        &self,
        lock_timeout: Duration,
        poll_timeout: Duration,
        session: Option<&SessionFetchConfig>,
        tag_filter: &TagFilter,
    ) -> Result<Option<(WorkItem, String, u32)>, ProviderError> {
        let fetch = WorkFetch::new(lock_timeout, poll_timeout)
            .with_session(session.cloned())
            .with_tags(tag_filter.clone());
        let work = self.fetch_work(&fetch).await?.pop();
        Ok(work.map(|work| (work.item, work.lock_token, work.attempt_count)))
    }

    async fn ack_work_item(&self, token: &str, completion: Option<WorkItem>) -> Result<(), ProviderError> {
        self.settle_work(&Settlement::end(token, completion.map(Into::into))).await
    }

    async fn renew_work_item_lock(&self, token: &str, extend_for: Duration) -> Result<(), ProviderError> {
        renew_lock(self, LockKind::WorkItem, token, extend_for).await
    }

    async fn renew_session_lock(
        &self,
        owner_ids: &[&str],
        extend_for: Duration,
        idle_timeout: Duration,
    ) -> Result<usize, ProviderError> {
        let owner_ids = owner_ids.iter().map(|id| (*id).to_owned()).collect();
        let renewal = Renewal::of_sessions(SessionRenewal { owner_ids, extend_for, idle_timeout });
        Ok(self.renew(&renewal).await?.sessions)
    }

    async fn cleanup_orphaned_sessions(&self, idle_timeout: Duration) -> Result<usize, ProviderError> {
        Ok(self.sweep(&Sweep::new(idle_timeout)).await?.sessions)
    }

    async fn abandon_work_item(
        &self,
        token: &str,
        delay: Option<Duration>,
        ignore_attempt: bool,
    ) -> Result<(), ProviderError> {
        self.settle_work(&Settlement::abandon(token, delay, ignore_attempt)).await
    }

    async fn renew_orchestration_item_lock(
        &self,
        token: &str,
        extend_for: Duration,
    ) -> Result<(), ProviderError> {
        renew_lock(self, LockKind::Orchestration, token, extend_for).await
    }

    async fn enqueue_for_orchestrator(
        &self,
        item: WorkItem,
        delay: Option<Duration>,
    ) -> Result<(), ProviderError> {
        self.submit(&Submission::of(NewMessage::delayed(item, delay))).await.map(drop)
    }

    fn as_management_capability(&self) -> Option<&dyn ProviderAdmin> {
        self.admin()
    }

    async fn get_custom_status(
        &self,
        instance: &str,
        last_seen_version: u64,
    ) -> Result<Option<(Option<String>, u64)>, ProviderError> {
        let status = self.read_custom_status(instance, last_seen_version).await?;
        Ok(status.map(|status| (status.text, status.version)))
    }

    async fn get_kv_value(&self, instance: &str, key: &str) -> Result<Option<String>, ProviderError> {
        self.read_kv_value(instance, key).await
    }

    async fn get_kv_all_values(&self, instance: &str) -> Result<HashMap<String, String>, ProviderError> {
        self.read_kv_values(instance).await
    }

    async fn get_instance_stats(&self, instance: &str) -> Result<Option<SystemStats>, ProviderError> {
        self.read_stats(instance).await
    }

    fn payload_bytes_max(&self) -> usize {
        self.limits().payload_bytes_max
    }

    fn now_ms(&self) -> u64 {
        Store::now_ms(self)
    }
}

async fn renew_lock(
    store: &impl Store,
    kind: LockKind,
    token: &str,
    extend_for: Duration,
) -> Result<(), ProviderError> {
    let lock = LockRenewal { kind, token: token.to_owned(), extend_for };
    let renewed = store.renew(&Renewal::of_locks(vec![lock])).await?;
    let no_answer = || Err(ProviderError::retryable("renew", "no answer for this lock"));
    renewed.locks.into_iter().next().unwrap_or_else(no_answer)
}

fn raw_writes<'a>(store: &'a impl Store, verb: &str) -> Result<&'a dyn RawWrites, ProviderError> {
    store.raw_writes().ok_or_else(|| {
        ProviderError::unsupported(
            verb,
            format!("{} has no writes that bypass the engine", Store::name(store)),
        )
    })
}
