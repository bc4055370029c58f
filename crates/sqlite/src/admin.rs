//! The management verbs: listing, inspecting, deleting and pruning instances.

use async_trait::async_trait;
use everturn_core::{Event, ExecutionStatus};
use everturn_provider::encoded::{stored_id, unsigned};
use everturn_provider::management::{
    DeadLetterRecord, DeadLetterSelection, DeleteInstanceResult, ExecutionInfo, InstanceFilter, InstanceInfo,
    InstanceTree, PruneOptions, PruneResult, QueueDepths, SystemMetrics,
};
use everturn_provider::store::ExecutionRead;
use everturn_provider::{ProviderAdmin, ProviderError};
use rusqlite::{OptionalExtension, Row, params};

use crate::columns;
use crate::dead_letters;
use crate::delete::{self, DeleteInstances};
use crate::list_instances;
use crate::provider::SqliteProvider;
use crate::read::of_execution;
use crate::{delete_bulk, prune, queue_depths, read, totals};

const LIST_EXECUTIONS: &str = "SELECT e.execution_id FROM everturn_instances AS i JOIN everturn_executions AS e \
     ON e.instance_key = i.instance_key WHERE i.instance_id = ?1 ORDER BY e.execution_id";
const INSTANCE_INFO: &str = "SELECT i.instance_id, i.orchestration_name, i.orchestration_version, \
     i.current_execution_id, e.status, e.output, i.created_at_ms, i.updated_at_ms, i.parent_instance_id, \
     (SELECT c.custom_status FROM everturn_custom_statuses AS c WHERE c.instance_key = i.instance_key) AS custom_status \
     FROM everturn_instances AS i LEFT JOIN everturn_executions AS e \
     ON e.instance_key = i.instance_key AND e.execution_id = i.current_execution_id \
     WHERE i.instance_id = ?1 AND i.created_at_ms IS NOT NULL";
const EXECUTION_INFO: &str = concat!(
    "SELECT e.execution_id, e.status, e.output, e.started_at_ms, e.completed_at_ms, ",
    of_execution!("event_count"),
    " FROM everturn_instances AS i JOIN everturn_executions AS e ON e.instance_key = i.instance_key \
     WHERE i.instance_id = ?1 AND e.execution_id = ?2"
);
const PARENT: &str =
    "SELECT parent_instance_id FROM everturn_instances WHERE instance_id = ?1 AND created_at_ms IS NOT NULL";

#[async_trait]
impl ProviderAdmin for SqliteProvider {
    async fn list_instances(&self) -> Result<Vec<String>, ProviderError> {
        list_instances::list(self, "list_instances", None).await
    }

    async fn list_instances_by_status(&self, status: &str) -> Result<Vec<String>, ProviderError> {
        list_instances::list(self, "list_instances_by_status", Some(status)).await
    }

    async fn list_executions(&self, instance: &str) -> Result<Vec<u64>, ProviderError> {
        let instance = instance.to_owned();
        self.read_at_length("list_executions", move |conn| {
            conn.prepare_cached(LIST_EXECUTIONS)?
                .query_map([instance], |row| Ok(unsigned(row.get(0)?)))?
                .collect()
        })
        .await
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
        let instance = instance.to_owned();
        let found = self.read_with("latest_execution_id", move |conn| read::latest(conn, &instance)).await?;
        Ok(found.map_or(1, |(_, execution_id)| unsigned(execution_id)))
    }

    async fn get_instance_info(&self, instance: &str) -> Result<InstanceInfo, ProviderError> {
        let id = instance.to_owned();
        let found = self
            .read_with("get_instance_info", move |conn| {
                let lost = read::lost_history(conn, &id)?;
                Ok((lost, conn.prepare_cached(INSTANCE_INFO)?.query_row([id], instance_info).optional()?))
            })
            .await;
        match found.map_err(|error| read::about(instance, error))? {
            (_, None) => Err(not_found("get_instance_info", instance)),
            (None, Some(info)) => Ok(info),
            (Some(lost), Some(_)) => {
                Err(read::about(instance, ProviderError::damaged("get_instance_info", lost)))
            }
        }
    }

    async fn get_execution_info(
        &self,
        instance: &str,
        execution_id: u64,
    ) -> Result<ExecutionInfo, ProviderError> {
        let missing = || {
            let message = format!("execution {execution_id} of instance {instance} not found");
            ProviderError::not_found("get_execution_info", message)
        };
        let stored = stored_id("get_execution_info", "execution id", execution_id).map_err(|_| missing())?;
        let id = instance.to_owned();
        let found = self
            .read_with("get_execution_info", move |conn| {
                conn.prepare_cached(EXECUTION_INFO)?.query_row(params![id, stored], execution_info).optional()
            })
            .await?;
        found.ok_or_else(missing)
    }

    async fn get_system_metrics(&self) -> Result<SystemMetrics, ProviderError> {
        self.read_with("get_system_metrics", totals::read).await
    }

    async fn get_queue_depths(&self) -> Result<QueueDepths, ProviderError> {
        let now_ms = self.now().wall_ms;
        self.read_at_length("get_queue_depths", move |conn| queue_depths::read(conn, now_ms)).await
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
        let instance_id = instance_id.to_owned();
        self.read_at_length("list_children", move |conn| delete::children(conn, &instance_id)).await
    }

    async fn get_parent_id(&self, instance_id: &str) -> Result<Option<String>, ProviderError> {
        let id = instance_id.to_owned();
        let found: Option<Option<String>> = self
            .read_with("get_parent_id", move |conn| {
                conn.prepare_cached(PARENT)?.query_row([id], |row| row.get(0)).optional()
            })
            .await?;
        found.ok_or_else(|| not_found("get_parent_id", instance_id))
    }

    async fn get_instance_tree(&self, instance_id: &str) -> Result<InstanceTree, ProviderError> {
        let root_id = instance_id.to_owned();
        let root = root_id.clone();
        let all_ids =
            self.read_at_length("get_instance_tree", move |conn| delete::tree_of(conn, root)).await?;
        Ok(InstanceTree { root_id, all_ids })
    }

    async fn delete_instances_atomic(
        &self,
        ids: &[String],
        force: bool,
    ) -> Result<DeleteInstanceResult, ProviderError> {
        self.call(DeleteInstances { ids: ids.to_vec(), force }).await
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

fn instance_info(row: &Row<'_>) -> rusqlite::Result<InstanceInfo> {
    // The turn that made an execution the current one also inserted its row.
    let status = columns::name(row, 4)?;
    if !ExecutionStatus::from_name(&status).is_some_and(ExecutionStatus::is_terminal) {
        // Not part of the answer, but a running instance with a damaged custom status is reported as damaged.
        columns::nullable(row, 9)?;
    }
    Ok(InstanceInfo {
        instance_id: row.get(0)?,
        orchestration_name: columns::name(row, 1)?,
        orchestration_version: columns::name(row, 2)?,
        current_execution_id: unsigned(row.get(3)?),
        status,
        output: columns::nullable(row, 5)?,
        created_at: unsigned(row.get(6)?),
        updated_at: unsigned(row.get::<_, Option<i64>>(7)?.unwrap_or(0)),
        parent_instance_id: columns::nullable(row, 8)?,
    })
}

fn execution_info(row: &Row<'_>) -> rusqlite::Result<ExecutionInfo> {
    Ok(ExecutionInfo {
        execution_id: unsigned(row.get(0)?),
        status: columns::name(row, 1)?,
        output: columns::nullable(row, 2)?,
        started_at: unsigned(row.get(3)?),
        completed_at: row.get::<_, Option<i64>>(4)?.map(unsigned),
        event_count: usize::try_from(unsigned(row.get(5)?)).unwrap_or(usize::MAX),
    })
}
