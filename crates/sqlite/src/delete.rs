//! Removing instances: the verbs that run in the writer. [`delete_bulk`](crate::delete_bulk) makes slices of large deletions.

use std::collections::HashSet;

use everturn_core::ExecutionStatus;
use everturn_provider::ProviderError;
use everturn_provider::management::DeleteInstanceResult;
use rusqlite::{Connection, OptionalExtension, params};

use crate::columns;
use crate::garbage::{self, SliceBudget};
use crate::operation::{BatchOrder, Scope, Verb, VerbFailure};
use crate::owned_rows;
use crate::read::of_execution;
use crate::row_counts;
use crate::totals::sound_count;

// The execution whose status is the instance's: the current one, or the newest if no turn has named the instance.
pub(crate) const SELECT_INSTANCE: &str = "SELECT i.instance_key, (SELECT e.status FROM everturn_executions AS e \
     WHERE e.instance_key = i.instance_key AND e.execution_id <= coalesce(i.current_execution_id, e.execution_id) \
     ORDER BY e.execution_id DESC LIMIT 1), i.created_at_ms IS NOT NULL FROM everturn_instances AS i WHERE i.instance_id = ?1";
pub(crate) const SELECT_CHILDREN: &str = "SELECT instance_id FROM everturn_instances \
     WHERE parent_instance_id = ?1 AND created_at_ms IS NOT NULL ORDER BY instance_id";
pub(crate) const IS_ENDED_ROOT: &str = "SELECT EXISTS (SELECT 1 FROM everturn_instances AS i JOIN everturn_executions AS e \
     ON e.instance_key = i.instance_key AND e.execution_id = i.current_execution_id \
     WHERE i.instance_id = ?1 AND i.created_at_ms IS NOT NULL AND i.parent_instance_id IS NULL \
     AND e.status IN ('Completed', 'Failed') AND e.completed_at_ms <= ?2)";
pub(crate) const DELETE_ACTIVITIES: &str = "DELETE FROM everturn_worker_queue WHERE instance_id = ?1";
pub(crate) const DELETE_RECORDS: &str = "DELETE FROM everturn_records WHERE owner = ?1";
const DELETE_INSTANCE: &str = "DELETE FROM everturn_instances WHERE instance_key = ?1";
const COUNT_EXECUTIONS: &str = concat!(
    "SELECT count(*), coalesce(sum(",
    sound_count!("events"),
    "), 0) FROM (SELECT ",
    of_execution!("event_count"),
    " AS events FROM everturn_executions AS e JOIN everturn_instances AS i ON i.instance_key = e.instance_key \
     WHERE e.instance_key = ?1)"
);
const COUNT_MESSAGES: &str = "SELECT count(*) FROM everturn_orchestrator_queue WHERE instance_key = ?1";

/// Removes instances, all or none. No reader sees some of them without the others.
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
        let listed: HashSet<&String> = self.ids.iter().collect();
        for id in &self.ids {
            if !self.force && is_under_way(scope.conn, id)? {
                return Err(ProviderError::still_running("", format!("{id} is still running")).into());
            }
        }
        for id in &self.ids {
            if let Some(child) = children(scope.conn, id)?.iter().find(|child| !listed.contains(child)) {
                let message = format!(
                    "{id} has child {child} outside the list: a tree traversal must list every child"
                );
                return Err(ProviderError::permanent("", message).into());
            }
        }
        let (mut result, mut budget) = (DeleteInstanceResult::default(), SliceBudget::default());
        result.instances_deleted = u64::try_from(self.ids.len()).unwrap_or(u64::MAX);
        remove_all(scope, &self.ids, &mut budget, &mut result)?;
        Ok(result)
    }
}

/// Removes ended roots with their descendants, each tree whole, until a slice of work is done.
pub(crate) struct DeleteTrees {
    /// Instances that may be ended roots.
    pub(crate) candidates: Vec<String>,
    /// Roots that ended later stay.
    pub(crate) ended_until_ms: i64,
    /// How many trees go at most.
    pub(crate) trees_max: usize,
}

/// What one slice of a bulk deletion did.
#[derive(Debug, Default)]
pub(crate) struct DeletedTrees {
    /// How many of the candidates are done with.
    pub(crate) candidates: usize,
    pub(crate) trees: usize,
    pub(crate) removed: DeleteInstanceResult,
}

impl Verb for DeleteTrees {
    type Answer = DeletedTrees;
    const NAME: &'static str = "delete_instance_bulk";
    const ORDER: BatchOrder = BatchOrder::NewWork;
    const WRITES_BEFORE_REFUSAL: bool = true;

    fn run(&self, scope: &mut Scope<'_>) -> Result<DeletedTrees, VerbFailure> {
        let mut budget = SliceBudget::default();
        let mut done = DeletedTrees::default();
        for candidate in &self.candidates {
            if budget.is_spent() || done.trees >= self.trees_max {
                break;
            }
            done.candidates += 1;
            budget.spend(1);
            if !self.is_ended_root(scope.conn, candidate)? {
                continue;
            }
            let tree = tree_of(scope.conn, candidate.clone())?;
            budget.spend(tree.len());
            // A child may outlive its root; the root goes when the child has ended.
            if any_under_way(scope.conn, &tree)? {
                continue;
            }
            remove_all(scope, &tree, &mut budget, &mut done.removed)?;
            done.trees += 1;
            done.removed.instances_deleted += row_counts::answered(tree.len());
        }
        Ok(done)
    }
}

impl DeleteTrees {
    fn is_ended_root(&self, conn: &Connection, id: &str) -> Result<bool, VerbFailure> {
        let mut select = conn.prepare_cached(IS_ENDED_ROOT)?;
        Ok(select.query_row(params![id, self.ended_until_ms], |row| row.get(0))?)
    }
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
    let status = find(conn, id)?.and_then(|found| ExecutionStatus::from_name(&found.status?));
    Ok(status.is_some_and(|status| !status.is_terminal()))
}

/// The row of an instance, as far as its deletion needs it.
struct DoomedInstance {
    key: i64,
    status: Option<String>,
    created: bool,
}

fn find(conn: &Connection, id: &str) -> Result<Option<DoomedInstance>, VerbFailure> {
    Ok(conn
        .prepare_cached(SELECT_INSTANCE)?
        .query_row([id], |row| {
            Ok(DoomedInstance {
                key: row.get(0)?,
                status: columns::text(row, 1)?,
                created: columns::flag(row, 2)?,
            })
        })
        .optional()?)
}

/// Removes instances. What the slice cannot pay for goes into the garbage list.
fn remove_all(
    scope: &mut Scope<'_>,
    ids: &[String],
    budget: &mut SliceBudget,
    result: &mut DeleteInstanceResult,
) -> Result<(), VerbFailure> {
    for id in ids {
        result.queue_messages_deleted +=
            row_counts::answered(scope.conn.prepare_cached(DELETE_ACTIVITIES)?.execute([id])?);
        scope.conn.prepare_cached(DELETE_RECORDS)?.execute([id])?;
        let Some(instance) = find(scope.conn, id)? else { continue };
        let rows = count_rows(scope.conn, instance.key)?;
        if garbage::fits_instance(scope.conn, instance.key, budget)? {
            owned_rows::remove_instance(scope.conn, instance.key)?;
        } else {
            garbage::list_instance(scope, instance.key)?;
        }
        scope.conn.prepare_cached(DELETE_INSTANCE)?.execute([instance.key])?;
        result.executions_deleted += rows.executions;
        result.events_deleted += rows.events;
        result.queue_messages_deleted += rows.messages;
        let totals = &mut scope.effects.totals;
        totals.executions -= rows.executions.cast_signed();
        totals.events -= rows.events.cast_signed();
        if instance.created {
            totals.instances -= 1;
            totals.instance_moves(instance.status.as_deref(), None);
        }
        scope.effects.touched.push(id.clone());
    }
    (scope.effects.removed, scope.effects.freed) = (true, true);
    Ok(())
}

/// Rows of a deleted instance. Events of executions that were pruned before were counted then.
struct RemovedRows {
    executions: u64,
    events: u64,
    messages: u64,
}

fn count_rows(conn: &Connection, key: i64) -> Result<RemovedRows, VerbFailure> {
    let (executions, events) = conn.prepare_cached(COUNT_EXECUTIONS)?.query_row([key], |row| {
        Ok((row.get::<_, i64>(0)?.cast_unsigned(), row.get::<_, i64>(1)?.cast_unsigned()))
    })?;
    let messages: i64 = conn.prepare_cached(COUNT_MESSAGES)?.query_row([key], |row| row.get(0))?;
    Ok(RemovedRows { executions, events, messages: messages.cast_unsigned() })
}
