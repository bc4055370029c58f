//! The management side of a store with a fault.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use everturn_conformance::AdminLayer;
use everturn_provider::management::{DeleteInstanceResult, PruneOptions, PruneResult, SystemMetrics};
use everturn_provider::store::{RawWrites, Store};
use everturn_provider::{MemoryProvider, ProviderAdmin, ProviderError};

use crate::faulty::{FaultRecord, StoreFault};

/// A management side with one fault built in.
pub(crate) struct FaultyAdmin {
    pub(crate) inner: Arc<MemoryProvider>,
    pub(crate) fault: StoreFault,
    pub(crate) record: Arc<FaultRecord>,
}

impl FaultyAdmin {
    fn raw_writes(&self) -> &dyn RawWrites {
        Store::raw_writes(&*self.inner).expect("the in-memory store has raw writes")
    }
}

#[async_trait]
impl AdminLayer for FaultyAdmin {
    fn inner(&self) -> &dyn ProviderAdmin {
        &*self.inner
    }

    async fn list_executions(&self, instance: &str) -> Result<Vec<u64>, ProviderError> {
        let mut executions = self.inner.list_executions(instance).await?;
        if self.record.pruned.lock().unwrap().iter().any(|pruned| pruned == instance) {
            executions.pop();
        }
        Ok(executions)
    }

    async fn delete_instances_atomic(
        &self,
        ids: &[String],
        force: bool,
    ) -> Result<DeleteInstanceResult, ProviderError> {
        let deleted = self.inner.delete_instances_atomic(ids, force).await?;
        if self.fault == StoreFault::DeleteLeavesQueueRows {
            let activities = self.record.activities.lock().unwrap().clone();
            for item in activities.into_iter().filter(|item| ids.iter().any(|id| id == item.instance())) {
                self.raw_writes().enqueue_work(item).await?;
            }
        }
        Ok(deleted)
    }

    async fn get_system_metrics(&self) -> Result<SystemMetrics, ProviderError> {
        let mut metrics = self.inner.get_system_metrics().await?;
        if self.fault == StoreFault::StepsCountAsExecutions {
            metrics.total_executions += self.record.steps.load(Ordering::SeqCst);
        }
        Ok(metrics)
    }

    async fn prune_executions(
        &self,
        instance_id: &str,
        options: PruneOptions,
    ) -> Result<PruneResult, ProviderError> {
        let pruned = self.inner.prune_executions(instance_id, options).await?;
        if self.fault == StoreFault::PruneDeletesTheCurrentExecution {
            // From now on the last one is not shown any more.
            self.record.pruned.lock().unwrap().push(instance_id.to_owned());
        }
        Ok(pruned)
    }
}
