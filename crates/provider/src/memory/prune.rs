//! Removing old executions; what they left in the key-value store stays.

use everturn_core::ExecutionStatus;

use super::delete::bulk_limit;
use super::tables::Tables;
use crate::error::ProviderError;
use crate::management::{InstanceFilter, PruneOptions, PruneResult};

impl Tables {
    /// Removes old executions of one instance; never the current one, never a running one.
    pub fn prune_executions(
        &mut self,
        instance: &str,
        options: &PruneOptions,
    ) -> Result<PruneResult, ProviderError> {
        let current = self.row("prune_executions", instance)?.current_execution_id;
        let mut result = PruneResult { instances_processed: 1, ..PruneResult::default() };
        let Some(executions) = self.executions.get_mut(instance) else { return Ok(result) };
        let keep = usize::try_from(options.keep_last.unwrap_or(1).max(1)).unwrap_or(usize::MAX);
        let old: Vec<u64> = executions.keys().rev().skip(keep).copied().collect();
        for execution_id in old {
            let may_go = executions.get(&execution_id).is_some_and(|execution| {
                let is_old_enough = options.completed_before.is_none_or(|cut_off_ms| {
                    execution.completed_at_ms.is_some_and(|completed_at_ms| completed_at_ms < cut_off_ms)
                });
                execution_id != current && execution.status != ExecutionStatus::Running && is_old_enough
            });
            if may_go && let Some(execution) = executions.remove(&execution_id) {
                result.executions_deleted += 1;
                result.events_deleted += execution.events.len() as u64;
            }
        }
        if result.executions_deleted > 0 {
            self.changes.instances.insert(instance.to_owned());
        }
        Ok(result)
    }

    /// The same for every instance that matches, by id.
    pub fn prune_executions_bulk(
        &mut self,
        filter: &InstanceFilter,
        options: &PruneOptions,
    ) -> Result<PruneResult, ProviderError> {
        let ids: Vec<String> = self
            .instances
            .keys()
            .filter(|id| self.matches(id, filter))
            .take(bulk_limit(filter))
            .cloned()
            .collect();
        let mut total = PruneResult::default();
        for id in ids {
            let pruned = self.prune_executions(&id, options)?;
            total.instances_processed += pruned.instances_processed;
            total.executions_deleted += pruned.executions_deleted;
            total.events_deleted += pruned.events_deleted;
        }
        Ok(total)
    }
}
