//! Removing instances: `delete_instances_atomic` and `delete_instance_bulk`.

use std::collections::HashSet;

use everturn_core::ExecutionStatus;
use everturn_provider::ProviderError;
use everturn_provider::management::{DeleteInstanceResult, InstanceFilter};
use rusqlite::{Connection, OptionalExtension, params};

use crate::clock_reading::stored_ms;
use crate::columns;
use crate::operation::{BatchOrder, Scope, Verb, VerbFailure};

/// How many instances a bulk operation takes if its filter does not say.
pub(crate) const DEFAULT_LIMIT: u32 = 1_000;

// The execution whose status is the instance's: the current one, or the newest if no turn has named the instance.
const SELECT_INSTANCE: &str = "SELECT i.instance_key, (SELECT e.status FROM executions AS e \
     WHERE e.instance_key = i.instance_key AND e.execution_id <= coalesce(i.current_execution_id, e.execution_id) \
     ORDER BY e.execution_id DESC LIMIT 1) FROM instances AS i WHERE i.instance_id = ?1";
const SELECT_CHILDREN: &str = "SELECT instance_id FROM instances WHERE parent_instance_id = ?1 AND created_at_ms IS NOT NULL ORDER BY instance_id";
const DELETE_HISTORY: &str = "DELETE FROM history WHERE instance_key = ?1";
const DELETE_EXECUTIONS: &str = "DELETE FROM executions WHERE instance_key = ?1";
const DELETE_MESSAGES: &str = "DELETE FROM orchestrator_queue WHERE instance_key = ?1";
const DELETE_ACTIVITIES: &str = "DELETE FROM worker_queue WHERE instance_id = ?1";
const DELETE_KV_BASE: &str = "DELETE FROM kv_base WHERE instance_key = ?1";
const DELETE_KV_DELTA: &str = "DELETE FROM kv_delta WHERE instance_key = ?1";
const DELETE_INSTANCE: &str = "DELETE FROM instances WHERE instance_key = ?1";
const ENDED_ROOTS: &str = "SELECT i.instance_id FROM instances AS i JOIN executions AS e \
     ON e.instance_key = i.instance_key AND e.execution_id = i.current_execution_id \
     WHERE i.created_at_ms IS NOT NULL AND i.parent_instance_id IS NULL AND e.status IN ('Completed', 'Failed') \
     AND (?1 IS NULL OR e.completed_at_ms < ?1) AND (?2 IS NULL OR i.instance_id = ?2) \
     ORDER BY e.completed_at_ms, i.instance_id";

/// Removes instances, all or none.
pub(crate) struct DeleteInstances {
    pub(crate) ids: Vec<String>,
    pub(crate) force: bool,
}

impl Verb for DeleteInstances {
    type Answer = DeleteInstanceResult;
    const NAME: &'static str = "delete_instances_atomic";
    const ORDER: BatchOrder = BatchOrder::NewWork;
    const WRITES_BEFORE_REFUSAL: bool = true;

    fn run(&self, scope: &mut Scope<'_>) -> Result<DeleteInstanceResult, VerbFailure> {
        delete_all(scope, &self.ids, self.force)
    }
}

/// Removes the ended roots that match, with their descendants.
pub(crate) struct DeleteBulk {
    pub(crate) filter: InstanceFilter,
}

impl Verb for DeleteBulk {
    type Answer = DeleteInstanceResult;
    const NAME: &'static str = "delete_instance_bulk";
    const ORDER: BatchOrder = BatchOrder::NewWork;
    const WRITES_BEFORE_REFUSAL: bool = true;

    fn run(&self, scope: &mut Scope<'_>) -> Result<DeleteInstanceResult, VerbFailure> {
        let limit = usize::try_from(self.filter.limit.unwrap_or(DEFAULT_LIMIT)).unwrap_or(usize::MAX);
        let mut to_delete = Vec::new();
        let mut roots = 0;
        for root in ended_roots(scope.conn, &self.filter)? {
            if roots >= limit {
                break;
            }
            let tree = tree_of(scope.conn, root)?;
            // A child may outlive its root; the root goes when the child has ended.
            if !any_under_way(scope.conn, &tree)? {
                to_delete.extend(tree);
                roots += 1;
            }
        }
        delete_all(scope, &to_delete, false)
    }
}

/// The ended roots that match, those that ended first in front.
fn ended_roots(conn: &Connection, filter: &InstanceFilter) -> Result<Vec<String>, VerbFailure> {
    let before = filter.completed_before.map(stored_ms);
    let mut select = conn.prepare_cached(ENDED_ROOTS)?;
    let mut roots = Vec::new();
    match &filter.instance_ids {
        None => {
            // An instance without an id cannot be deleted by id.
            for root in select.query_map(params![before, None::<String>], |row| columns::text(row, 0))? {
                roots.extend(root?);
            }
        }
        Some(ids) => {
            let mut seen = HashSet::new();
            for id in ids.iter().filter(|id| seen.insert(id.as_str())) {
                roots.extend(select.query_row(params![before, id], |row| row.get(0)).optional()?);
            }
        }
    }
    Ok(roots)
}

fn any_under_way(conn: &Connection, ids: &[String]) -> Result<bool, VerbFailure> {
    for id in ids {
        if is_under_way(conn, id)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// An instance and all its descendants, the root first, each once.
pub(crate) fn tree_of(conn: &Connection, root: String) -> rusqlite::Result<Vec<String>> {
    let mut seen = HashSet::from([root.clone()]);
    let mut tree = vec![root];
    let mut next = 0;
    while let Some(parent) = tree.get(next).cloned() {
        tree.extend(children(conn, &parent)?.into_iter().filter(|child| seen.insert(child.clone())));
        next += 1;
    }
    Ok(tree)
}

/// The direct children of an instance, by id.
pub(crate) fn children(conn: &Connection, parent: &str) -> rusqlite::Result<Vec<String>> {
    conn.prepare_cached(SELECT_CHILDREN)?
        .query_map([parent], |row| Ok(columns::text(row, 0)?.unwrap_or_default()))?
        .collect()
}

/// Whether the instance has not ended: one that continued as new goes on.
fn is_under_way(conn: &Connection, id: &str) -> Result<bool, VerbFailure> {
    let status = find(conn, id)?.and_then(|(_, status)| ExecutionStatus::from_name(&status?));
    Ok(status.is_some_and(|status| !status.is_terminal()))
}

fn find(conn: &Connection, id: &str) -> Result<Option<(i64, Option<String>)>, VerbFailure> {
    Ok(conn
        .prepare_cached(SELECT_INSTANCE)?
        .query_row([id], |row| Ok((row.get(0)?, columns::text(row, 1)?)))
        .optional()?)
}

fn delete_all(
    scope: &mut Scope<'_>,
    ids: &[String],
    force: bool,
) -> Result<DeleteInstanceResult, VerbFailure> {
    let conn = scope.conn;
    let listed: HashSet<&String> = ids.iter().collect();
    let mut result = DeleteInstanceResult {
        instances_deleted: u64::try_from(ids.len()).unwrap_or(u64::MAX),
        ..DeleteInstanceResult::default()
    };
    for id in ids {
        if !force && is_under_way(conn, id)? {
            return Err(ProviderError::still_running("", format!("{id} is still running")).into());
        }
    }
    for id in ids {
        if let Some(child) = children(conn, id)?.iter().find(|child| !listed.contains(child)) {
            let message =
                format!("{id} has child {child} outside the list: a tree traversal must list every child");
            return Err(ProviderError::permanent("", message).into());
        }
    }
    for id in ids {
        result.queue_messages_deleted += count(conn.prepare_cached(DELETE_ACTIVITIES)?.execute([id])?);
        let Some((key, _status)) = find(conn, id)? else { continue };
        result.events_deleted += count(conn.prepare_cached(DELETE_HISTORY)?.execute([key])?);
        result.executions_deleted += count(conn.prepare_cached(DELETE_EXECUTIONS)?.execute([key])?);
        result.queue_messages_deleted += count(conn.prepare_cached(DELETE_MESSAGES)?.execute([key])?);
        conn.prepare_cached(DELETE_KV_BASE)?.execute([key])?;
        conn.prepare_cached(DELETE_KV_DELTA)?.execute([key])?;
        conn.prepare_cached(DELETE_INSTANCE)?.execute([key])?;
        scope.effects.touched.push(id.clone());
    }
    scope.effects.removed = true;
    Ok(result)
}

fn count(rows: usize) -> u64 {
    u64::try_from(rows).unwrap_or(u64::MAX)
}
