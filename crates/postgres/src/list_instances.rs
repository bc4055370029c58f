//! `list_instances` and `list_instances_by_status`, in pages: each is a statement of its own, so that a long listing keeps no
//! old rows from being removed.

use std::cmp::Reverse;
use std::collections::HashMap;

use everturn_provider::ProviderError;
use tokio_postgres::{Error, Row};

use crate::error::storage_error;
use crate::provider::PostgresProvider;

/// Rows per page, listed or not: a page is read in a few milliseconds.
const PAGE_ROWS: i64 = 2_000;

// By key, which an instance keeps for its whole life: what exists throughout is read once.
const SELECT_PAGE: &str = "SELECT i.instance_key, i.instance_id, i.created_at_ms, \
     i.created_at_ms IS NOT NULL AND ($3::text IS NULL OR coalesce(i.status = $3::text, false)) \
     FROM {schema}.everturn_instances AS i WHERE i.instance_key <= $1 ORDER BY i.instance_key DESC LIMIT $2::bigint";

/// The ids of all instances, or of those whose current execution has a status; the newest first, equal times by id.
///
/// Every instance that exists throughout is listed once. What comes, goes or changes its status meanwhile may be listed.
pub(crate) async fn list(
    provider: &PostgresProvider,
    operation: &str,
    status: Option<&str>,
) -> Result<Vec<String>, ProviderError> {
    let mut created = HashMap::new();
    let mut next = Some(i64::MAX);
    while let Some(up_to) = next {
        let rows = provider.readers().query(operation, SELECT_PAGE, &[&up_to, &PAGE_ROWS, &status]).await?;
        let page = ListedPage::of(&rows).map_err(|error| storage_error(operation, error))?;
        for (id, created_at_ms) in page.listed {
            // An id that comes again was deleted and started anew meanwhile.
            created.entry(id).or_insert(created_at_ms);
        }
        next = page.next;
        tokio::task::yield_now().await;
    }
    // Sorting very many would keep other tasks from running.
    let sorted = tokio::task::spawn_blocking(move || newest_first(created)).await;
    sorted.map_err(|error| {
        ProviderError::permanent(operation, format!("sorting the instances: {error}")).with_source(error)
    })
}

fn newest_first(created: HashMap<String, i64>) -> Vec<String> {
    let mut listed: Vec<_> = created.into_iter().collect();
    listed.sort_unstable_by(|(id, at_ms), (other_id, other_at_ms)| {
        (Reverse(at_ms), id).cmp(&(Reverse(other_at_ms), other_id))
    });
    listed.into_iter().map(|(id, _)| id).collect()
}

/// Some instances with their time of creation, and the largest key of the next page, if there is one.
struct ListedPage {
    listed: Vec<(String, i64)>,
    next: Option<i64>,
}

impl ListedPage {
    fn of(rows: &[Row]) -> Result<Self, Error> {
        let mut page = Self { listed: Vec::new(), next: None };
        for row in rows {
            let is_listed: bool = row.try_get(3)?;
            if is_listed {
                page.listed.push((row.try_get(1)?, row.try_get(2)?));
            }
        }
        if let Some(last) = rows.last()
            && i64::try_from(rows.len()).is_ok_and(|read| read >= PAGE_ROWS)
        {
            let last_key: i64 = last.try_get(0)?;
            page.next = last_key.checked_sub(1);
        }
        Ok(page)
    }
}
