//! `delete_instance_bulk`: many trees, slice by slice. Other transactions run between two slices.
//!
//! Each tree goes whole to every reader. If the call fails or is dropped, the trees of earlier slices are gone.

use std::collections::{HashMap, HashSet};

use async_trait::async_trait;
use everturn_provider::ProviderError;
use everturn_provider::encoded::{stored_count, stored_ms};
use everturn_provider::management::{DeleteInstanceResult, InstanceFilter};
use tokio_postgres::{Error, Row};

use crate::delete::{self, DoomedInstance};
use crate::error::storage_error;
use crate::provider::PostgresProvider;
use crate::readers::{Transaction, TransactionError};
use crate::session::{Parameter, ServerSession};

/// How many instances a bulk operation takes if its filter does not say.
const DEFAULT_LIMIT: u32 = 1_000;
/// How many instances one page has.
pub(crate) const CANDIDATES: usize = 500;
/// How many of them are looked up with their descendants at a time.
const EXPANDED_ROOTS: usize = 100;
/// How many instances one transaction removes. A larger tree is a transaction of its own.
const SLICE_INSTANCES: usize = 500;

const NAME: &str = "delete_instance_bulk";

// In the order of their end. Ties are ordered by id, so that a page can follow another.
const ENDED_ROOTS: &str = "SELECT i.instance_id, e.completed_at_ms FROM {schema}.everturn_executions AS e \
     JOIN {schema}.everturn_instances AS i ON i.instance_key = e.instance_key AND i.current_execution_id = e.execution_id \
     WHERE e.status IN ('Completed', 'Failed') AND e.completed_at_ms >= $1 AND e.completed_at_ms <= $2 \
     AND (e.completed_at_ms > $1 OR i.instance_id > $3) AND i.created_at_ms IS NOT NULL AND i.parent_instance_id IS NULL \
     ORDER BY e.completed_at_ms, i.instance_id LIMIT $4::bigint";
// Those of the instances that are ended roots, with their descendants.
const ENDED_TREES: &str = "WITH RECURSIVE tree AS (SELECT i.instance_id AS root_id, i.instance_id, i.status \
     FROM {schema}.everturn_instances AS i JOIN {schema}.everturn_executions AS e \
     ON e.instance_key = i.instance_key AND e.execution_id = i.current_execution_id \
     WHERE i.instance_id = ANY($1::text[]) AND i.created_at_ms IS NOT NULL AND i.parent_instance_id IS NULL \
     AND e.status IN ('Completed', 'Failed') AND e.completed_at_ms <= $2 \
     UNION SELECT t.root_id, c.instance_id, c.status FROM tree AS t JOIN {schema}.everturn_instances AS c \
     ON c.parent_instance_id = t.instance_id AND c.created_at_ms IS NOT NULL) \
     SELECT root_id, instance_id, coalesce(status IN ('Completed', 'Failed'), false) FROM tree";

/// How many instances a filter lets a bulk operation take.
pub(crate) fn limit_of(filter: &InstanceFilter) -> usize {
    usize::try_from(filter.limit.unwrap_or(DEFAULT_LIMIT)).unwrap_or(usize::MAX)
}

/// The latest moment that is before the cut-off; the end of time without one.
pub(crate) fn last_moment_before(cut_off_ms: Option<u64>) -> i64 {
    cut_off_ms.map_or(i64::MAX, |cut_off_ms| stored_ms(cut_off_ms).saturating_sub(1))
}

/// Removes the ended roots that match, with their descendants.
pub(crate) async fn delete_bulk(
    provider: &PostgresProvider,
    filter: InstanceFilter,
) -> Result<DeleteInstanceResult, ProviderError> {
    let mut deletion = BulkDeletion {
        provider,
        ended_until_ms: last_moment_before(filter.completed_before),
        trees_left: limit_of(&filter),
        removed: DeleteInstanceResult::default(),
    };
    match filter.instance_ids {
        Some(ids) => {
            let mut seen = HashSet::new();
            let ids: Vec<String> = ids.into_iter().filter(|id| seen.insert(id.clone())).collect();
            deletion.delete_candidates(&ids).await?;
        }
        None => deletion.delete_ended().await?,
    }
    Ok(deletion.removed)
}

/// A bulk deletion under way.
struct BulkDeletion<'a> {
    provider: &'a PostgresProvider,
    ended_until_ms: i64,
    trees_left: usize,
    removed: DeleteInstanceResult,
}

impl BulkDeletion<'_> {
    /// Removes those of these instances that match.
    async fn delete_candidates(&mut self, candidates: &[String]) -> Result<(), ProviderError> {
        for candidates in candidates.chunks(EXPANDED_ROOTS) {
            if self.trees_left == 0 {
                return Ok(());
            }
            let candidates = delete::storable(candidates);
            let parameters: [Parameter<'_>; 2] = [&candidates, &self.ended_until_ms];
            let rows = self.provider.readers().query(NAME, ENDED_TREES, &parameters).await?;
            let trees = Trees::of(&rows).map_err(|error| storage_error(NAME, error))?;
            self.delete_trees(trees.in_order_of(&candidates)).await?;
        }
        Ok(())
    }

    async fn delete_trees(&mut self, mut trees: Vec<Vec<String>>) -> Result<(), ProviderError> {
        while !trees.is_empty() && self.trees_left > 0 {
            let rest = trees.split_off(slice_of(&trees, self.trees_left));
            let slice = TreeDeletion {
                owner: self.provider.owner(),
                roots: trees.iter().filter_map(|tree| tree.first().cloned()).collect(),
                ids: trees.concat(),
                ended_until_ms: self.ended_until_ms,
            };
            let answer = self.provider.readers().transact(&slice).await;
            // If the connection was lost, they may be gone.
            self.provider.touched(&slice.ids);
            let done = answer?;
            self.trees_left = self.trees_left.saturating_sub(done.trees);
            self.removed.instances_deleted += done.removed.instances_deleted;
            self.removed.executions_deleted += done.removed.executions_deleted;
            self.removed.events_deleted += done.removed.events_deleted;
            self.removed.queue_messages_deleted += done.removed.queue_messages_deleted;
            trees = rest;
        }
        Ok(())
    }

    /// Removes all that match, page by page, those that ended first in front.
    async fn delete_ended(&mut self) -> Result<(), ProviderError> {
        let (mut from_ms, mut after_id) = (i64::MIN, String::new());
        while self.trees_left > 0 {
            let limit = stored_count(CANDIDATES);
            let parameters: [Parameter<'_>; 4] = [&from_ms, &self.ended_until_ms, &after_id, &limit];
            let rows = self.provider.readers().query(NAME, ENDED_ROOTS, &parameters).await?;
            let page = rows.iter().map(ended_root).collect::<Result<Vec<_>, _>>();
            let page = page.map_err(|error| storage_error(NAME, error))?;
            let Some((last_id, last_ms)) = page.last().cloned() else { break };
            (from_ms, after_id) = (last_ms, last_id);
            let candidates: Vec<String> = page.into_iter().map(|(id, _)| id).collect();
            self.delete_candidates(&candidates).await?;
        }
        Ok(())
    }
}

fn ended_root(row: &Row) -> Result<(String, i64), Error> {
    Ok((row.try_get(0)?, row.try_get(1)?))
}

/// How many of the trees one transaction removes: at least one.
fn slice_of(trees: &[Vec<String>], trees_max: usize) -> usize {
    let (mut count, mut instances) = (0, 0_usize);
    for tree in trees.iter().take(trees_max) {
        instances = instances.saturating_add(tree.len());
        if count > 0 && instances > SLICE_INSTANCES {
            break;
        }
        count += 1;
    }
    count
}

/// Ended roots with their descendants.
struct Trees {
    /// By their roots. The root is the first of a tree.
    whole: HashMap<String, Vec<String>>,
    /// Roots with a descendant that has not ended: a child may outlive its root, which goes when the child has ended.
    under_way: HashSet<String>,
}

impl Trees {
    fn of(rows: &[Row]) -> Result<Self, Error> {
        let mut trees = Self { whole: HashMap::new(), under_way: HashSet::new() };
        for row in rows {
            let (root, id, has_ended): (String, String, bool) =
                (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            if !has_ended {
                trees.under_way.insert(root.clone());
            }
            let tree = trees.whole.entry(root.clone()).or_insert_with(|| vec![root.clone()]);
            if id != root {
                tree.push(id);
            }
        }
        Ok(trees)
    }

    /// The trees without any that is under way.
    fn in_order_of(mut self, roots: &[&str]) -> Vec<Vec<String>> {
        let ended = roots.iter().filter(|root| !self.under_way.contains(**root));
        ended.filter_map(|root| self.whole.remove(*root)).collect()
    }
}

/// Removes ended roots with their descendants, each tree whole, in one transaction.
struct TreeDeletion {
    owner: i64,
    roots: Vec<String>,
    /// All instances of the trees.
    ids: Vec<String>,
    /// Roots that ended later stay.
    ended_until_ms: i64,
}

/// What one slice of a bulk deletion did.
#[derive(Debug, Default)]
struct TreesDeleted {
    trees: usize,
    removed: DeleteInstanceResult,
}

#[async_trait]
impl Transaction for TreeDeletion {
    type Answer = TreesDeleted;
    const NAME: &'static str = NAME;

    async fn run(&self, session: &ServerSession) -> Result<TreesDeleted, TransactionError> {
        let mut locked = delete::lock(session, &delete::storable(&self.ids)).await?;
        // They may have changed before they were locked.
        let rows = session.query(ENDED_TREES, &[&self.roots, &self.ended_until_ms]).await?;
        let trees = Trees::of(&rows)?.in_order_of(&delete::storable(&self.roots));
        let trees = wholly_locked(trees, &locked);
        if trees.is_empty() {
            return Ok(TreesDeleted::default());
        }
        let doomed: HashSet<&str> = trees.iter().flatten().map(String::as_str).collect();
        locked.retain(|instance| doomed.contains(instance.id.as_str()));
        let ids: Vec<&str> = doomed.into_iter().collect();
        let mut removed = delete::remove(session, self.owner, &ids, &locked).await?;
        removed.instances_deleted = u64::try_from(locked.len()).unwrap_or(u64::MAX);
        Ok(TreesDeleted { trees: trees.len(), removed })
    }
}

/// The trees whose instances are all locked. One that has got another child meanwhile stays for a later call.
fn wholly_locked(trees: Vec<Vec<String>>, locked: &[DoomedInstance]) -> Vec<Vec<String>> {
    let ids: HashSet<&str> = locked.iter().map(|instance| instance.id.as_str()).collect();
    trees.into_iter().filter(|tree| tree.iter().all(|id| ids.contains(id.as_str()))).collect()
}
