//! The management side of a [`BatchedMemory`].

use async_trait::async_trait;
use everturn_core::Event;
use everturn_provider::management::{
    DeleteInstanceResult, ExecutionInfo, InstanceFilter, InstanceInfo, PruneOptions, PruneResult,
    QueueDepths, SystemMetrics,
};
use everturn_provider::store::ExecutionRead;
use everturn_provider::{ProviderAdmin, ProviderError};

use super::batch::BatchedMemory;

#[async_trait]
impl ProviderAdmin for BatchedMemory {
    async fn list_instances(&self) -> Result<Vec<String>, ProviderError> {
        self.read("list_instances", |tables, _| tables.list_instances()).await
    }

    async fn list_instances_by_status(&self, status: &str) -> Result<Vec<String>, ProviderError> {
        self.read("list_instances_by_status", |tables, _| tables.list_instances_by_status(status)).await
    }

    async fn list_executions(&self, instance: &str) -> Result<Vec<u64>, ProviderError> {
        self.read("list_executions", |tables, _| tables.list_executions(instance)).await
    }

    async fn read_history_with_execution_id(
        &self,
        instance: &str,
        execution_id: u64,
    ) -> Result<Vec<Event>, ProviderError> {
        let read = ExecutionRead::of(instance, execution_id);
        let stored = self.read("read_execution", |tables, _| tables.read_execution(&read)).await??;
        Ok(stored.history)
    }

    async fn read_history(&self, instance: &str) -> Result<Vec<Event>, ProviderError> {
        let read = ExecutionRead::latest(instance);
        let stored = self.read("read_execution", |tables, _| tables.read_execution(&read)).await??;
        Ok(stored.history)
    }

    async fn latest_execution_id(&self, instance: &str) -> Result<u64, ProviderError> {
        self.read("latest_execution_id", |tables, _| tables.latest_execution_id(instance)).await
    }

    async fn get_instance_info(&self, instance: &str) -> Result<InstanceInfo, ProviderError> {
        self.read("get_instance_info", |tables, _| tables.get_instance_info(instance)).await?
    }

    async fn get_execution_info(
        &self,
        instance: &str,
        execution_id: u64,
    ) -> Result<ExecutionInfo, ProviderError> {
        self.read("get_execution_info", |tables, _| tables.get_execution_info(instance, execution_id)).await?
    }

    async fn get_system_metrics(&self) -> Result<SystemMetrics, ProviderError> {
        self.read("get_system_metrics", |tables, _| tables.get_system_metrics()).await
    }

    async fn get_queue_depths(&self) -> Result<QueueDepths, ProviderError> {
        self.read("get_queue_depths", |tables, now| tables.get_queue_depths(now)).await
    }

    async fn list_children(&self, instance_id: &str) -> Result<Vec<String>, ProviderError> {
        self.read("list_children", |tables, _| tables.list_children(instance_id)).await
    }

    async fn get_parent_id(&self, instance_id: &str) -> Result<Option<String>, ProviderError> {
        self.read("get_parent_id", |tables, _| tables.get_parent_id(instance_id)).await?
    }

    async fn delete_instances_atomic(
        &self,
        ids: &[String],
        force: bool,
    ) -> Result<DeleteInstanceResult, ProviderError> {
        self.write("delete_instances_atomic", |tables, _, _| tables.delete_instances_atomic(ids, force))
            .await?
    }

    async fn delete_instance_bulk(
        &self,
        filter: InstanceFilter,
    ) -> Result<DeleteInstanceResult, ProviderError> {
        self.write("delete_instance_bulk", |tables, _, _| tables.delete_instance_bulk(&filter)).await?
    }

    async fn prune_executions(
        &self,
        instance_id: &str,
        options: PruneOptions,
    ) -> Result<PruneResult, ProviderError> {
        self.write("prune_executions", |tables, _, _| tables.prune_executions(instance_id, &options)).await?
    }

    async fn prune_executions_bulk(
        &self,
        filter: InstanceFilter,
        options: PruneOptions,
    ) -> Result<PruneResult, ProviderError> {
        self.write("prune_executions_bulk", |tables, _, _| tables.prune_executions_bulk(&filter, &options))
            .await?
    }
}
