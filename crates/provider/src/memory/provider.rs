//! The storage contract, each verb handed to the store.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use everturn_core::{Event, OrchestrationStatus, SystemStats, WorkItem};

use super::parked::LOOK_AT_LEAST_EVERY;
use super::store::{Moment, Store};
use super::{MemoryProvider, locked};
use crate::error::ProviderError;
use crate::locks::LockRenewal;
use crate::management::ProviderAdmin;
use crate::provider::Provider;
use crate::tags::TagFilter;
use crate::types::{
    DispatcherCapabilityFilter, ExecutionMetadata, OrchestrationItem, ScheduledActivityIdentifier,
    SessionFetchConfig,
};
use crate::warm::{FetchedTurn, TurnCommit, WarmView};
use crate::watch::InstanceWatch;

impl MemoryProvider {
    async fn fetch_instance(
        &self,
        operation: &str,
        lock_timeout: Duration,
        poll_timeout: Duration,
        filter: Option<&DispatcherCapabilityFilter>,
        warm: Option<Arc<dyn WarmView>>,
    ) -> Result<Option<FetchedTurn>, ProviderError> {
        let look = |store: &mut Store, now: Moment, token: &str| {
            let turn = store.fetch_orchestration_item(now, token, lock_timeout, filter, warm.as_deref());
            // Those who wait do not know of a lock that ends before they look again.
            store.changes.orchestrator_queue |= turn.is_some() && lock_timeout < LOOK_AT_LEAST_EVERY;
            turn
        };
        self.look_until(
            operation,
            poll_timeout,
            &self.orchestrator_work,
            look,
            Store::next_orchestration_wake,
        )
        .await
    }

    async fn commit(&self, operation: &str, commit: &TurnCommit) -> Result<(), ProviderError> {
        self.write(operation, |store, now| store.ack_orchestration_item(now, commit.clone())).await?
    }
}

#[async_trait]
impl Provider for MemoryProvider {
    fn name(&self) -> &str {
        "memory"
    }

    fn version(&self) -> &str {
        env!("CARGO_PKG_VERSION")
    }

    async fn fetch_orchestration_item(
        &self,
        lock_timeout: Duration,
        poll_timeout: Duration,
        filter: Option<&DispatcherCapabilityFilter>,
    ) -> Result<Option<(OrchestrationItem, String, u32)>, ProviderError> {
        let turn =
            self.fetch_instance("fetch_orchestration_item", lock_timeout, poll_timeout, filter, None).await?;
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
        let commit = TurnCommit {
            lock_token: lock_token.to_owned(),
            execution_id,
            history_delta,
            worker_items,
            orchestrator_items,
            metadata,
            cancelled_activities,
            base: None,
            stamp: self.fresh_stamp(),
            check_in: None,
        };
        self.commit("ack_orchestration_item", &commit).await
    }

    async fn abandon_orchestration_item(
        &self,
        lock_token: &str,
        delay: Option<Duration>,
        ignore_attempt: bool,
    ) -> Result<(), ProviderError> {
        self.write("abandon_orchestration_item", |store, now| {
            store.abandon_orchestration_item(now, lock_token, delay, ignore_attempt)
        })
        .await?
    }

    async fn read(&self, instance: &str) -> Result<Vec<Event>, ProviderError> {
        self.look("read", |store, _| store.read(instance)).await?
    }

    async fn read_with_execution(
        &self,
        instance: &str,
        execution_id: u64,
    ) -> Result<Vec<Event>, ProviderError> {
        self.look("read_with_execution", |store, _| store.read_with_execution(instance, execution_id)).await?
    }

    async fn append_with_execution(
        &self,
        instance: &str,
        execution_id: u64,
        new_events: Vec<Event>,
    ) -> Result<(), ProviderError> {
        let stamp = self.fresh_stamp();
        self.write("append_with_execution", |store, now| {
            store.append_with_execution(now, stamp, instance, execution_id, new_events.clone())
        })
        .await?
    }

    async fn enqueue_for_worker(&self, item: WorkItem) -> Result<(), ProviderError> {
        self.write("enqueue_for_worker", |store, _| store.enqueue_for_worker(item.clone())).await?
    }

    async fn fetch_work_item(
        &self,
        lock_timeout: Duration,
        poll_timeout: Duration,
        session: Option<&SessionFetchConfig>,
        tag_filter: &TagFilter,
    ) -> Result<Option<(WorkItem, String, u32)>, ProviderError> {
        let ends_soon = lock_timeout < LOOK_AT_LEAST_EVERY
            || session.is_some_and(|session| session.lock_timeout < LOOK_AT_LEAST_EVERY);
        let look = |store: &mut Store, now: Moment, token: &str| {
            let work = store.fetch_work_item(now, token, lock_timeout, session, tag_filter);
            // Those who wait do not know of a lock or lease that ends before they look again.
            store.changes.worker_queue |= work.is_some() && ends_soon;
            work
        };
        self.look_until("fetch_work_item", poll_timeout, &self.worker_work, look, Store::next_work_item_wake)
            .await
    }

    async fn ack_work_item(&self, token: &str, completion: Option<WorkItem>) -> Result<(), ProviderError> {
        self.write("ack_work_item", |store, now| store.ack_work_item(now, token, completion.clone())).await?
    }

    async fn renew_work_item_lock(&self, token: &str, extend_for: Duration) -> Result<(), ProviderError> {
        self.write("renew_work_item_lock", |store, now| store.renew_work_item_lock(now, token, extend_for))
            .await?
    }

    async fn renew_session_lock(
        &self,
        owner_ids: &[&str],
        extend_for: Duration,
        idle_timeout: Duration,
    ) -> Result<usize, ProviderError> {
        self.write("renew_session_lock", |store, now| {
            store.renew_session_lock(now, owner_ids, extend_for, idle_timeout)
        })
        .await
    }

    async fn cleanup_orphaned_sessions(&self, _idle_timeout: Duration) -> Result<usize, ProviderError> {
        self.write("cleanup_orphaned_sessions", |store, now| store.cleanup_orphaned_sessions(now)).await
    }

    async fn abandon_work_item(
        &self,
        token: &str,
        delay: Option<Duration>,
        ignore_attempt: bool,
    ) -> Result<(), ProviderError> {
        self.write("abandon_work_item", |store, now| {
            store.abandon_work_item(now, token, delay, ignore_attempt)
        })
        .await?
    }

    async fn renew_orchestration_item_lock(
        &self,
        token: &str,
        extend_for: Duration,
    ) -> Result<(), ProviderError> {
        self.write("renew_orchestration_item_lock", |store, now| {
            store.renew_orchestration_item_lock(now, token, extend_for)
        })
        .await?
    }

    async fn enqueue_for_orchestrator(
        &self,
        item: WorkItem,
        delay: Option<Duration>,
    ) -> Result<(), ProviderError> {
        self.write("enqueue_for_orchestrator", |store, now| {
            store.enqueue_for_orchestrator(now, item.clone(), delay)
        })
        .await?
    }

    fn as_management_capability(&self) -> Option<&dyn ProviderAdmin> {
        Some(self)
    }

    async fn get_custom_status(
        &self,
        instance: &str,
        last_seen_version: u64,
    ) -> Result<Option<(Option<String>, u64)>, ProviderError> {
        self.look("get_custom_status", |store, _| store.get_custom_status(instance, last_seen_version)).await
    }

    async fn get_kv_value(&self, instance: &str, key: &str) -> Result<Option<String>, ProviderError> {
        self.look("get_kv_value", |store, _| store.get_kv_value(instance, key)).await
    }

    async fn get_kv_all_values(&self, instance: &str) -> Result<HashMap<String, String>, ProviderError> {
        self.look("get_kv_all_values", |store, _| store.get_kv_all_values(instance)).await
    }

    async fn get_instance_stats(&self, instance: &str) -> Result<Option<SystemStats>, ProviderError> {
        self.look("get_instance_stats", |store, _| store.get_instance_stats(instance)).await
    }

    fn payload_bytes_max(&self) -> usize {
        self.payload_bytes_max
    }

    fn now_ms(&self) -> u64 {
        self.clock.wall_ms()
    }

    async fn fetch_turn(
        &self,
        lock_timeout: Duration,
        poll_timeout: Duration,
        filter: Option<&DispatcherCapabilityFilter>,
        warm: Arc<dyn WarmView>,
    ) -> Result<Option<FetchedTurn>, ProviderError> {
        self.fetch_instance("fetch_turn", lock_timeout, poll_timeout, filter, Some(warm)).await
    }

    async fn commit_turn(&self, commit: &TurnCommit) -> Result<(), ProviderError> {
        self.commit("commit_turn", commit).await
    }

    async fn renew_locks(&self, renewals: &[LockRenewal]) -> Vec<Result<(), ProviderError>> {
        match self.write("renew_locks", |store, now| store.renew_locks(now, renewals)).await {
            Ok(answers) => answers,
            Err(lost) => renewals.iter().map(|_| Err(lost.clone())).collect(),
        }
    }

    async fn read_status(&self, instance: &str) -> Result<OrchestrationStatus, ProviderError> {
        self.look("read_status", |store, _| store.read_status(instance)).await?
    }

    fn watch_instance(&self, instance: &str) -> InstanceWatch {
        InstanceWatch::woken(locked(&self.watches).watch(instance))
    }

    async fn read_orchestration_name(
        &self,
        instance: &str,
    ) -> Result<Option<(String, String)>, ProviderError> {
        self.look("read_orchestration_name", |store, _| store.read_orchestration_name(instance)).await
    }
}
