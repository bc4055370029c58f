//! The oldest ready activity that is bound to no session.

use everturn_provider::TagFilter;
use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::columns;
use crate::parked_fetches::ParkedWorkFetch;
use crate::unreadable::{RowPlace, RowReads};

/// Reads from the index of rows that are ready for every worker and bound to no session.
macro_rules! from_ready {
    ($select:literal, $condition:literal) => {
        concat!(
            "SELECT ",
            $select,
            " FROM worker_queue INDEXED BY worker_queue_ready \
             WHERE ready = 1 AND session_id IS NULL AND visible_at_ms = 0 AND ",
            $condition
        )
    };
}
pub(crate) const OLDEST_UNTAGGED: &str = from_ready!("seq", "tag IS NULL AND seq > ?1 ORDER BY seq LIMIT 1");
pub(crate) const OLDEST_TAGGED: &str = from_ready!("seq", "tag = ?2 AND seq > ?1 ORDER BY seq LIMIT 1");
// One look for each tag, however many rows have it.
pub(crate) const FIRST_TAG: &str = from_ready!("min(tag)", "tag >= ''");
pub(crate) const NEXT_TAG: &str = from_ready!("min(tag)", "tag > ?1");
/// Reads from the index of rows that are ready for workers with the missing handler only, and bound to no session.
macro_rules! from_missing {
    ($select:literal, $condition:literal) => {
        concat!(
            "SELECT ",
            $select,
            " FROM worker_queue INDEXED BY worker_queue_missing_handler \
             WHERE ready = 1 AND session_id IS NULL AND visible_at_ms > 0 AND ",
            $condition
        )
    };
}
pub(crate) const FIRST_HANDLER: &str = from_missing!("min(missing_handler)", "missing_handler >= ''");
pub(crate) const NEXT_HANDLER: &str = from_missing!("min(missing_handler)", "missing_handler > ?1");
pub(crate) const ROWS_FOR_HANDLER: &str = from_missing!("seq, tag", "missing_handler = ?1 ORDER BY seq");

// The same in the index alone: its rows need not be readable.
const KEYS_FOR_HANDLER: &str = from_missing!("seq", "missing_handler = ?1 ORDER BY seq");
const TAG_OF_ROW: &str = "SELECT tag FROM worker_queue WHERE seq = ?1";

/// The oldest activity without a session that this fetch may take.
pub(crate) fn oldest(
    conn: &Connection,
    rows: RowReads<'_>,
    fetch: &ParkedWorkFetch,
) -> rusqlite::Result<Option<i64>> {
    Ok(earlier(oldest_for_all(conn, rows, &fetch.tags)?, oldest_for_handlers(conn, rows, fetch)?))
}

/// The oldest activity with these tags that is ready for every worker.
fn oldest_for_all(conn: &Connection, rows: RowReads<'_>, tags: &TagFilter) -> rusqlite::Result<Option<i64>> {
    let first = |select: &str, tag: Option<&dyn ToSql>| {
        let mut select = conn.prepare_cached(select)?;
        let mut after = i64::MIN;
        loop {
            let found = match tag {
                Some(tag) => select.query_row(params![after, tag], |row| row.get::<_, i64>(0)),
                None => select.query_row([after], |row| row.get(0)),
            };
            match found.optional()? {
                Some(seq) if rows.passes_over(RowPlace::Activity(seq)) => after = seq,
                found => return Ok::<_, rusqlite::Error>(found),
            }
        }
    };
    let untagged = || first(OLDEST_UNTAGGED, None);
    let tagged = |tag: &dyn ToSql| first(OLDEST_TAGGED, Some(tag));
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
            let mut listed = select.query([&name])?;
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
