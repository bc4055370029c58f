//! The oldest ready activities that are bound to no session.

use std::collections::VecDeque;

use everturn_provider::TagFilter;
use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::columns;
use crate::engine_version::OWN_ENGINE;
use crate::parked_fetches::ParkedWorkFetch;
use crate::unreadable::{RowPlace, RowReads};

/// Reads from the index of rows that are ready for every worker and bound to no session.
macro_rules! from_ready {
    ($select:literal, $condition:literal) => {
        concat!(
            "SELECT ",
            $select,
            " FROM everturn_worker_queue INDEXED BY everturn_worker_queue_ready \
             WHERE ready = 1 AND session_id IS NULL AND visible_at_ms = 0 AND ",
            $condition
        )
    };
}
pub(crate) const OLDEST_UNTAGGED: &str =
    from_ready!("seq", "tag IS NULL AND seq > ?1 AND needs_engine <= ?2 ORDER BY seq LIMIT ?3");
pub(crate) const OLDEST_TAGGED: &str =
    from_ready!("seq", "tag = ?3 AND seq > ?1 AND needs_engine <= ?2 ORDER BY seq LIMIT 1");
// One look for each tag, however many rows have it.
pub(crate) const FIRST_TAG: &str = from_ready!("min(tag)", "tag >= ''");
pub(crate) const NEXT_TAG: &str = from_ready!("min(tag)", "tag > ?1");
/// Reads from the index of rows that are ready for workers with the missing handler only, and bound to no session.
macro_rules! from_missing {
    ($select:literal, $condition:literal) => {
        concat!(
            "SELECT ",
            $select,
            " FROM everturn_worker_queue INDEXED BY everturn_worker_queue_missing_handler \
             WHERE ready = 1 AND session_id IS NULL AND visible_at_ms > 0 AND ",
            $condition
        )
    };
}
pub(crate) const FIRST_HANDLER: &str = from_missing!("min(missing_handler)", "missing_handler >= ''");
pub(crate) const NEXT_HANDLER: &str = from_missing!("min(missing_handler)", "missing_handler > ?1");
pub(crate) const ROWS_FOR_HANDLER: &str =
    from_missing!("seq, tag", "missing_handler = ?1 AND needs_engine <= ?2 ORDER BY seq");

// The same in the index alone: its rows need not be readable.
const KEYS_FOR_HANDLER: &str =
    from_missing!("seq", "missing_handler = ?1 AND needs_engine <= ?2 ORDER BY seq");
const TAG_OF_ROW: &str = "SELECT tag FROM everturn_worker_queue WHERE seq = ?1";

/// The oldest activities without a session that fetches like this one may take, in their order: at least one if there is
/// any, at most `wanted`.
pub(crate) fn oldest(
    conn: &Connection,
    rows: RowReads<'_>,
    fetch: &ParkedWorkFetch,
    wanted: usize,
) -> rusqlite::Result<VecDeque<i64>> {
    let for_handlers = oldest_for_handlers(conn, rows, fetch)?;
    if for_handlers.is_none() && fetch.tags == TagFilter::DefaultOnly {
        return untagged(conn, rows, wanted);
    }
    Ok(earlier(oldest_for_all(conn, rows, &fetch.tags)?, for_handlers).into_iter().collect())
}

/// The oldest activities without a tag that are ready for every worker: at least one if there is any, at most `wanted`.
fn untagged(conn: &Connection, rows: RowReads<'_>, wanted: usize) -> rusqlite::Result<VecDeque<i64>> {
    let mut select = conn.prepare_cached(OLDEST_UNTAGGED)?;
    let limit = i64::try_from(wanted.max(1)).unwrap_or(i64::MAX);
    let mut after = i64::MIN;
    loop {
        let listed = select.query_map([after, OWN_ENGINE, limit], |row| row.get(0))?;
        let listed = listed.collect::<rusqlite::Result<VecDeque<i64>>>()?;
        let Some(last) = listed.back().copied() else { return Ok(listed) };
        let found: VecDeque<i64> =
            listed.into_iter().filter(|seq| !rows.passes_over(RowPlace::Activity(*seq))).collect();
        if !found.is_empty() {
            return Ok(found);
        }
        after = last;
    }
}

/// The oldest activity with this tag that is ready for every worker.
fn tagged(conn: &Connection, rows: RowReads<'_>, tag: &dyn ToSql) -> rusqlite::Result<Option<i64>> {
    let mut select = conn.prepare_cached(OLDEST_TAGGED)?;
    let mut after = i64::MIN;
    loop {
        match select.query_row(params![after, OWN_ENGINE, tag], |row| row.get(0)).optional()? {
            Some(seq) if rows.passes_over(RowPlace::Activity(seq)) => after = seq,
            found => return Ok(found),
        }
    }
}

/// The oldest activity with these tags that is ready for every worker.
fn oldest_for_all(conn: &Connection, rows: RowReads<'_>, tags: &TagFilter) -> rusqlite::Result<Option<i64>> {
    let untagged = || Ok::<_, rusqlite::Error>(untagged(conn, rows, 1)?.front().copied());
    let tagged = |tag: &dyn ToSql| tagged(conn, rows, tag);
    let mut oldest: Option<i64> = None;
    match tags {
        TagFilter::None => {}
        TagFilter::Any => {
            oldest = untagged()?;
            let mut tag = StoredText::first(conn, FIRST_TAG)?;
            while let Some(name) = tag {
                oldest = earlier(oldest, tagged(&name)?);
                tag = name.next(conn, NEXT_TAG)?;
            }
        }
        TagFilter::DefaultOnly => oldest = untagged()?,
        TagFilter::Tags(names) => {
            for name in names {
                oldest = earlier(oldest, tagged(name)?);
            }
        }
        TagFilter::DefaultAnd(names) => {
            oldest = untagged()?;
            for name in names {
                oldest = earlier(oldest, tagged(name)?);
            }
        }
    }
    Ok(oldest)
}

/// The oldest activity that was given back for the lack of a handler which this worker has.
fn oldest_for_handlers(
    conn: &Connection,
    rows: RowReads<'_>,
    fetch: &ParkedWorkFetch,
) -> rusqlite::Result<Option<i64>> {
    let mut oldest = None;
    let mut handler = StoredText::first(conn, FIRST_HANDLER)?;
    while let Some(name) = handler {
        if fetch.has(&String::from_utf8_lossy(name.bytes())) {
            let select = if rows.one_by_one { KEYS_FOR_HANDLER } else { ROWS_FOR_HANDLER };
            let mut select = conn.prepare_cached(select)?;
            let mut listed = select.query(params![name, OWN_ENGINE])?;
            while let Some(row) = listed.next()? {
                let seq = row.get(0)?;
                if rows.passes_over(RowPlace::Activity(seq)) {
                    continue;
                }
                let tag = if rows.one_by_one { tag_of(conn, rows, seq)? } else { columns::text(row, 1)? };
                if fetch.tags.matches(tag.as_deref()) {
                    oldest = earlier(oldest, Some(seq));
                    break;
                }
            }
        }
        handler = name.next(conn, NEXT_HANDLER)?;
    }
    Ok(oldest)
}

/// The tag of an activity.
fn tag_of(conn: &Connection, rows: RowReads<'_>, seq: i64) -> rusqlite::Result<Option<String>> {
    rows.at(RowPlace::Activity(seq));
    let tag = conn.prepare_cached(TAG_OF_ROW)?.query_row([seq], |row| columns::text(row, 0))?;
    rows.done();
    Ok(tag)
}

/// A text of an index, as it is stored: a damaged one must be found again as it is.
#[derive(Debug)]
enum StoredText {
    Text(Vec<u8>),
    Blob(Vec<u8>),
}

impl StoredText {
    /// The first text of an index.
    fn first(conn: &Connection, select: &str) -> rusqlite::Result<Option<Self>> {
        conn.prepare_cached(select)?.query_row([], Self::of_row)
    }

    /// The text behind this one.
    fn next(&self, conn: &Connection, select: &str) -> rusqlite::Result<Option<Self>> {
        conn.prepare_cached(select)?.query_row([self], Self::of_row)
    }

    fn of_row(row: &Row<'_>) -> rusqlite::Result<Option<Self>> {
        Ok(match row.get_ref(0)? {
            ValueRef::Text(bytes) => Some(Self::Text(bytes.to_vec())),
            ValueRef::Blob(bytes) => Some(Self::Blob(bytes.to_vec())),
            _ => None,
        })
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Text(bytes) | Self::Blob(bytes) => bytes,
        }
    }
}

impl ToSql for StoredText {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Text(bytes) => ValueRef::Text(bytes),
            Self::Blob(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

fn earlier(one: Option<i64>, other: Option<i64>) -> Option<i64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests;
