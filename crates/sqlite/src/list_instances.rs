//! `list_instances` and `list_instances_by_status`, in pages: each is a transaction of its own, so that a long listing keeps
//! no part of the write-ahead log from being reused.

use std::cmp::Reverse;
use std::collections::HashMap;

use everturn_provider::ProviderError;
use rusqlite::{Connection, Row, params};

use crate::columns;
use crate::provider::SqliteProvider;

/// Rows per page, listed or not: a page is read in a few milliseconds.
const PAGE_ROWS: i64 = 1_000;

// By key, which an instance keeps for its whole life: what exists throughout is read once. New instances have larger keys
// than all others, so that they are passed already.
const SELECT_PAGE: &str = "SELECT instance_key, instance_id, created_at_ms, created_at_ms IS NOT NULL \
     FROM everturn_instances WHERE instance_key <= ?1 ORDER BY instance_key DESC LIMIT ?2";
const SELECT_PAGE_BY_STATUS: &str = "SELECT i.instance_key, i.instance_id, i.created_at_ms, \
         i.created_at_ms IS NOT NULL AND e.status = ?3 \
     FROM everturn_instances AS i LEFT JOIN everturn_executions AS e \
     ON e.instance_key = i.instance_key AND e.execution_id = i.current_execution_id \
     WHERE i.instance_key <= ?1 ORDER BY i.instance_key DESC LIMIT ?2";

/// The ids of all instances, or of those whose current execution has a status; the newest first, equal times by id.
///
/// Every instance that exists throughout is listed once. What comes, goes or changes its status meanwhile may be listed.
pub(crate) async fn list(
    provider: &SqliteProvider,
    operation: &'static str,
    status: Option<&str>,
) -> Result<Vec<String>, ProviderError> {
    let mut created = HashMap::new();
    let mut next = Some(i64::MAX);
    while let Some(up_to) = next {
        let status = status.map(str::to_owned);
        let page =
            provider.read_at_length(operation, move |conn| page(conn, up_to, status.as_deref())).await?;
        for (id, created_at_ms) in page.listed {
            // An id that comes again was deleted and started anew meanwhile.
            created.entry(id).or_insert(created_at_ms);
        }
        next = page.next;
        tokio::task::yield_now().await;
    }
    provider.compute_at_length(operation, move || newest_first(created)).await
}

fn newest_first(created: HashMap<String, Option<i64>>) -> Vec<String> {
    let mut listed: Vec<_> = created.into_iter().collect();
    listed.sort_unstable_by(|(id, at_ms), (other_id, other_at_ms)| {
        (Reverse(at_ms), id).cmp(&(Reverse(other_at_ms), other_id))
    });
    listed.into_iter().map(|(id, _)| id).collect()
}

/// Some instances with their time of creation, and the largest key of the next page, if there is one.
struct ListedPage {
    listed: Vec<(String, Option<i64>)>,
    next: Option<i64>,
}

fn page(conn: &Connection, up_to: i64, status: Option<&str>) -> rusqlite::Result<ListedPage> {
    let mut page = ListedPage { listed: Vec::new(), next: None };
    let (mut rows_read, mut last) = (0, up_to);
    let mut read = |row: &Row<'_>| -> rusqlite::Result<()> {
        rows_read += 1;
        last = row.get(0)?;
        if columns::flag(row, 3)? {
            // With replacements if it is no text: one damaged row must not hide the others.
            page.listed.push((columns::text(row, 1)?.unwrap_or_default(), columns::integer(row, 2)?));
        }
        Ok(())
    };
    match status {
        None => {
            let mut select = conn.prepare_cached(SELECT_PAGE)?;
            let mut rows = select.query([up_to, PAGE_ROWS])?;
            while let Some(row) = rows.next()? {
                read(row)?;
            }
        }
        Some(status) => {
            let mut select = conn.prepare_cached(SELECT_PAGE_BY_STATUS)?;
            let mut rows = select.query(params![up_to, PAGE_ROWS, status])?;
            while let Some(row) = rows.next()? {
                read(row)?;
            }
        }
    }
    // In a damaged table keys may be out of order; the listing ends nevertheless.
    page.next = last.checked_sub(1).filter(|next| rows_read == PAGE_ROWS && *next < up_to);
    Ok(page)
}
