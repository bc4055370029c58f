//! Removing old executions: `prune_executions` and `prune_executions_bulk`.

use std::collections::BTreeSet;

use everturn_provider::ProviderError;
use everturn_provider::management::{InstanceFilter, PruneOptions, PruneResult};
use rusqlite::{Connection, OptionalExtension, params};

use crate::clock_reading::stored_ms;
use crate::columns;
use crate::delete::DEFAULT_LIMIT;
use crate::operation::{BatchOrder, Scope, Verb, VerbFailure};

const SELECT_INSTANCE: &str = "SELECT instance_key, current_execution_id FROM instances \
     WHERE instance_id = ?1 AND created_at_ms IS NOT NULL";
const SELECT_INSTANCES: &str = "SELECT i.instance_id FROM instances AS i LEFT JOIN executions AS e \
     ON e.instance_key = i.instance_key AND e.execution_id = i.current_execution_id \
     WHERE i.created_at_ms IS NOT NULL AND (?1 IS NULL OR e.completed_at_ms < ?1) \
     AND (?2 IS NULL OR i.instance_id = ?2) ORDER BY i.instance_id LIMIT ?3";
// The newest executions, the current one and running ones are kept.
const SELECT_PRUNABLE: &str = "SELECT execution_id FROM executions WHERE instance_key = ?1 AND execution_id <> ?2 \
     AND status <> 'Running' AND (?4 IS NULL OR completed_at_ms < ?4) AND execution_id NOT IN \
     (SELECT execution_id FROM executions WHERE instance_key = ?1 ORDER BY execution_id DESC LIMIT ?3)";
const DELETE_HISTORY: &str = "DELETE FROM history WHERE instance_key = ?1 AND execution_id = ?2";
const DELETE_EXECUTION: &str = "DELETE FROM executions WHERE instance_key = ?1 AND execution_id = ?2";

/// Removes old executions of one instance.
pub(crate) struct PruneExecutions {
    pub(crate) instance_id: String,
    pub(crate) options: PruneOptions,
}

impl Verb for PruneExecutions {
    type Answer = PruneResult;
    const NAME: &'static str = "prune_executions";
    const ORDER: BatchOrder = BatchOrder::NewWork;
    const WRITES_BEFORE_REFUSAL: bool = true;

    fn run(&self, scope: &mut Scope<'_>) -> Result<PruneResult, VerbFailure> {
        let mut result = PruneResult::default();
        if prune(scope, &self.instance_id, &self.options, &mut result)? {
            Ok(result)
        } else {
            Err(ProviderError::not_found("", format!("instance {} not found", self.instance_id)).into())
        }
    }
}

/// Removes old executions of every instance that matches.
pub(crate) struct PruneBulk {
    pub(crate) filter: InstanceFilter,
    pub(crate) options: PruneOptions,
}

impl Verb for PruneBulk {
    type Answer = PruneResult;
    const NAME: &'static str = "prune_executions_bulk";
    const ORDER: BatchOrder = BatchOrder::NewWork;
    const WRITES_BEFORE_REFUSAL: bool = true;

    fn run(&self, scope: &mut Scope<'_>) -> Result<PruneResult, VerbFailure> {
        let mut result = PruneResult::default();
        for instance_id in matching(scope.conn, &self.filter)? {
            match prune(scope, &instance_id, &self.options, &mut result) {
                // A caller that prunes this instance alone gets the error.
                Err(VerbFailure::Refused(error)) if error.is_damaged() => {}
                pruned => drop(pruned?),
            }
        }
        Ok(result)
    }
}

fn matching(conn: &Connection, filter: &InstanceFilter) -> Result<Vec<String>, VerbFailure> {
    let limit = filter.limit.unwrap_or(DEFAULT_LIMIT);
    let before = filter.completed_before.map(stored_ms);
    let mut select = conn.prepare_cached(SELECT_INSTANCES)?;
    let mut found = Vec::new();
    match &filter.instance_ids {
        None => {
            for id in select.query_map(params![before, None::<String>, limit], |row| columns::text(row, 0))? {
                found.extend(id?);
            }
        }
        Some(ids) => {
            let ids: BTreeSet<&String> = ids.iter().collect();
            for id in ids {
                found.extend(select.query_row(params![before, id, limit], |row| row.get(0)).optional()?);
            }
            found.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        }
    }
    Ok(found)
}

/// Prunes one instance and adds what it removed; `false` if the instance does not exist.
fn prune(
    scope: &mut Scope<'_>,
    instance_id: &str,
    options: &PruneOptions,
    result: &mut PruneResult,
) -> Result<bool, VerbFailure> {
    let conn = scope.conn;
    let found: Option<(i64, Option<i64>)> = conn
        .prepare_cached(SELECT_INSTANCE)?
        .query_row([instance_id], |row| Ok((row.get(0)?, columns::integer(row, 1)?)))
        .optional()?;
    let Some((key, current)) = found else { return Ok(false) };
    let Some(current) = current else {
        let message = format!("the current execution of {instance_id} is damaged");
        return Err(ProviderError::damaged("", message).into());
    };
    let keep = options.keep_last.unwrap_or(1).max(1);
    let before = options.completed_before.map(stored_ms);
    let prunable: Vec<i64> = conn
        .prepare_cached(SELECT_PRUNABLE)?
        .query_map(params![key, current, keep, before], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    for execution_id in prunable {
        let events = conn.prepare_cached(DELETE_HISTORY)?.execute([key, execution_id])?;
        result.events_deleted += u64::try_from(events).unwrap_or(u64::MAX);
        conn.prepare_cached(DELETE_EXECUTION)?.execute([key, execution_id])?;
        result.executions_deleted += 1;
    }
    result.instances_processed += 1;
    Ok(true)
}
