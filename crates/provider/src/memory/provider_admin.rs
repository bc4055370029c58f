//! The management side, each verb handed to the store.

use async_trait::async_trait;
use everturn_core::Event;

use super::MemoryProvider;
use crate::error::ProviderError;
use crate::management::{
    DeleteInstanceResult, ExecutionInfo, InstanceFilter, InstanceInfo, ProviderAdmin, PruneOptions,
    PruneResult, QueueDepths, SystemMetrics,
};

#[async_trait]
impl ProviderAdmin for MemoryProvider {
    async fn list_instances(&self) -> Result<Vec<String>, ProviderError> {
        self.look("list_instances", |store, _| store.list_instances()).await
    }

    async fn list_instances_by_status(&self, status: &str) -> Result<Vec<String>, ProviderError> {
        self.look("list_instances_by_status", |store, _| store.list_instances_by_status(status)).await
    }

    async fn list_executions(&self, instance: &str) -> Result<Vec<u64>, ProviderError> {
        self.look("list_executions", |store, _| store.list_executions(instance)).await
    }

    async fn read_history_with_execution_id(
        &self,
        instance: &str,
        execution_id: u64,
    ) -> Result<Vec<Event>, ProviderError> {
        self.look("read_history_with_execution_id", |store, _| {
            store.read_with_execution(instance, execution_id)
        })
        .await?
    }

    async fn read_history(&self, instance: &str) -> Result<Vec<Event>, ProviderError> {
        self.look("read_history", |store, _| store.read(instance)).await?
    }

    async fn latest_execution_id(&self, instance: &str) -> Result<u64, ProviderError> {
        self.look("latest_execution_id", |store, _| store.latest_execution_id(instance)).await
    }

    async fn get_instance_info(&self, instance: &str) -> Result<InstanceInfo, ProviderError> {
        self.look("get_instance_info", |store, _| store.get_instance_info(instance)).await?
    }

    async fn get_execution_info(
        &self,
        instance: &str,
        execution_id: u64,
    ) -> Result<ExecutionInfo, ProviderError> {
        self.look("get_execution_info", |store, _| store.get_execution_info(instance, execution_id)).await?
    }

    async fn get_system_metrics(&self) -> Result<SystemMetrics, ProviderError> {
        self.look("get_system_metrics", |store, _| store.get_system_metrics()).await
    }

    async fn get_queue_depths(&self) -> Result<QueueDepths, ProviderError> {
        self.look("get_queue_depths", |store, now| store.get_queue_depths(now)).await
    }

    async fn list_children(&self, instance_id: &str) -> Result<Vec<String>, ProviderError> {
        self.look("list_children", |store, _| store.list_children(instance_id)).await
    }

    async fn get_parent_id(&self, instance_id: &str) -> Result<Option<String>, ProviderError> {
        self.look("get_parent_id", |store, _| store.get_parent_id(instance_id)).await?
    }

    async fn delete_instances_atomic(
        &self,
        ids: &[String],
        force: bool,
    ) -> Result<DeleteInstanceResult, ProviderError> {
        self.write("delete_instances_atomic", |store, _| store.delete_instances_atomic(ids, force)).await?
    }

    async fn delete_instance_bulk(
        &self,
        filter: InstanceFilter,
    ) -> Result<DeleteInstanceResult, ProviderError> {
        self.write("delete_instance_bulk", |store, _| store.delete_instance_bulk(&filter)).await?
    }

    async fn prune_executions(
        &self,
        instance_id: &str,
        options: PruneOptions,
    ) -> Result<PruneResult, ProviderError> {
        self.write("prune_executions", |store, _| store.prune_executions(instance_id, &options)).await?
    }

    async fn prune_executions_bulk(
        &self,
        filter: InstanceFilter,
        options: PruneOptions,
    ) -> Result<PruneResult, ProviderError> {
        self.write("prune_executions_bulk", |store, _| store.prune_executions_bulk(&filter, &options)).await?
    }
}
