//! The management verbs: listing, inspecting, deleting and pruning instances.

use async_trait::async_trait;
use everturn_core::Event;
use everturn_provider::encoded::{stored_id, unsigned};
use everturn_provider::management::{
    DeadLetterRecord, DeadLetterSelection, DeleteInstanceResult, ExecutionInfo, InstanceFilter, InstanceInfo,
    InstanceTree, PruneOptions, PruneResult, QueueDepths, SystemMetrics,
};
use everturn_provider::store::ExecutionRead;
use everturn_provider::{ProviderAdmin, ProviderError};
use tokio_postgres::{Error, Row};

use crate::error::storage_error;
use crate::provider::PostgresProvider;
use crate::{dead_letters, delete, delete_bulk, list_instances, prune, queue_depths, read};

const LIST_EXECUTIONS: &str = "SELECT e.execution_id FROM {schema}.everturn_instances AS i \
     JOIN {schema}.everturn_executions AS e ON e.instance_key = i.instance_key \
     WHERE i.instance_id = $1 ORDER BY e.execution_id";
// Says too whether the newest execution should have events and has none. Counting all would take too long.
const INSTANCE_INFO: &str = "SELECT i.instance_id, i.orchestration_name, i.orchestration_version, i.current_execution_id, \
     e.status, e.output, i.created_at_ms, i.updated_at_ms, i.parent_instance_id, n.execution_id, \
     CASE WHEN n.execution_id = i.current_execution_id THEN i.event_count ELSE n.event_count END > 0 \
     AND NOT EXISTS (SELECT 1 FROM {schema}.everturn_history AS h \
         WHERE h.instance_key = i.instance_key AND h.execution_id = n.execution_id) \
     FROM {schema}.everturn_instances AS i LEFT JOIN {schema}.everturn_executions AS e \
     ON e.instance_key = i.instance_key AND e.execution_id = i.current_execution_id \
     LEFT JOIN LATERAL (SELECT l.execution_id, l.event_count FROM {schema}.everturn_executions AS l \
         WHERE l.instance_key = i.instance_key ORDER BY l.execution_id DESC LIMIT 1) AS n ON true \
     WHERE i.instance_id = $1 AND i.created_at_ms IS NOT NULL";
const EXECUTION_INFO: &str = "SELECT e.execution_id, e.status, e.output, e.started_at_ms, e.completed_at_ms, \
     CASE WHEN e.execution_id = i.current_execution_id THEN i.event_count ELSE e.event_count END \
     FROM {schema}.everturn_instances AS i JOIN {schema}.everturn_executions AS e ON e.instance_key = i.instance_key \
     WHERE i.instance_id = $1 AND e.execution_id = $2";
const PARENT: &str = "SELECT parent_instance_id FROM {schema}.everturn_instances \
     WHERE instance_id = $1 AND created_at_ms IS NOT NULL";
// Each process has a row of its own.
const TOTALS: &str = "SELECT coalesce(sum(instances), 0)::bigint, coalesce(sum(running), 0)::bigint, \
     coalesce(sum(completed), 0)::bigint, coalesce(sum(failed), 0)::bigint, coalesce(sum(executions), 0)::bigint, \
     coalesce(sum(events), 0)::bigint FROM {schema}.everturn_totals";

#[async_trait]
impl ProviderAdmin for PostgresProvider {
    async fn list_instances(&self) -> Result<Vec<String>, ProviderError> {
        list_instances::list(self, "list_instances", None).await
    }

    async fn list_instances_by_status(&self, status: &str) -> Result<Vec<String>, ProviderError> {
        list_instances::list(self, "list_instances_by_status", Some(status)).await
    }

    async fn list_executions(&self, instance: &str) -> Result<Vec<u64>, ProviderError> {
        const NAME: &str = "list_executions";
        let rows = self.readers().query(NAME, LIST_EXECUTIONS, &[&instance]).await?;
        let ids = rows.iter().map(|row| row.try_get(0).map(unsigned)).collect::<Result<Vec<u64>, Error>>();
        ids.map_err(|error| storage_error(NAME, error))
    }

    async fn read_history_with_execution_id(
        &self,
        instance: &str,
        execution_id: u64,
    ) -> Result<Vec<Event>, ProviderError> {
        read::execution(self, &ExecutionRead::of(instance, execution_id)).await
    }

    async fn read_history(&self, instance: &str) -> Result<Vec<Event>, ProviderError> {
        read::execution(self, &ExecutionRead::latest(instance)).await
    }

    async fn latest_execution_id(&self, instance: &str) -> Result<u64, ProviderError> {
        Ok(read::latest(self, "latest_execution_id", instance).await?.map_or(1, unsigned))
    }

    async fn get_instance_info(&self, instance: &str) -> Result<InstanceInfo, ProviderError> {
        const NAME: &str = "get_instance_info";
        let failed = |error| read::about(instance, storage_error(NAME, error));
        let found = self.readers().query_opt(NAME, INSTANCE_INFO, &[&instance]).await;
        let Some(row) = found.map_err(|error| read::about(instance, error))? else {
            return Err(not_found(NAME, instance));
        };
        if let Some(execution_id) = lost_history(&row).map_err(failed)? {
            let message = format!("the events of execution {execution_id} are missing");
            return Err(read::about(instance, ProviderError::damaged(NAME, message)));
        }
        instance_info(&row).map_err(failed)
    }

    async fn get_execution_info(
        &self,
        instance: &str,
        execution_id: u64,
    ) -> Result<ExecutionInfo, ProviderError> {
        const NAME: &str = "get_execution_info";
        let missing = || {
            let message = format!("execution {execution_id} of instance {instance} not found");
            ProviderError::not_found(NAME, message)
        };
        let stored = stored_id(NAME, "execution id", execution_id).map_err(|_| missing())?;
        let found = self.readers().query_opt(NAME, EXECUTION_INFO, &[&instance, &stored]).await?;
        execution_info(&found.ok_or_else(missing)?).map_err(|error| storage_error(NAME, error))
    }

    async fn get_system_metrics(&self) -> Result<SystemMetrics, ProviderError> {
        const NAME: &str = "get_system_metrics";
        match self.readers().query_opt(NAME, TOTALS, &[]).await? {
            Some(row) => totals(&row).map_err(|error| storage_error(NAME, error)),
            None => Ok(SystemMetrics::default()),
        }
    }

    async fn get_queue_depths(&self) -> Result<QueueDepths, ProviderError> {
        queue_depths::read(self).await
    }

    async fn read_dead_letters(
        &self,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<DeadLetterRecord>, ProviderError> {
        dead_letters::read(self, after, limit).await
    }

    async fn delete_dead_letters(&self, which: DeadLetterSelection) -> Result<u64, ProviderError> {
        dead_letters::delete(self, which).await
    }

    async fn list_children(&self, instance_id: &str) -> Result<Vec<String>, ProviderError> {
        delete::children(self, "list_children", instance_id).await
    }

    async fn get_parent_id(&self, instance_id: &str) -> Result<Option<String>, ProviderError> {
        const NAME: &str = "get_parent_id";
        let found = self.readers().query_opt(NAME, PARENT, &[&instance_id]).await?;
        let row = found.ok_or_else(|| not_found(NAME, instance_id))?;
        row.try_get(0).map_err(|error| storage_error(NAME, error))
    }

    async fn get_instance_tree(&self, instance_id: &str) -> Result<InstanceTree, ProviderError> {
        let all_ids = delete::tree_of(self, "get_instance_tree", instance_id).await?;
        Ok(InstanceTree { root_id: instance_id.to_owned(), all_ids })
    }

    async fn delete_instances_atomic(
        &self,
        ids: &[String],
        force: bool,
    ) -> Result<DeleteInstanceResult, ProviderError> {
        delete::delete_instances(self, ids, force).await
    }

    async fn delete_instance_bulk(
        &self,
        filter: InstanceFilter,
    ) -> Result<DeleteInstanceResult, ProviderError> {
        delete_bulk::delete_bulk(self, filter).await
    }

    async fn prune_executions(
        &self,
        instance_id: &str,
        options: PruneOptions,
    ) -> Result<PruneResult, ProviderError> {
        prune::prune_one(self, instance_id, options).await
    }

    async fn prune_executions_bulk(
        &self,
        filter: InstanceFilter,
        options: PruneOptions,
    ) -> Result<PruneResult, ProviderError> {
        prune::prune_bulk(self, filter, options).await
    }
}

fn not_found(operation: &str, instance: &str) -> ProviderError {
    ProviderError::not_found(operation, format!("instance {instance} not found"))
}

/// The newest execution, if it should have events and has none.
fn lost_history(row: &Row) -> Result<Option<i64>, Error> {
    let (execution_id, is_lost): (Option<i64>, Option<bool>) = (row.try_get(9)?, row.try_get(10)?);
    Ok(execution_id.filter(|_| is_lost == Some(true)))
}

fn instance_info(row: &Row) -> Result<InstanceInfo, Error> {
    let updated_at_ms: Option<i64> = row.try_get(7)?;
    Ok(InstanceInfo {
        instance_id: row.try_get(0)?,
        orchestration_name: row.try_get(1)?,
        orchestration_version: row.try_get(2)?,
        current_execution_id: unsigned(row.try_get(3)?),
        // The turn that made an execution the current one also inserted its row.
        status: row.try_get(4)?,
        output: row.try_get(5)?,
        created_at: unsigned(row.try_get(6)?),
        updated_at: unsigned(updated_at_ms.unwrap_or(0)),
        parent_instance_id: row.try_get(8)?,
    })
}

fn execution_info(row: &Row) -> Result<ExecutionInfo, Error> {
    let completed_at_ms: Option<i64> = row.try_get(4)?;
    Ok(ExecutionInfo {
        execution_id: unsigned(row.try_get(0)?),
        status: row.try_get(1)?,
        output: row.try_get(2)?,
        started_at: unsigned(row.try_get(3)?),
        completed_at: completed_at_ms.map(unsigned),
        event_count: usize::try_from(unsigned(row.try_get(5)?)).unwrap_or(usize::MAX),
    })
}

/// The sums that [`TOTALS`] reads.
fn totals(row: &Row) -> Result<SystemMetrics, Error> {
    Ok(SystemMetrics {
        total_instances: unsigned(row.try_get(0)?),
        running_instances: unsigned(row.try_get(1)?),
        completed_instances: unsigned(row.try_get(2)?),
        failed_instances: unsigned(row.try_get(3)?),
        total_executions: unsigned(row.try_get(4)?),
        total_events: unsigned(row.try_get(5)?),
    })
}
