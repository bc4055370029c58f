//! The management side of a provider with a fault.

use async_trait::async_trait;
use everturn_core::Event;
use everturn_provider::management::{
    DeleteInstanceResult, ExecutionInfo, InstanceFilter, InstanceInfo, PruneOptions, PruneResult,
    QueueDepths, SystemMetrics,
};
use everturn_provider::{Provider, ProviderAdmin, ProviderError};

use crate::faulty::{Fault, Faulty};

#[async_trait]
impl ProviderAdmin for Faulty {
    async fn list_instances(&self) -> Result<Vec<String>, ProviderError> {
        self.inner.list_instances().await
    }

    async fn list_instances_by_status(&self, status: &str) -> Result<Vec<String>, ProviderError> {
        self.inner.list_instances_by_status(status).await
    }

    async fn list_executions(&self, instance: &str) -> Result<Vec<u64>, ProviderError> {
        let mut executions = self.inner.list_executions(instance).await?;
        if self.known().pruned.iter().any(|pruned| pruned == instance) {
            executions.pop();
        }
        Ok(executions)
    }

    async fn read_history_with_execution_id(
        &self,
        instance: &str,
        execution_id: u64,
    ) -> Result<Vec<Event>, ProviderError> {
        self.inner.read_history_with_execution_id(instance, execution_id).await
    }

    async fn read_history(&self, instance: &str) -> Result<Vec<Event>, ProviderError> {
        self.inner.read_history(instance).await
    }

    async fn latest_execution_id(&self, instance: &str) -> Result<u64, ProviderError> {
        self.inner.latest_execution_id(instance).await
    }

    async fn get_instance_info(&self, instance: &str) -> Result<InstanceInfo, ProviderError> {
        self.inner.get_instance_info(instance).await
    }

    async fn get_execution_info(
        &self,
        instance: &str,
        execution_id: u64,
    ) -> Result<ExecutionInfo, ProviderError> {
        self.inner.get_execution_info(instance, execution_id).await
    }

    async fn get_system_metrics(&self) -> Result<SystemMetrics, ProviderError> {
        self.inner.get_system_metrics().await
    }

    async fn get_queue_depths(&self) -> Result<QueueDepths, ProviderError> {
        self.inner.get_queue_depths().await
    }

    async fn list_children(&self, instance_id: &str) -> Result<Vec<String>, ProviderError> {
        self.inner.list_children(instance_id).await
    }

    async fn get_parent_id(&self, instance_id: &str) -> Result<Option<String>, ProviderError> {
        self.inner.get_parent_id(instance_id).await
    }

    async fn delete_instances_atomic(
        &self,
        ids: &[String],
        force: bool,
    ) -> Result<DeleteInstanceResult, ProviderError> {
        let deleted = self.inner.delete_instances_atomic(ids, force).await?;
        if self.has(Fault::DeleteLeavesQueueRows) {
            let activities = self.known().activities.clone();
            for item in activities.into_iter().filter(|item| ids.iter().any(|id| id == item.instance())) {
                self.inner.enqueue_for_worker(item).await?;
            }
        }
        Ok(deleted)
    }

    async fn delete_instance_bulk(
        &self,
        filter: InstanceFilter,
    ) -> Result<DeleteInstanceResult, ProviderError> {
        self.inner.delete_instance_bulk(filter).await
    }

    async fn prune_executions(
        &self,
        instance_id: &str,
        options: PruneOptions,
    ) -> Result<PruneResult, ProviderError> {
        let pruned = self.inner.prune_executions(instance_id, options).await?;
        if self.has(Fault::PruneDeletesTheCurrentExecution) {
            // From now on the last one is not shown any more.
            self.known().pruned.push(instance_id.to_owned());
        }
        Ok(pruned)
    }

    async fn prune_executions_bulk(
        &self,
        filter: InstanceFilter,
        options: PruneOptions,
    ) -> Result<PruneResult, ProviderError> {
        self.inner.prune_executions_bulk(filter, options).await
    }
}
