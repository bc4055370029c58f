//! One place that forwards the management side of a wrapped provider.

use async_trait::async_trait;
use everturn_core::Event;
use everturn_provider::management::{
    DeadLetterRecord, DeadLetterSelection, DeleteInstanceResult, ExecutionInfo, InstanceFilter, InstanceInfo,
    PruneOptions, PruneResult, QueueDepths, SystemMetrics,
};
use everturn_provider::{ProviderAdmin, ProviderError};

/// The management side around another one: forwards what it does not change.
#[async_trait]
pub trait AdminLayer: Send + Sync + 'static {
    /// The wrapped management side.
    fn inner(&self) -> &dyn ProviderAdmin;

    /// See [`ProviderAdmin::list_executions`].
    async fn list_executions(&self, instance: &str) -> Result<Vec<u64>, ProviderError> {
        self.inner().list_executions(instance).await
    }

    /// See [`ProviderAdmin::get_system_metrics`].
    async fn get_system_metrics(&self) -> Result<SystemMetrics, ProviderError> {
        self.inner().get_system_metrics().await
    }

    /// See [`ProviderAdmin::get_queue_depths`].
    async fn get_queue_depths(&self) -> Result<QueueDepths, ProviderError> {
        self.inner().get_queue_depths().await
    }

    /// See [`ProviderAdmin::delete_instances_atomic`].
    async fn delete_instances_atomic(
        &self,
        ids: &[String],
        force: bool,
    ) -> Result<DeleteInstanceResult, ProviderError> {
        self.inner().delete_instances_atomic(ids, force).await
    }

    /// See [`ProviderAdmin::prune_executions`].
    async fn prune_executions(
        &self,
        instance_id: &str,
        options: PruneOptions,
    ) -> Result<PruneResult, ProviderError> {
        self.inner().prune_executions(instance_id, options).await
    }
}

/// The management side that an [`AdminLayer`] makes. The methods with a default body have it.
pub struct LayeredAdmin<L>(pub L);

#[async_trait]
impl<L: AdminLayer> ProviderAdmin for LayeredAdmin<L> {
    async fn list_instances(&self) -> Result<Vec<String>, ProviderError> {
        self.0.inner().list_instances().await
    }

    async fn list_instances_by_status(&self, status: &str) -> Result<Vec<String>, ProviderError> {
        self.0.inner().list_instances_by_status(status).await
    }

    async fn list_executions(&self, instance: &str) -> Result<Vec<u64>, ProviderError> {
        self.0.list_executions(instance).await
    }

    async fn read_history_with_execution_id(
        &self,
        instance: &str,
        execution_id: u64,
    ) -> Result<Vec<Event>, ProviderError> {
        self.0.inner().read_history_with_execution_id(instance, execution_id).await
    }

    async fn read_history(&self, instance: &str) -> Result<Vec<Event>, ProviderError> {
        self.0.inner().read_history(instance).await
    }

    async fn latest_execution_id(&self, instance: &str) -> Result<u64, ProviderError> {
        self.0.inner().latest_execution_id(instance).await
    }

    async fn get_instance_info(&self, instance: &str) -> Result<InstanceInfo, ProviderError> {
        self.0.inner().get_instance_info(instance).await
    }

    async fn get_execution_info(
        &self,
        instance: &str,
        execution_id: u64,
    ) -> Result<ExecutionInfo, ProviderError> {
        self.0.inner().get_execution_info(instance, execution_id).await
    }

    async fn get_system_metrics(&self) -> Result<SystemMetrics, ProviderError> {
        self.0.get_system_metrics().await
    }

    async fn get_queue_depths(&self) -> Result<QueueDepths, ProviderError> {
        self.0.get_queue_depths().await
    }

    async fn read_dead_letters(
        &self,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<DeadLetterRecord>, ProviderError> {
        self.0.inner().read_dead_letters(after, limit).await
    }

    async fn delete_dead_letters(&self, which: DeadLetterSelection) -> Result<u64, ProviderError> {
        self.0.inner().delete_dead_letters(which).await
    }

    async fn list_children(&self, instance_id: &str) -> Result<Vec<String>, ProviderError> {
        self.0.inner().list_children(instance_id).await
    }

    async fn get_parent_id(&self, instance_id: &str) -> Result<Option<String>, ProviderError> {
        self.0.inner().get_parent_id(instance_id).await
    }

    async fn delete_instances_atomic(
        &self,
        ids: &[String],
        force: bool,
    ) -> Result<DeleteInstanceResult, ProviderError> {
        self.0.delete_instances_atomic(ids, force).await
    }

    async fn delete_instance_bulk(
        &self,
        filter: InstanceFilter,
    ) -> Result<DeleteInstanceResult, ProviderError> {
        self.0.inner().delete_instance_bulk(filter).await
    }

    async fn prune_executions(
        &self,
        instance_id: &str,
        options: PruneOptions,
    ) -> Result<PruneResult, ProviderError> {
        self.0.prune_executions(instance_id, options).await
    }

    async fn prune_executions_bulk(
        &self,
        filter: InstanceFilter,
        options: PruneOptions,
    ) -> Result<PruneResult, ProviderError> {
        self.0.inner().prune_executions_bulk(filter, options).await
    }
}
