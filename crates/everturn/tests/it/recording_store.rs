//! A store that keeps nothing: it records every call and returns what the test configured.

use std::collections::HashMap;
use std::sync::Mutex;

use async_trait::async_trait;
use everturn::providers::store::{
    CustomStatus, ExecutionRead, FetchedTurn, FetchedWork, OrchestrationName, Receipt, Renewal, Renewed,
    Settlement, Store, StoreLimits, StoredExecution, Submission, Sweep, Swept, TurnAbandon, TurnCommit,
    TurnFetch, WorkFetch,
};
use everturn::providers::{
    DeleteInstanceResult, ExecutionInfo, InstanceFilter, InstanceInfo, InstanceWatch, ProviderAdmin,
    ProviderError, PruneOptions, PruneResult, QueueDepths, SystemMetrics, WorkItem,
};
use everturn::{Event, OrchestrationStatus, SystemStats};

#[derive(Default)]
pub(crate) struct RecordingStore {
    pub(crate) calls: Mutex<Vec<&'static str>>,
    pub(crate) enqueued: Mutex<Vec<WorkItem>>,
    pub(crate) error: Mutex<Option<ProviderError>>,
    pub(crate) status: Mutex<Option<OrchestrationStatus>>,
    pub(crate) managed: bool,
    /// Whether reads of a history, a status or a key never return.
    pub(crate) hangs: bool,
}

impl RecordingStore {
    /// A store whose verbs all fail with this error.
    pub(crate) fn failing(error: ProviderError) -> Self {
        Self { error: Mutex::new(Some(error)), ..Self::default() }
    }

    /// The verbs called since the previous `take_calls`.
    pub(crate) fn take_calls(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }

    fn record<T>(&self, verb: &'static str, answer: T) -> Result<T, ProviderError> {
        self.calls.lock().unwrap().push(verb);
        self.error.lock().unwrap().clone().map_or(Ok(answer), Err)
    }

    async fn hang_if_set(&self) {
        if self.hangs {
            std::future::pending::<()>().await;
        }
    }
}

#[async_trait]
impl Store for RecordingStore {
    fn name(&self) -> &str {
        "recording"
    }

    fn version(&self) -> &str {
        "9.9.9"
    }

    fn limits(&self) -> StoreLimits {
        StoreLimits::new(8)
    }

    fn now_ms(&self) -> u64 {
        77
    }

    async fn fetch_turns(&self, _fetch: &TurnFetch) -> Result<Vec<FetchedTurn>, ProviderError> {
        self.record("fetch_turns", vec![])
    }

    async fn commit_turn(&self, _commit: &TurnCommit) -> Result<(), ProviderError> {
        self.record("commit_turn", ())
    }

    async fn abandon_turn(&self, _abandon: &TurnAbandon) -> Result<(), ProviderError> {
        self.record("abandon_turn", ())
    }

    async fn fetch_work(&self, _fetch: &WorkFetch) -> Result<Vec<FetchedWork>, ProviderError> {
        self.record("fetch_work", vec![])
    }

    async fn settle_work(&self, _settlement: &Settlement) -> Result<(), ProviderError> {
        self.record("settle_work", ())
    }

    async fn renew(&self, renewal: &Renewal) -> Result<Renewed, ProviderError> {
        self.record("renew", Renewed::new(vec![Ok(()); renewal.locks.len()], 5))
    }

    async fn submit(&self, submission: &Submission) -> Result<Vec<Receipt>, ProviderError> {
        let receipts = self.record("submit", vec![Receipt::Queued; submission.messages.len()])?;
        let items = submission.messages.iter().map(|message| message.item.clone());
        self.enqueued.lock().unwrap().extend(items);
        Ok(receipts)
    }

    async fn sweep(&self, _sweep: &Sweep) -> Result<Swept, ProviderError> {
        self.record("sweep", Swept::new(6))
    }

    async fn read_status(&self, _instance: &str) -> Result<OrchestrationStatus, ProviderError> {
        self.hang_if_set().await;
        let status = self.status.lock().unwrap().clone();
        self.record("read_status", status.unwrap_or(OrchestrationStatus::NotFound))
    }

    async fn read_execution(&self, _read: &ExecutionRead) -> Result<StoredExecution, ProviderError> {
        self.hang_if_set().await;
        self.record("read_execution", StoredExecution::default())
    }

    async fn read_custom_status(
        &self,
        _instance: &str,
        _last_seen_version: u64,
    ) -> Result<Option<CustomStatus>, ProviderError> {
        self.record("read_custom_status", None)
    }

    async fn read_kv_value(&self, _instance: &str, _key: &str) -> Result<Option<String>, ProviderError> {
        self.hang_if_set().await;
        self.record("read_kv_value", None)
    }

    async fn read_kv_values(&self, _instance: &str) -> Result<HashMap<String, String>, ProviderError> {
        self.record("read_kv_values", HashMap::new())
    }

    async fn read_stats(&self, _instance: &str) -> Result<Option<SystemStats>, ProviderError> {
        self.record("read_stats", None)
    }

    async fn read_orchestration_name(
        &self,
        _instance: &str,
    ) -> Result<Option<OrchestrationName>, ProviderError> {
        self.record("read_orchestration_name", None)
    }

    fn watch(&self, _instance: &str) -> InstanceWatch {
        self.calls.lock().unwrap().push("watch");
        InstanceWatch::polling()
    }

    fn admin(&self) -> Option<&dyn ProviderAdmin> {
        self.managed.then_some(self)
    }
}

#[async_trait]
impl ProviderAdmin for RecordingStore {
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
