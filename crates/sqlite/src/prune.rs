//! Removing old executions: `prune_executions` and `prune_executions_bulk`, slice by slice. Other operations run between
//! two slices. If a call fails or is dropped, what earlier slices removed is gone.

use std::collections::BTreeSet;

use everturn_provider::ProviderError;
use everturn_provider::management::{InstanceFilter, PruneOptions, PruneResult};
use rusqlite::{Connection, OptionalExtension, params};

use crate::columns;
use crate::delete_bulk::{CANDIDATES, last_moment_before, limit_of};
use crate::garbage::{self, SliceBudget};
use crate::operation::{BatchOrder, Scope, Verb, VerbFailure};
use crate::owned_rows;
use crate::provider::SqliteProvider;
use crate::totals::sound_count;

pub(crate) const SELECT_INSTANCE: &str = "SELECT i.instance_key, i.current_execution_id, e.completed_at_ms \
     FROM everturn_instances AS i LEFT JOIN everturn_executions AS e \
     ON e.instance_key = i.instance_key AND e.execution_id = i.current_execution_id \
     WHERE i.instance_id = ?1 AND i.created_at_ms IS NOT NULL";
pub(crate) const SELECT_IDS: &str = "SELECT CAST(instance_id AS BLOB) FROM everturn_instances \
     WHERE typeof(instance_id) = 'text' AND instance_id > CAST(?1 AS TEXT) ORDER BY instance_id LIMIT ?2";
// The newest executions, the current one and running ones are kept.
pub(crate) const SELECT_PRUNABLE: &str = concat!(
    "SELECT execution_id, ",
    sound_count!("event_count"),
    " FROM everturn_executions \
     WHERE instance_key = ?1 AND execution_id < (SELECT min(k.execution_id) FROM (SELECT n.execution_id \
         FROM everturn_executions AS n WHERE n.instance_key = ?1 ORDER BY n.execution_id DESC LIMIT ?3) AS k) \
     AND execution_id <> ?2 AND status <> 'Running' AND (?4 IS NULL OR completed_at_ms <= ?4) \
     ORDER BY execution_id LIMIT ?5"
);
const DELETE_EXECUTION: &str =
    "DELETE FROM everturn_executions WHERE instance_key = ?1 AND execution_id = ?2";

/// How many executions one slice removes at most.
const EXECUTIONS: i64 = 500;

/// Removes old executions of instances, until a slice of work is done.
pub(crate) struct PruneInstances {
    instance_ids: Vec<String>,
    /// Instances whose current execution has not ended by then are left alone; all are pruned if there is no such bound.
    ended_until_ms: Option<i64>,
    options: PruneOptions,
    /// How many instances are pruned at most.
    instances_max: usize,
    /// The caller named one instance: it gets an error if that is damaged or missing.
    named: bool,
}

/// What one slice did.
#[derive(Debug, Default)]
pub(crate) struct PrunedInstances {
    /// How many of the instances are done with.
    instances: usize,
    pruned: PruneResult,
}

impl Verb for PruneInstances {
    type Answer = PrunedInstances;
    const NAME: &'static str = "prune_executions";
    const ORDER: BatchOrder = BatchOrder::NewWork;
    const WRITES_BEFORE_REFUSAL: bool = true;

    fn run(&self, scope: &mut Scope<'_>) -> Result<PrunedInstances, VerbFailure> {
        let mut budget = SliceBudget::default();
        let mut done = PrunedInstances::default();
        for instance_id in &self.instance_ids {
            let processed = usize::try_from(done.pruned.instances_processed).unwrap_or(usize::MAX);
            if budget.is_spent() || processed >= self.instances_max {
                break;
            }
            budget.spend(1);
            match self.prune(scope, instance_id, &mut budget, &mut done.pruned) {
                Ok(PrunedOne::All) => done.pruned.instances_processed += 1,
                Ok(PrunedOne::Some) => break,
                Ok(PrunedOne::NoMatch) => {}
                // A caller that prunes this instance alone gets the error.
                Err(VerbFailure::Refused(error)) if error.is_damaged() && !self.named => {}
                Err(error) => return Err(error),
            }
            done.instances += 1;
        }
        Ok(done)
    }
}

/// What became of one instance.
enum PrunedOne {
    /// All that was to be removed is removed.
    All,
    /// The slice is full; there may be more.
    Some,
    /// It does not match.
    NoMatch,
}

impl PruneInstances {
    fn prune(
        &self,
        scope: &mut Scope<'_>,
        instance_id: &str,
        budget: &mut SliceBudget,
        result: &mut PruneResult,
    ) -> Result<PrunedOne, VerbFailure> {
        let found: Option<(i64, Option<i64>, Option<i64>)> = scope
            .conn
            .prepare_cached(SELECT_INSTANCE)?
            .query_row([instance_id], |row| {
                Ok((row.get(0)?, columns::integer(row, 1)?, columns::integer(row, 2)?))
            })
            .optional()?;
        let Some((key, current, ended_ms)) = found else {
            let message = || ProviderError::not_found("", format!("instance {instance_id} not found"));
            return if self.named { Err(message().into()) } else { Ok(PrunedOne::NoMatch) };
        };
        if self.ended_until_ms.is_some_and(|until_ms| ended_ms.is_none_or(|ended_ms| ended_ms > until_ms)) {
            return Ok(PrunedOne::NoMatch);
        }
        let Some(current) = current else {
            let message = format!("the current execution of {instance_id} is damaged");
            return Err(ProviderError::damaged("", message).into());
        };
        let prunable = self.prunable(scope.conn, key, current)?;
        let is_all = i64::try_from(prunable.len()).is_ok_and(|found| found < EXECUTIONS);
        for (execution_id, event_count) in prunable {
            if budget.is_spent() {
                return Ok(PrunedOne::Some);
            }
            budget.spend(1);
            remove_execution(scope, key, execution_id, budget)?;
            let events = event_count.max(0).cast_unsigned();
            result.events_deleted += events;
            result.executions_deleted += 1;
            scope.effects.freed = true;
            scope.effects.totals.executions -= 1;
            scope.effects.totals.events -= events.cast_signed();
        }
        Ok(if is_all { PrunedOne::All } else { PrunedOne::Some })
    }

    /// Executions to remove, the oldest first, each with its count of events.
    fn prunable(&self, conn: &Connection, key: i64, current: i64) -> Result<Vec<(i64, i64)>, VerbFailure> {
        let keep = self.options.keep_last.unwrap_or(1).max(1);
        let until_ms = self.options.completed_before.map(|before| last_moment_before(Some(before)));
        Ok(conn
            .prepare_cached(SELECT_PRUNABLE)?
            .query_map(params![key, current, keep, until_ms, EXECUTIONS], |row| {
                Ok((row.get(0)?, columns::integer(row, 1)?.unwrap_or(0)))
            })?
            .collect::<rusqlite::Result<_>>()?)
    }
}

/// Removes an execution.
fn remove_execution(
    scope: &mut Scope<'_>,
    key: i64,
    execution_id: i64,
    budget: &mut SliceBudget,
) -> Result<(), VerbFailure> {
    if garbage::fits_execution(scope.conn, key, execution_id, budget)? {
        owned_rows::remove_execution(scope.conn, key, execution_id)?;
    } else {
        garbage::list_execution(scope, key, execution_id)?;
    }
    scope.conn.prepare_cached(DELETE_EXECUTION)?.execute([key, execution_id])?;
    Ok(())
}

/// Removes old executions of one instance.
pub(crate) async fn prune_one(
    provider: &SqliteProvider,
    instance_id: &str,
    options: PruneOptions,
) -> Result<PruneResult, ProviderError> {
    let mut pruning = Pruning {
        provider,
        ended_until_ms: None,
        options,
        named: true,
        left: 1,
        pruned: PruneResult::default(),
    };
    pruning.prune(&[instance_id.to_owned()]).await?;
    Ok(pruning.pruned)
}

/// Removes old executions of every instance that matches, by id.
pub(crate) async fn prune_bulk(
    provider: &SqliteProvider,
    filter: InstanceFilter,
    options: PruneOptions,
) -> Result<PruneResult, ProviderError> {
    let mut pruning = Pruning {
        provider,
        ended_until_ms: filter.completed_before.map(|before| last_moment_before(Some(before))),
        options,
        named: false,
        left: limit_of(&filter),
        pruned: PruneResult::default(),
    };
    match filter.instance_ids {
        Some(ids) => {
            let ids: Vec<String> = BTreeSet::from_iter(ids).into_iter().collect();
            pruning.prune(&ids).await?;
        }
        None => pruning.prune_all().await?,
    }
    Ok(pruning.pruned)
}

/// A pruning under way.
struct Pruning<'a> {
    provider: &'a SqliteProvider,
    ended_until_ms: Option<i64>,
    options: PruneOptions,
    named: bool,
    /// How many more instances are pruned.
    left: usize,
    pruned: PruneResult,
}

impl Pruning<'_> {
    async fn prune(&mut self, mut ids: &[String]) -> Result<(), ProviderError> {
        while !ids.is_empty() && self.left > 0 {
            let verb = PruneInstances {
                instance_ids: ids.iter().take(CANDIDATES).cloned().collect(),
                ended_until_ms: self.ended_until_ms,
                options: self.options.clone(),
                instances_max: self.left,
                named: self.named,
            };
            let done = self.provider.call(verb).await?;
            let processed = usize::try_from(done.pruned.instances_processed).unwrap_or(usize::MAX);
            self.left = self.left.saturating_sub(processed);
            self.pruned.instances_processed += done.pruned.instances_processed;
            self.pruned.executions_deleted += done.pruned.executions_deleted;
            self.pruned.events_deleted += done.pruned.events_deleted;
            ids = ids.get(done.instances..).unwrap_or_default();
        }
        Ok(())
    }

    /// Page by page through all instances.
    async fn prune_all(&mut self) -> Result<(), ProviderError> {
        let mut after = Vec::new();
        while self.left > 0 {
            let page_after = after.clone();
            let page = self
                .provider
                .read_at_length("prune_executions_bulk", move |conn| ids_after(conn, &page_after))
                .await?;
            let Some(last) = page.last() else { break };
            after.clone_from(last);
            // An id that is no UTF-8 cannot be named.
            let ids: Vec<String> = page.into_iter().filter_map(|id| String::from_utf8(id).ok()).collect();
            self.prune(&ids).await?;
        }
        Ok(())
    }
}

fn ids_after(conn: &Connection, after: &[u8]) -> rusqlite::Result<Vec<Vec<u8>>> {
    let page = i64::try_from(CANDIDATES).unwrap_or(i64::MAX);
    let mut select = conn.prepare_cached(SELECT_IDS)?;
    select.query_map(params![after, page], |row| columns::bytes(row, 0))?.collect()
}
