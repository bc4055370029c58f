//! `delete_instance_bulk`: many trees, slice by slice. Other operations run between two slices.
//!
//! Each tree goes whole to every reader. If the call fails or is dropped, the trees of earlier slices are gone.

use everturn_provider::encoded::stored_ms;
use std::collections::HashSet;

use everturn_provider::ProviderError;
use everturn_provider::management::{DeleteInstanceResult, InstanceFilter};
use rusqlite::{Connection, params};

use crate::columns;
use crate::delete::DeleteTrees;
use crate::provider::SqliteProvider;

/// How many instances a bulk operation takes if its filter does not say.
const DEFAULT_LIMIT: u32 = 1_000;
/// How many candidates one slice is given; it looks at fewer if they have many rows.
pub(crate) const CANDIDATES: usize = 500;

// In the order of their end. Ties are ordered by id, so that a page can follow another.
pub(crate) const ENDED_ROOTS: &str = "SELECT CAST(i.instance_id AS BLOB), e.completed_at_ms \
     FROM everturn_executions AS e INDEXED BY everturn_executions_ended CROSS JOIN everturn_instances AS i \
     ON i.instance_key = e.instance_key AND i.current_execution_id = e.execution_id \
     WHERE e.status IN ('Completed', 'Failed') AND e.completed_at_ms >= ?1 AND e.completed_at_ms <= ?2 \
     AND typeof(i.instance_id) = 'text' AND (e.completed_at_ms > ?1 OR i.instance_id > CAST(?3 AS TEXT)) \
     AND i.created_at_ms IS NOT NULL AND i.parent_instance_id IS NULL \
     ORDER BY e.completed_at_ms, i.instance_id LIMIT ?4";

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
    provider: &SqliteProvider,
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
    provider: &'a SqliteProvider,
    ended_until_ms: i64,
    trees_left: usize,
    removed: DeleteInstanceResult,
}

impl BulkDeletion<'_> {
    /// Removes those of these instances that match.
    async fn delete_candidates(&mut self, mut candidates: &[String]) -> Result<(), ProviderError> {
        while !candidates.is_empty() && self.trees_left > 0 {
            let slice = candidates.iter().take(CANDIDATES).cloned().collect();
            let verb = DeleteTrees {
                candidates: slice,
                ended_until_ms: self.ended_until_ms,
                trees_max: self.trees_left,
            };
            let done = self.provider.call(verb).await?;
            self.trees_left = self.trees_left.saturating_sub(done.trees);
            self.removed.instances_deleted += done.removed.instances_deleted;
            self.removed.executions_deleted += done.removed.executions_deleted;
            self.removed.events_deleted += done.removed.events_deleted;
            self.removed.queue_messages_deleted += done.removed.queue_messages_deleted;
            candidates = candidates.get(done.candidates.max(1)..).unwrap_or_default();
        }
        Ok(())
    }

    /// Removes all that match, page by page, those that ended first in front.
    async fn delete_ended(&mut self) -> Result<(), ProviderError> {
        let (mut from_ms, mut after_id) = (i64::MIN, Vec::new());
        while self.trees_left > 0 {
            let (page_from, page_after, until_ms) = (from_ms, after_id.clone(), self.ended_until_ms);
            let page = self
                .provider
                .read_at_length("delete_instance_bulk", move |conn| {
                    ended_roots(conn, page_from, until_ms, &page_after)
                })
                .await?;
            let Some((last_id, last_ms)) = page.last().cloned() else { break };
            (from_ms, after_id) = (last_ms, last_id);
            // An id that is no UTF-8 is no candidate: no caller can name it.
            let candidates: Vec<String> =
                page.into_iter().filter_map(|(id, _)| String::from_utf8(id).ok()).collect();
            self.delete_candidates(&candidates).await?;
        }
        Ok(())
    }
}

fn ended_roots(
    conn: &Connection,
    from_ms: i64,
    until_ms: i64,
    after_id: &[u8],
) -> rusqlite::Result<Vec<(Vec<u8>, i64)>> {
    let page = i64::try_from(CANDIDATES).unwrap_or(i64::MAX);
    conn.prepare_cached(ENDED_ROOTS)?
        .query_map(params![from_ms, until_ms, after_id, page], |row| {
            Ok((columns::bytes(row, 0)?, columns::integer(row, 1)?.unwrap_or(i64::MAX)))
        })?
        .collect()
}
