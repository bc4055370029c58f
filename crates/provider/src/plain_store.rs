//! The adapter that makes a [`Store`] of a plain [`Provider`].

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use everturn_core::{EndEvent, Event, EventKind, OrchestrationStatus, SystemStats, WorkItem};

use crate::error::ProviderError;
use crate::management::ProviderAdmin;
use crate::provider::Provider;
use crate::store::{
    CustomStatus, ExecutionRead, FetchedTurn, FetchedWork, LockKind, LockRenewal, NewMessage,
    OrchestrationName, RawWrites, Receipt, Renewal, Renewed, Settlement, SettlementKind, Store,
    StoreIdentity, StoreLimits, StoredExecution, Submission, Sweep, Swept, TurnAbandon, TurnCommit,
    TurnFetch, WorkFetch,
};

/// The store of a provider: its own, or the plain verbs behind an adapter.
///
/// ```
/// use std::sync::Arc;
/// use everturn_provider::{MemoryProvider, store_of};
/// use everturn_provider::store::Feature;
///
/// let store = store_of(Arc::new(MemoryProvider::new()));
/// assert!(store.supports(Feature::WarmInstances));
/// ```
pub fn store_of(provider: Arc<dyn Provider>) -> Arc<dyn Store> {
    Arc::clone(&provider).as_store().unwrap_or_else(|| Arc::new(PlainStore { provider }))
}

/// A provider that implements only the plain verbs, as a store: one item at a time, nothing warm, no feature.
struct PlainStore {
    provider: Arc<dyn Provider>,
}

#[async_trait]
impl Store for PlainStore {
    fn name(&self) -> &str {
        self.provider.name()
    }

    fn version(&self) -> &str {
        self.provider.version()
    }

    /// The place of the provider in memory: no other provider can be there while this one lives.
    fn identity(&self) -> Option<StoreIdentity> {
        Some(StoreIdentity::named(format!("provider at {:p}", Arc::as_ptr(&self.provider))))
    }

    fn limits(&self) -> StoreLimits {
        StoreLimits::new(self.provider.payload_bytes_max())
    }

    fn now_ms(&self) -> u64 {
        self.provider.now_ms()
    }

    async fn fetch_turns(&self, fetch: &TurnFetch) -> Result<Vec<FetchedTurn>, ProviderError> {
        let fetched = self
            .provider
            .fetch_orchestration_item(fetch.lock_timeout, fetch.poll_timeout, fetch.filter.as_ref())
            .await?;
        let turn = fetched.map(|(item, lock_token, attempt_count)| {
            FetchedTurn::new(item, lock_token, fetch.lock_timeout, attempt_count)
        });
        Ok(turn.into_iter().collect())
    }

    async fn commit_turn(&self, commit: &TurnCommit) -> Result<(), ProviderError> {
        let TurnCommit {
            lock_token,
            execution_id,
            history_delta,
            worker_items,
            orchestrator_items,
            update,
            cancelled_activities,
            base: _,
            stamp: _,
            check_in: _,
        } = commit.clone();
        self.provider
            .ack_orchestration_item(
                &lock_token,
                execution_id,
                history_delta,
                worker_items.into_iter().map(|work| work.item).collect(),
                orchestrator_items.into_iter().map(|message| message.item).collect(),
                update.into(),
                cancelled_activities,
            )
            .await
    }

    async fn abandon_turn(&self, abandon: &TurnAbandon) -> Result<(), ProviderError> {
        // The plain contract knows no handlers: the delay is for all callers.
        let TurnAbandon { lock_token, delay, ignore_attempt, missing_handler: _ } = abandon;
        self.provider.abandon_orchestration_item(lock_token, *delay, *ignore_attempt).await
    }

    async fn fetch_work(&self, fetch: &WorkFetch) -> Result<Vec<FetchedWork>, ProviderError> {
        let fetched = self
            .provider
            .fetch_work_item(fetch.lock_timeout, fetch.poll_timeout, fetch.session.as_ref(), &fetch.tags)
            .await?;
        let work = fetched.map(|(item, lock_token, attempt_count)| {
            FetchedWork::new(item, lock_token, fetch.lock_timeout, attempt_count)
        });
        Ok(work.into_iter().collect())
    }

    async fn settle_work(&self, settlement: &Settlement) -> Result<(), ProviderError> {
        let token = &settlement.lock_token;
        match &settlement.kind {
            SettlementKind::End { completion } => {
                let completion = completion.as_ref().map(|message| message.item.clone());
                self.provider.ack_work_item(token, completion).await
            }
            SettlementKind::Abandon { delay, ignore_attempt, missing_handler: _ } => {
                self.provider.abandon_work_item(token, *delay, *ignore_attempt).await
            }
        }
    }

    async fn renew(&self, renewal: &Renewal) -> Result<Renewed, ProviderError> {
        let mut locks = Vec::with_capacity(renewal.locks.len());
        for LockRenewal { kind, token, extend_for } in &renewal.locks {
            locks.push(match kind {
                LockKind::Orchestration => {
                    self.provider.renew_orchestration_item_lock(token, *extend_for).await
                }
                LockKind::WorkItem => self.provider.renew_work_item_lock(token, *extend_for).await,
            });
        }
        let sessions = match &renewal.sessions {
            Some(sessions) => {
                let owner_ids: Vec<&str> = sessions.owner_ids.iter().map(String::as_str).collect();
                self.provider
                    .renew_session_lock(&owner_ids, sessions.extend_for, sessions.idle_timeout)
                    .await?
            }
            None => 0,
        };
        Ok(Renewed::new(locks, sessions))
    }

    async fn submit(&self, submission: &Submission) -> Result<Vec<Receipt>, ProviderError> {
        let [NewMessage { item, delay, notes: _ }] = submission.messages.as_slice() else {
            return Err(ProviderError::unsupported(
                "submit",
                format!("{} takes one message at a time", self.provider.name()),
            ));
        };
        self.provider.enqueue_for_orchestrator(item.clone(), *delay).await?;
        Ok(vec![Receipt::Queued])
    }

    async fn sweep(&self, sweep: &Sweep) -> Result<Swept, ProviderError> {
        self.provider.cleanup_orphaned_sessions(sweep.session_idle_timeout).await.map(Swept::new)
    }

    /// From the whole history.
    async fn read_status(&self, instance: &str) -> Result<OrchestrationStatus, ProviderError> {
        let history = self.provider.read(instance).await?;
        let (custom_status, version) = match self.provider.get_custom_status(instance, 0).await {
            Ok(status) => status.unwrap_or_default(),
            Err(error) if error.is_retryable() => return Err(error),
            // A status that cannot be read does not hide the result of the instance.
            Err(_) => Default::default(),
        };
        Ok(status_of(&history, custom_status, version))
    }

    async fn read_execution(&self, read: &ExecutionRead) -> Result<StoredExecution, ProviderError> {
        let history = match read.execution_id {
            Some(execution_id) => self.provider.read_with_execution(&read.instance, execution_id).await?,
            None => self.provider.read(&read.instance).await?,
        };
        Ok(StoredExecution::new(history))
    }

    async fn read_custom_status(
        &self,
        instance: &str,
        last_seen_version: u64,
    ) -> Result<Option<CustomStatus>, ProviderError> {
        let status = self.provider.get_custom_status(instance, last_seen_version).await?;
        Ok(status.map(|(text, version)| CustomStatus { text, version }))
    }

    async fn read_kv_value(&self, instance: &str, key: &str) -> Result<Option<String>, ProviderError> {
        self.provider.get_kv_value(instance, key).await
    }

    async fn read_kv_values(&self, instance: &str) -> Result<HashMap<String, String>, ProviderError> {
        self.provider.get_kv_all_values(instance).await
    }

    async fn read_stats(&self, instance: &str) -> Result<Option<SystemStats>, ProviderError> {
        self.provider.get_instance_stats(instance).await
    }

    /// From the start event of the latest execution.
    async fn read_orchestration_name(
        &self,
        instance: &str,
    ) -> Result<Option<OrchestrationName>, ProviderError> {
        let history = self.provider.read(instance).await?;
        Ok(history.into_iter().find_map(|event| match event.kind {
            EventKind::OrchestrationStarted { name, version, .. } => {
                Some(OrchestrationName { name, version })
            }
            _ => None,
        }))
    }

    fn admin(&self) -> Option<&dyn ProviderAdmin> {
        self.provider.as_management_capability()
    }

    fn raw_writes(&self) -> Option<&dyn RawWrites> {
        Some(self)
    }
}

#[async_trait]
impl RawWrites for PlainStore {
    async fn append_events(
        &self,
        instance: &str,
        execution_id: u64,
        new_events: Vec<Event>,
    ) -> Result<(), ProviderError> {
        self.provider.append_with_execution(instance, execution_id, new_events).await
    }

    async fn enqueue_work(&self, item: WorkItem) -> Result<(), ProviderError> {
        self.provider.enqueue_for_worker(item).await
    }
}

/// The status that a latest execution's history shows: its last terminal event wins.
pub fn status_of(
    history: &[Event],
    custom_status: Option<String>,
    custom_status_version: u64,
) -> OrchestrationStatus {
    for end in history.iter().rev().filter_map(|event| event.kind.ends_as()) {
        match end {
            EndEvent::Completed { output } => {
                let output = output.to_owned();
                return OrchestrationStatus::Completed { output, custom_status, custom_status_version };
            }
            EndEvent::Failed { details } => {
                let details = details.clone();
                return OrchestrationStatus::Failed { details, custom_status, custom_status_version };
            }
            EndEvent::ContinuedAsNew { .. } => {}
        }
    }
    let started = history.iter().any(|event| matches!(event.kind, EventKind::OrchestrationStarted { .. }));
    if started {
        OrchestrationStatus::Running { custom_status, custom_status_version }
    } else {
        OrchestrationStatus::NotFound
    }
}
