//! A provider that stores nothing: it records every call and returns what the test configured.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use everturn::providers::{
    DeleteInstanceResult, DispatcherCapabilityFilter, ExecutionInfo, ExecutionMetadata, FetchedTurn,
    InstanceFilter, InstanceInfo, InstanceWatch, LockRenewal, OrchestrationItem, Provider, ProviderAdmin,
    ProviderError, PruneOptions, PruneResult, QueueDepths, ScheduledActivityIdentifier, SessionFetchConfig,
    SystemMetrics, TagFilter, TurnCommit, WarmView, WorkItem,
};
use everturn::{Event, OrchestrationStatus, SystemStats};

#[derive(Default)]
pub(crate) struct RecordingProvider {
    pub(crate) calls: Mutex<Vec<&'static str>>,
    pub(crate) enqueued: Mutex<Vec<WorkItem>>,
    pub(crate) error: Mutex<Option<ProviderError>>,
    pub(crate) status: Mutex<Option<OrchestrationStatus>>,
    pub(crate) managed: bool,
    /// Whether reads of a history, a status or a key never return.
    pub(crate) hangs: bool,
}

impl RecordingProvider {
    /// A provider whose methods all fail with this error.
    pub(crate) fn failing(error: ProviderError) -> Self {
        Self { error: Mutex::new(Some(error)), ..Self::default() }
    }

    /// The methods called since the previous `take_calls`.
    pub(crate) fn take_calls(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }

    fn record<T>(&self, method: &'static str, answer: T) -> Result<T, ProviderError> {
        self.calls.lock().unwrap().push(method);
        self.error.lock().unwrap().clone().map_or(Ok(answer), Err)
    }
}

#[async_trait]
impl Provider for RecordingProvider {
    fn name(&self) -> &str {
        "recording"
    }

    fn version(&self) -> &str {
        "9.9.9"
    }

    fn as_management_capability(&self) -> Option<&dyn ProviderAdmin> {
        self.managed.then_some(self)
    }

    fn payload_bytes_max(&self) -> usize {
        8
    }

    fn now_ms(&self) -> u64 {
        77
    }

    async fn fetch_orchestration_item(
        &self,
        _lock_timeout: Duration,
        _poll_timeout: Duration,
        _filter: Option<&DispatcherCapabilityFilter>,
    ) -> Result<Option<(OrchestrationItem, String, u32)>, ProviderError> {
        self.record("fetch_orchestration_item", None)
    }

    async fn ack_orchestration_item(
        &self,
        _lock_token: &str,
        _execution_id: u64,
        _history_delta: Vec<Event>,
        _worker_items: Vec<WorkItem>,
        _orchestrator_items: Vec<WorkItem>,
        _metadata: ExecutionMetadata,
        _cancelled_activities: Vec<ScheduledActivityIdentifier>,
    ) -> Result<(), ProviderError> {
        self.record("ack_orchestration_item", ())
    }

    async fn abandon_orchestration_item(
        &self,
        _lock_token: &str,
        _delay: Option<Duration>,
        _ignore_attempt: bool,
    ) -> Result<(), ProviderError> {
        self.record("abandon_orchestration_item", ())
    }

    async fn read(&self, _instance: &str) -> Result<Vec<Event>, ProviderError> {
        if self.hangs {
            std::future::pending::<()>().await;
        }
        self.record("read", vec![])
    }

    async fn read_with_execution(
        &self,
        _instance: &str,
        _execution_id: u64,
    ) -> Result<Vec<Event>, ProviderError> {
        self.record("read_with_execution", vec![])
    }

    async fn append_with_execution(
        &self,
        _instance: &str,
        _execution_id: u64,
        _new_events: Vec<Event>,
    ) -> Result<(), ProviderError> {
        self.record("append_with_execution", ())
    }

    async fn enqueue_for_worker(&self, _item: WorkItem) -> Result<(), ProviderError> {
        self.record("enqueue_for_worker", ())
    }

    async fn fetch_work_item(
        &self,
        _lock_timeout: Duration,
        _poll_timeout: Duration,
        _session: Option<&SessionFetchConfig>,
        _tag_filter: &TagFilter,
    ) -> Result<Option<(WorkItem, String, u32)>, ProviderError> {
        self.record("fetch_work_item", None)
    }

    async fn ack_work_item(&self, _token: &str, _completion: Option<WorkItem>) -> Result<(), ProviderError> {
        self.record("ack_work_item", ())
    }

    async fn renew_work_item_lock(&self, _token: &str, _extend_for: Duration) -> Result<(), ProviderError> {
        self.record("renew_work_item_lock", ())
    }

    async fn renew_session_lock(
        &self,
        _owner_ids: &[&str],
        _extend_for: Duration,
        _idle_timeout: Duration,
    ) -> Result<usize, ProviderError> {
        self.record("renew_session_lock", 5)
    }

    async fn cleanup_orphaned_sessions(&self, _idle_timeout: Duration) -> Result<usize, ProviderError> {
        self.record("cleanup_orphaned_sessions", 6)
    }

    async fn abandon_work_item(
        &self,
        _token: &str,
        _delay: Option<Duration>,
        _ignore_attempt: bool,
    ) -> Result<(), ProviderError> {
        self.record("abandon_work_item", ())
    }

    async fn renew_orchestration_item_lock(
        &self,
        _token: &str,
        _extend_for: Duration,
    ) -> Result<(), ProviderError> {
        self.record("renew_orchestration_item_lock", ())
    }

    async fn enqueue_for_orchestrator(
        &self,
        item: WorkItem,
        _delay: Option<Duration>,
    ) -> Result<(), ProviderError> {
        self.record("enqueue_for_orchestrator", ())?;
        self.enqueued.lock().unwrap().push(item);
        Ok(())
    }

    async fn get_custom_status(
        &self,
        _instance: &str,
        _last_seen_version: u64,
    ) -> Result<Option<(Option<String>, u64)>, ProviderError> {
        self.record("get_custom_status", None)
    }

    async fn get_kv_value(&self, _instance: &str, _key: &str) -> Result<Option<String>, ProviderError> {
        if self.hangs {
            std::future::pending::<()>().await;
        }
        self.record("get_kv_value", None)
    }

    async fn get_kv_all_values(&self, _instance: &str) -> Result<HashMap<String, String>, ProviderError> {
        self.record("get_kv_all_values", HashMap::new())
    }

    async fn get_instance_stats(&self, _instance: &str) -> Result<Option<SystemStats>, ProviderError> {
        self.record("get_instance_stats", None)
    }

    async fn fetch_turn(
        &self,
        _lock_timeout: Duration,
        _poll_timeout: Duration,
        _filter: Option<&DispatcherCapabilityFilter>,
        _warm: Arc<dyn WarmView>,
    ) -> Result<Option<FetchedTurn>, ProviderError> {
        self.record("fetch_turn", None)
    }

    async fn commit_turn(&self, _commit: &TurnCommit) -> Result<(), ProviderError> {
        self.record("commit_turn", ())
    }

    async fn renew_locks(&self, renewals: &[LockRenewal]) -> Vec<Result<(), ProviderError>> {
        let answer = self.record("renew_locks", ());
        renewals.iter().map(|_| answer.clone()).collect()
    }

    async fn read_status(&self, _instance: &str) -> Result<OrchestrationStatus, ProviderError> {
        if self.hangs {
            std::future::pending::<()>().await;
        }
        let status = self.status.lock().unwrap().clone();
        self.record("read_status", status.unwrap_or(OrchestrationStatus::NotFound))
    }

    fn watch_instance(&self, _instance: &str) -> InstanceWatch {
        self.calls.lock().unwrap().push("watch_instance");
        InstanceWatch::polling()
    }

    async fn read_orchestration_name(
        &self,
        _instance: &str,
    ) -> Result<Option<(String, String)>, ProviderError> {
        self.record("read_orchestration_name", None)
    }
}

#[async_trait]
impl ProviderAdmin for RecordingProvider {
    async fn list_instances(&self) -> Result<Vec<String>, ProviderError> {
        self.record("list_instances", vec![])
    }

    async fn list_instances_by_status(&self, _status: &str) -> Result<Vec<String>, ProviderError> {
        self.record("list_instances_by_status", vec![])
    }

    async fn list_executions(&self, _instance: &str) -> Result<Vec<u64>, ProviderError> {
        self.record("list_executions", vec![])
    }

    async fn read_history_with_execution_id(
        &self,
        _instance: &str,
        _execution_id: u64,
    ) -> Result<Vec<Event>, ProviderError> {
        self.record("read_history_with_execution_id", vec![])
    }

    async fn read_history(&self, _instance: &str) -> Result<Vec<Event>, ProviderError> {
        self.record("read_history", vec![])
    }

    async fn latest_execution_id(&self, _instance: &str) -> Result<u64, ProviderError> {
        self.record("latest_execution_id", 1)
    }

    async fn get_instance_info(&self, instance: &str) -> Result<InstanceInfo, ProviderError> {
        Err(ProviderError::not_found("get_instance_info", format!("{instance} not found")))
    }

    async fn get_execution_info(
        &self,
        instance: &str,
        _execution_id: u64,
    ) -> Result<ExecutionInfo, ProviderError> {
        Err(ProviderError::not_found("get_execution_info", format!("{instance} not found")))
    }

    async fn get_system_metrics(&self) -> Result<SystemMetrics, ProviderError> {
        self.record("get_system_metrics", SystemMetrics::default())
    }

    async fn get_queue_depths(&self) -> Result<QueueDepths, ProviderError> {
        self.record("get_queue_depths", QueueDepths::default())
    }

    async fn list_children(&self, _instance_id: &str) -> Result<Vec<String>, ProviderError> {
        self.record("list_children", vec![])
    }

    async fn get_parent_id(&self, _instance_id: &str) -> Result<Option<String>, ProviderError> {
        self.record("get_parent_id", None)
    }

    async fn delete_instances_atomic(
        &self,
        _ids: &[String],
        _force: bool,
    ) -> Result<DeleteInstanceResult, ProviderError> {
        self.record("delete_instances_atomic", DeleteInstanceResult::default())
    }

    async fn delete_instance_bulk(
        &self,
        _filter: InstanceFilter,
    ) -> Result<DeleteInstanceResult, ProviderError> {
        self.record("delete_instance_bulk", DeleteInstanceResult::default())
    }

    async fn prune_executions(
        &self,
        _instance_id: &str,
        _options: PruneOptions,
    ) -> Result<PruneResult, ProviderError> {
        self.record("prune_executions", PruneResult::default())
    }

    async fn prune_executions_bulk(
        &self,
        _filter: InstanceFilter,
        _options: PruneOptions,
    ) -> Result<PruneResult, ProviderError> {
        self.record("prune_executions_bulk", PruneResult::default())
    }
}
