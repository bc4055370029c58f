//! Large payloads of the queues: in tables of their own, so that a lock, a tag or a renewal does not write them again. A
//! trigger deletes a payload with the row of its queue.

use rusqlite::{Connection, params};

/// Payloads up to this size stay in the row: they cost no statement of their own.
const INLINE_BYTES: usize = 1_024;

// What a damaged file has left behind is replaced.
const INSERT_OF_MESSAGE: &str =
    "INSERT OR REPLACE INTO everturn_message_payloads (seq, work_item) VALUES (?1, ?2)";
const INSERT_OF_ACTIVITY: &str =
    "INSERT OR REPLACE INTO everturn_activity_payloads (seq, work_item) VALUES (?1, ?2)";

/// The work item of a message in row `q` of its queue.
macro_rules! message_payload {
    () => {
        "coalesce(q.work_item, (SELECT p.work_item FROM everturn_message_payloads AS p WHERE p.seq = q.seq))"
    };
}
pub(crate) use message_payload;

/// The bytes of the work item of a message in row `q` of its queue, without reading it.
macro_rules! message_octets {
    () => {
        "coalesce(octet_length(q.work_item), \
         (SELECT octet_length(p.work_item) FROM everturn_message_payloads AS p WHERE p.seq = q.seq))"
    };
}
pub(crate) use message_octets;

/// The work item of an activity in row `q` of its queue.
macro_rules! activity_payload {
    () => {
        "coalesce(q.work_item, (SELECT p.work_item FROM everturn_activity_payloads AS p WHERE p.seq = q.seq))"
    };
}
pub(crate) use activity_payload;

/// What stays in the row of the queue: nothing of a large payload.
pub(crate) fn inline(work_item: &str) -> Option<&str> {
    Some(work_item).filter(|work_item| work_item.len() <= INLINE_BYTES)
}

/// Stores the payload of a message that was inserted, if it is large.
#[inline]
pub(crate) fn insert_of_message(conn: &Connection, seq: i64, work_item: &str) -> rusqlite::Result<()> {
    insert(conn, INSERT_OF_MESSAGE, seq, work_item)
}

/// The same for an activity.
#[inline(always)]
pub(crate) fn insert_of_activity(conn: &Connection, seq: i64, work_item: &str) -> rusqlite::Result<()> {
    insert(conn, INSERT_OF_ACTIVITY, seq, work_item)
}

#[inline(always)]
fn insert(conn: &Connection, sql: &str, seq: i64, work_item: &str) -> rusqlite::Result<()> {
    if inline(work_item).is_none() {
        conn.prepare_cached(sql)?.execute(params![seq, work_item])?;
    }
    Ok(())
}
