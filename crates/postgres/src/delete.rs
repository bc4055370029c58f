//! Removing instances, each with all its rows. [`delete_bulk`](crate::delete_bulk) makes slices of large deletions.
//!
//! A deletion is a transaction of its own. It locks the rows of the instances in the order of their keys, then those of their
//! activities, as all transactions do: no turn of theirs is committed meanwhile, and none afterwards.

use std::collections::{HashMap, HashSet};

use async_trait::async_trait;
use everturn_core::ExecutionStatus;
use everturn_provider::ProviderError;
use everturn_provider::encoded::unsigned;
use everturn_provider::management::DeleteInstanceResult;
use tokio_postgres::{Error, Row};

use crate::error::storage_error;
use crate::provider::PostgresProvider;
use crate::readers::{Transaction, TransactionError};
use crate::session::ServerSession;
use crate::totals::TotalsChange;
use crate::writes::CHANGE_TOTALS;

const SELECT_CHILDREN: &str = "SELECT c.instance_id FROM {schema}.everturn_instances AS c \
     WHERE c.parent_instance_id = $1 AND c.created_at_ms IS NOT NULL ORDER BY c.instance_id";
const SELECT_CHILDREN_OF_MANY: &str = "SELECT c.parent_instance_id, c.instance_id FROM {schema}.everturn_instances AS c \
     WHERE c.parent_instance_id = ANY($1::text[]) AND c.created_at_ms IS NOT NULL ORDER BY c.instance_id";
const SELECT_CHILD_OUTSIDE: &str = "SELECT c.parent_instance_id, c.instance_id FROM {schema}.everturn_instances AS c \
     WHERE c.parent_instance_id = ANY($1::text[]) AND c.created_at_ms IS NOT NULL \
     AND NOT EXISTS (SELECT 1 FROM unnest($1::text[]) AS w (id) WHERE w.id = c.instance_id) \
     ORDER BY c.parent_instance_id, c.instance_id LIMIT 1";
const LOCK_INSTANCES: &str = "SELECT i.instance_key FROM {schema}.everturn_instances AS i \
     WHERE i.instance_id = ANY($1::text[]) ORDER BY i.instance_key FOR UPDATE";
// After the locks, with a snapshot of its own. The status of an instance that no turn has named is that of its newest execution.
const SELECT_LOCKED: &str = "SELECT i.instance_key, i.instance_id, i.created_at_ms IS NOT NULL, \
     CASE WHEN i.created_at_ms IS NOT NULL THEN i.status ELSE (SELECT e.status FROM {schema}.everturn_executions AS e \
         WHERE e.instance_key = i.instance_key ORDER BY e.execution_id DESC LIMIT 1) END \
     FROM {schema}.everturn_instances AS i WHERE i.instance_key = ANY($1::bigint[]) ORDER BY i.instance_key";
const LOCK_ACTIVITIES: &str = "SELECT q.seq FROM {schema}.everturn_worker_queue AS q \
     WHERE q.instance_id = ANY($1::text[]) ORDER BY q.seq FOR UPDATE";
const DELETE_ACTIVITIES: &str = "DELETE FROM {schema}.everturn_worker_queue WHERE seq = ANY($1::bigint[])";
const DELETE_RECORDS: &str = "DELETE FROM {schema}.everturn_records WHERE owner = ANY($1::text[])";
const DELETE_MESSAGES: &str =
    "DELETE FROM {schema}.everturn_orchestrator_queue WHERE instance_key = ANY($1::bigint[])";
// The events of the current execution are counted in the row of its instance.
const DELETE_EXECUTIONS: &str = "WITH gone AS (DELETE FROM {schema}.everturn_executions \
         WHERE instance_key = ANY($1::bigint[]) RETURNING instance_key, execution_id, event_count) \
     SELECT count(*), coalesce(sum(CASE WHEN g.execution_id = i.current_execution_id THEN i.event_count \
         ELSE g.event_count END), 0)::bigint \
     FROM gone AS g JOIN {schema}.everturn_instances AS i ON i.instance_key = g.instance_key";
/// Deletes the other rows of instances.
const DELETE_OWNED: &[&str] = &[
    "DELETE FROM {schema}.everturn_history WHERE instance_key = ANY($1::bigint[])",
    "DELETE FROM {schema}.everturn_custom_statuses WHERE instance_key = ANY($1::bigint[])",
    "DELETE FROM {schema}.everturn_kv_base WHERE instance_key = ANY($1::bigint[])",
    "DELETE FROM {schema}.everturn_kv_delta WHERE instance_key = ANY($1::bigint[])",
    "DELETE FROM {schema}.everturn_kv_undo WHERE instance_key = ANY($1::bigint[])",
];
const DELETE_INSTANCES: &str =
    "DELETE FROM {schema}.everturn_instances WHERE instance_key = ANY($1::bigint[])";

/// `delete_instances_atomic`: removes instances, all or none. No reader sees some of them without the others.
///
/// Waits until every operation that was sent before is decided, also those whose callers left.
pub(crate) async fn delete_instances(
    provider: &PostgresProvider,
    ids: &[String],
    force: bool,
) -> Result<DeleteInstanceResult, ProviderError> {
    provider.settled().await?;
    if ids.is_empty() {
        return Ok(DeleteInstanceResult::default());
    }
    let deletion = DeleteInstances { owner: provider.owner(), ids: ids.to_vec(), force };
    let answer = provider.readers().transact(&deletion).await;
    let may_have_happened = answer.as_ref().map_or_else(ProviderError::is_retryable, |_| true);
    if may_have_happened {
        provider.touched(ids);
    }
    answer
}

/// Removes instances, all or none.
struct DeleteInstances {
    owner: i64,
    ids: Vec<String>,
    force: bool,
}

#[async_trait]
impl Transaction for DeleteInstances {
    type Answer = DeleteInstanceResult;
    const NAME: &'static str = "delete_instances_atomic";

    async fn run(&self, session: &ServerSession) -> Result<DeleteInstanceResult, TransactionError> {
        let ids = storable(&self.ids);
        let instances = lock(session, &ids).await?;
        if !self.force
            && let Some(running) = instances.iter().find(|instance| instance.is_under_way())
        {
            let message = format!("{} is still running", running.id);
            return Err(ProviderError::still_running("", message).into());
        }
        if let Some(row) = session.query_opt(SELECT_CHILD_OUTSIDE, &[&ids]).await? {
            let (id, child): (String, String) = (row.try_get(0)?, row.try_get(1)?);
            let message =
                format!("{id} has child {child} outside the list: a tree traversal must list every child");
            return Err(ProviderError::permanent("", message).into());
        }
        let mut result = remove(session, self.owner, &ids, &instances).await?;
        result.instances_deleted = u64::try_from(self.ids.len()).unwrap_or(u64::MAX);
        Ok(result)
    }
}

/// The ids that a column can hold: no instance has another one.
pub(crate) fn storable(ids: &[String]) -> Vec<&str> {
    ids.iter().map(String::as_str).filter(|id| !id.contains('\0')).collect()
}

/// An instance and all its descendants, the root first, each once.
pub(crate) async fn tree_of(
    provider: &PostgresProvider,
    operation: &str,
    root: &str,
) -> Result<Vec<String>, ProviderError> {
    let mut seen = HashSet::from([root.to_owned()]);
    let (mut tree, mut generation) = (vec![root.to_owned()], vec![root.to_owned()]);
    while !generation.is_empty() {
        let rows = provider.readers().query(operation, SELECT_CHILDREN_OF_MANY, &[&generation]).await?;
        let mut children = children_by_parent(&rows).map_err(|error| storage_error(operation, error))?;
        // A damaged record can make a circle of a tree.
        let next = generation.iter().filter_map(|parent| children.remove(parent)).flatten();
        generation = next.filter(|child| seen.insert(child.clone())).collect();
        tree.extend(generation.iter().cloned());
    }
    Ok(tree)
}

fn children_by_parent(rows: &[Row]) -> Result<HashMap<String, Vec<String>>, Error> {
    let mut children: HashMap<String, Vec<String>> = HashMap::new();
    for row in rows {
        children.entry(row.try_get(0)?).or_default().push(row.try_get(1)?);
    }
    Ok(children)
}

/// The direct children of an instance, by id.
pub(crate) async fn children(
    provider: &PostgresProvider,
    operation: &str,
    parent: &str,
) -> Result<Vec<String>, ProviderError> {
    let rows = provider.readers().query(operation, SELECT_CHILDREN, &[&parent]).await?;
    let ids = rows.iter().map(|row| row.try_get(0)).collect::<Result<Vec<String>, Error>>();
    ids.map_err(|error| storage_error(operation, error))
}

/// The row of an instance, as far as its deletion needs it.
pub(crate) struct DoomedInstance {
    key: i64,
    pub(crate) id: String,
    is_created: bool,
    status: Option<String>,
}

impl DoomedInstance {
    fn of(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            key: row.try_get(0)?,
            id: row.try_get(1)?,
            is_created: row.try_get(2)?,
            status: row.try_get(3)?,
        })
    }

    /// Whether the instance has not ended: one that continued as new goes on.
    fn is_under_way(&self) -> bool {
        let status = self.status.as_deref().and_then(ExecutionStatus::from_name);
        status.is_some_and(|status| !status.is_terminal())
    }
}

/// Locks the rows of instances, in the order of their keys, and reads them. Unknown ones are passed over.
pub(crate) async fn lock(session: &ServerSession, ids: &[&str]) -> Result<Vec<DoomedInstance>, Error> {
    let rows = session.query(LOCK_INSTANCES, &[&ids]).await?;
    let keys = rows.iter().map(|row| row.try_get(0)).collect::<Result<Vec<i64>, Error>>()?;
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    session.query(SELECT_LOCKED, &[&keys]).await?.iter().map(DoomedInstance::of).collect()
}

/// Removes locked instances, and what the queue of activities and the records have of `ids`, which name them.
pub(crate) async fn remove(
    session: &ServerSession,
    owner: i64,
    ids: &[&str],
    instances: &[DoomedInstance],
) -> Result<DeleteInstanceResult, Error> {
    let mut result = DeleteInstanceResult::default();
    let rows = session.query(LOCK_ACTIVITIES, &[&ids]).await?;
    let activities = rows.iter().map(|row| row.try_get(0)).collect::<Result<Vec<i64>, Error>>()?;
    if !activities.is_empty() {
        result.queue_messages_deleted += session.execute(DELETE_ACTIVITIES, &[&activities]).await?;
    }
    session.execute(DELETE_RECORDS, &[&ids]).await?;
    if instances.is_empty() {
        return Ok(result);
    }
    let keys: Vec<i64> = instances.iter().map(|instance| instance.key).collect();
    result.queue_messages_deleted += session.execute(DELETE_MESSAGES, &[&keys]).await?;
    let mut totals = TotalsChange::default();
    if let Some(row) = session.query_opt(DELETE_EXECUTIONS, &[&keys]).await? {
        let (executions, events): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
        (result.executions_deleted, result.events_deleted) = (unsigned(executions), unsigned(events));
        (totals.executions, totals.events) = (-executions, -events);
    }
    for &sql in DELETE_OWNED {
        session.execute(sql, &[&keys]).await?;
    }
    session.execute(DELETE_INSTANCES, &[&keys]).await?;
    for instance in instances.iter().filter(|instance| instance.is_created) {
        totals.instances -= 1;
        totals.instance_moves(instance.status.as_deref(), None);
    }
    change_totals(session, owner, totals).await?;
    Ok(result)
}

/// Writes how the totals change. The last statement of a transaction: the commit lane of this process waits for the row.
pub(crate) async fn change_totals(
    session: &ServerSession,
    owner: i64,
    totals: TotalsChange,
) -> Result<(), Error> {
    if totals == TotalsChange::default() {
        return Ok(());
    }
    let TotalsChange { instances, running, completed, failed, executions, events } = totals;
    session
        .execute(CHANGE_TOTALS, &[&owner, &instances, &running, &completed, &failed, &executions, &events])
        .await?;
    Ok(())
}
