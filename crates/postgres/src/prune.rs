//! Removing old executions: `prune_executions` and `prune_executions_bulk`, slice by slice. Other transactions run between two
//! slices. If a call fails or is dropped, what earlier slices removed is gone.

use std::collections::BTreeSet;

use async_trait::async_trait;
use everturn_provider::ProviderError;
use everturn_provider::encoded::{stored_count, unsigned};
use everturn_provider::management::{InstanceFilter, PruneOptions, PruneResult};
use tokio_postgres::{Error, Row};

use crate::delete::{self, change_totals};
use crate::delete_bulk::{CANDIDATES, last_moment_before, limit_of};
use crate::error::storage_error;
use crate::provider::PostgresProvider;
use crate::readers::{Transaction, TransactionError};
use crate::session::{Parameter, ServerSession};
use crate::totals::TotalsChange;

/// How many executions one transaction removes at most.
const EXECUTIONS: i64 = 500;
const BULK: &str = "prune_executions_bulk";

/// The oldest of the newest executions of instance `i` that are kept; `$3` says how many.
macro_rules! kept {
    () => {
        "CROSS JOIN LATERAL (SELECT min(n.execution_id) AS oldest_id FROM (SELECT m.execution_id \
         FROM {schema}.everturn_executions AS m WHERE m.instance_key = i.instance_key \
         ORDER BY m.execution_id DESC LIMIT $3::bigint) AS n) AS kept "
    };
}

/// Whether execution `x` of instance `i` goes. The newest, the current one and running ones are kept, and those that ended after
/// `$4`.
macro_rules! prunable {
    () => {
        "x.instance_key = i.instance_key AND x.execution_id < kept.oldest_id AND x.execution_id <> i.current_execution_id \
         AND x.status <> 'Running' AND ($4::bigint IS NULL OR x.completed_at_ms <= $4::bigint) "
    };
}

/// Instances that match, each with whether anything of it goes. Those whose current execution has not ended by `$2` do not match;
/// all do if there is no such bound.
macro_rules! matching {
    ($condition:literal) => {
        concat!(
            "SELECT i.instance_id, EXISTS (SELECT 1 FROM {schema}.everturn_executions AS x WHERE ",
            prunable!(),
            ") FROM {schema}.everturn_instances AS i ",
            kept!(),
            "WHERE i.created_at_ms IS NOT NULL AND ($2::bigint IS NULL OR EXISTS (SELECT 1 \
                 FROM {schema}.everturn_executions AS c WHERE c.instance_key = i.instance_key \
                 AND c.execution_id = i.current_execution_id AND c.completed_at_ms <= $2::bigint)) AND ",
            $condition,
            " ORDER BY i.instance_id LIMIT $5::bigint"
        )
    };
}

const SELECT_MATCHING_OF: &str = matching!("i.instance_id = ANY($1::text[])");
const SELECT_MATCHING_AFTER: &str = matching!("i.instance_id > $1");
const LOCK_INSTANCES: &str = "SELECT i.instance_key FROM {schema}.everturn_instances AS i \
     WHERE i.instance_id = ANY($1::text[]) AND i.created_at_ms IS NOT NULL ORDER BY i.instance_key FOR UPDATE";
const DELETE_EXECUTIONS: &str = concat!(
    "DELETE FROM {schema}.everturn_executions AS e USING (SELECT x.instance_key, x.execution_id \
         FROM {schema}.everturn_instances AS i ",
    kept!(),
    "JOIN {schema}.everturn_executions AS x ON ",
    prunable!(),
    "WHERE i.instance_key = ANY($1::bigint[]) ORDER BY x.instance_key, x.execution_id LIMIT $2::bigint) AS old \
     WHERE e.instance_key = old.instance_key AND e.execution_id = old.execution_id \
     RETURNING e.instance_key, e.execution_id, e.event_count"
);
/// Deletes the rows of executions.
const DELETE_OWNED: &[&str] = &[
    "DELETE FROM {schema}.everturn_history AS h USING unnest($1::bigint[], $2::bigint[]) AS n (instance_key, execution_id) \
     WHERE h.instance_key = n.instance_key AND h.execution_id = n.execution_id",
    "DELETE FROM {schema}.everturn_kv_undo AS u USING unnest($1::bigint[], $2::bigint[]) AS n (instance_key, execution_id) \
     WHERE u.instance_key = n.instance_key AND u.execution_id = n.execution_id",
];

/// Which executions of an instance go.
#[derive(Debug, Clone, Copy)]
struct PruneRule {
    /// How many of the newest are kept.
    keep: i64,
    /// Those that ended later are kept.
    until_ms: Option<i64>,
}

impl PruneRule {
    fn of(options: &PruneOptions) -> Self {
        Self {
            keep: i64::from(options.keep_last.unwrap_or(1).max(1)),
            until_ms: options.completed_before.map(|before| last_moment_before(Some(before))),
        }
    }
}

/// Removes old executions of instances, until a slice of work is done.
struct PruneInstances {
    owner: i64,
    ids: Vec<String>,
    rule: PruneRule,
    /// The caller named one instance: it gets an error if that is missing.
    is_named: bool,
}

/// What one slice did.
#[derive(Debug, Default)]
struct PrunedSlice {
    executions: u64,
    events: u64,
    /// All that was to be removed is removed.
    is_all: bool,
}

#[async_trait]
impl Transaction for PruneInstances {
    type Answer = PrunedSlice;
    const NAME: &'static str = "prune_executions";

    async fn run(&self, session: &ServerSession) -> Result<PrunedSlice, TransactionError> {
        let rows = session.query(LOCK_INSTANCES, &[&delete::storable(&self.ids)]).await?;
        let keys = rows.iter().map(|row| row.try_get(0)).collect::<Result<Vec<i64>, Error>>()?;
        if keys.is_empty() && self.is_named {
            let id = self.ids.first().map(String::as_str).unwrap_or_default();
            return Err(ProviderError::not_found("", format!("instance {id} not found")).into());
        }
        let PruneRule { keep, until_ms } = self.rule;
        let parameters: [Parameter<'_>; 4] = [&keys, &EXECUTIONS, &keep, &until_ms];
        let rows = session.query(DELETE_EXECUTIONS, &parameters).await?;
        if rows.is_empty() {
            return Ok(PrunedSlice { is_all: true, ..PrunedSlice::default() });
        }
        let removed = RemovedExecutions::of(&rows)?;
        for &sql in DELETE_OWNED {
            session.execute(sql, &[&removed.keys, &removed.ids]).await?;
        }
        let executions = stored_count(removed.keys.len());
        let totals =
            TotalsChange { executions: -executions, events: -removed.events, ..TotalsChange::default() };
        change_totals(session, self.owner, totals).await?;
        Ok(PrunedSlice {
            executions: unsigned(executions),
            events: unsigned(removed.events),
            is_all: executions < EXECUTIONS,
        })
    }
}

/// Executions whose rows were deleted.
#[derive(Default)]
struct RemovedExecutions {
    keys: Vec<i64>,
    ids: Vec<i64>,
    events: i64,
}

impl RemovedExecutions {
    fn of(rows: &[Row]) -> Result<Self, Error> {
        let mut removed = Self::default();
        for row in rows {
            removed.keys.push(row.try_get(0)?);
            removed.ids.push(row.try_get(1)?);
            let events: i64 = row.try_get(2)?;
            removed.events = removed.events.saturating_add(events);
        }
        Ok(removed)
    }
}

/// `prune_executions`: removes old executions of one instance.
pub(crate) async fn prune_one(
    provider: &PostgresProvider,
    instance_id: &str,
    options: PruneOptions,
) -> Result<PruneResult, ProviderError> {
    let rule = PruneRule::of(&options);
    let mut pruning = Pruning { provider, rule, pruned: PruneResult::default() };
    pruning.prune(vec![instance_id.to_owned()], true).await?;
    pruning.pruned.instances_processed = 1;
    Ok(pruning.pruned)
}

/// `prune_executions_bulk`: removes old executions of every instance that matches, by id.
pub(crate) async fn prune_bulk(
    provider: &PostgresProvider,
    filter: InstanceFilter,
    options: PruneOptions,
) -> Result<PruneResult, ProviderError> {
    let rule = PruneRule::of(&options);
    let mut pruning = Pruning { provider, rule, pruned: PruneResult::default() };
    let ended_until_ms = filter.completed_before.map(|before| last_moment_before(Some(before)));
    let mut left = limit_of(&filter);
    match filter.instance_ids {
        Some(ids) => {
            // In the order of their ids, each once.
            let ids: Vec<String> = BTreeSet::from_iter(ids).into_iter().collect();
            for page in ids.chunks(CANDIDATES) {
                if left == 0 {
                    break;
                }
                let listed = delete::storable(page);
                left -= pruning.prune_page(SELECT_MATCHING_OF, &listed, ended_until_ms, left).await?.matching;
            }
        }
        None => {
            let mut after = String::new();
            while left > 0 {
                let page = pruning.prune_page(SELECT_MATCHING_AFTER, &after, ended_until_ms, left).await?;
                left -= page.matching;
                let Some(last) = page.last_id else { break };
                after = last;
            }
        }
    }
    Ok(pruning.pruned)
}

/// A page of instances that matched.
struct PrunedPage {
    /// How many there were, at most as many as were left.
    matching: usize,
    last_id: Option<String>,
}

/// A pruning under way.
struct Pruning<'a> {
    provider: &'a PostgresProvider,
    rule: PruneRule,
    pruned: PruneResult,
}

impl Pruning<'_> {
    /// Prunes the instances that a statement finds, at most `left`.
    async fn prune_page(
        &mut self,
        select: &'static str,
        instances: Parameter<'_>,
        ended_until_ms: Option<i64>,
        left: usize,
    ) -> Result<PrunedPage, ProviderError> {
        let limit = stored_count(left.min(CANDIDATES));
        let PruneRule { keep, until_ms } = self.rule;
        let parameters: [Parameter<'_>; 5] = [instances, &ended_until_ms, &keep, &until_ms, &limit];
        let rows = self.provider.readers().query(BULK, select, &parameters).await?;
        let found = rows.iter().map(matching).collect::<Result<Vec<_>, _>>();
        let found = found.map_err(|error| storage_error(BULK, error))?;
        let page = PrunedPage { matching: found.len(), last_id: found.last().map(|(id, _)| id.clone()) };
        self.pruned.instances_processed += u64::try_from(page.matching).unwrap_or(u64::MAX);
        let ids: Vec<String> =
            found.into_iter().filter_map(|(id, is_prunable)| is_prunable.then_some(id)).collect();
        if !ids.is_empty() {
            self.prune(ids, false).await?;
        }
        Ok(page)
    }

    /// Removes what is to be removed of these instances.
    async fn prune(&mut self, ids: Vec<String>, is_named: bool) -> Result<(), ProviderError> {
        let mut slice = PruneInstances { owner: self.provider.owner(), ids, rule: self.rule, is_named };
        loop {
            let done = self.provider.readers().transact(&slice).await?;
            self.pruned.executions_deleted += done.executions;
            self.pruned.events_deleted += done.events;
            if done.is_all {
                return Ok(());
            }
            // If the instance is deleted meanwhile, nothing is left to be removed.
            slice.is_named = false;
        }
    }
}

/// An instance that matches, and whether any of its executions goes.
fn matching(row: &Row) -> Result<(String, bool), Error> {
    Ok((row.try_get(0)?, row.try_get(1)?))
}
