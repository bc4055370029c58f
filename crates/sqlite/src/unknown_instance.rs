//! What becomes of messages whose instance does not exist.
//!
//! A cancellation is dropped when it is sent. Queue messages without a queued start are orphans, and the next fetch deletes
//! them. Any other message waits for a start; a sweep dead-letters it after a time. What still reaches the runtime without
//! naming an orchestration is dropped there (`dispatcher/decision.rs`).

use everturn_provider::encoded::{StoredMessage, length_ms, stored_ms};
use std::time::Duration;

use everturn_core::limits::{MAX_DEAD_LETTERS, MAX_DEAD_LETTERS_PER_SWEEP};
use everturn_provider::store::{DeadLetter, Receipt};
use rusqlite::{Connection, params};

use crate::columns;
use crate::operation::{Scope, VerbFailure};
use crate::orchestrator_queue::{self, Receiver};
use crate::payloads::message_payload;
use crate::row_counts;
use crate::unreadable::RowPlace;

const HAS_START: &str =
    "SELECT EXISTS (SELECT 1 FROM everturn_orchestrator_queue WHERE instance_key = ?1 AND is_start = 1)";
// A message that comes while no start is queued waits for one from then on.
const NOTE_UNSTARTED: &str = "UPDATE everturn_instances SET unstarted_since_ms = ?2 WHERE instance_key = ?1 \
     AND (unstarted_since_ms IS NULL OR unstarted_since_ms > ?2) \
     AND NOT EXISTS (SELECT 1 FROM everturn_orchestrator_queue AS q WHERE q.instance_key = ?1 AND q.is_start = 1)";
const REFRESH_UNSTARTED: &str = "UPDATE everturn_instances SET unstarted_since_ms = \
     (SELECT min(q.arrived_at_ms) FROM everturn_orchestrator_queue AS q WHERE q.instance_key = ?1) WHERE instance_key = ?1";
const SELECT_ORPHANED: &str = "SELECT instance_key FROM everturn_instances WHERE orphaned = 1 AND startable = 0 AND created_at_ms IS NULL AND lock_token IS NULL LIMIT 64";
// In the index alone: its rows need not be readable.
const ORPHANED_KEYS: &str = "SELECT instance_key FROM everturn_instances INDEXED BY everturn_instances_orphaned WHERE orphaned = 1 LIMIT 1000";
const IS_ORPHANED: &str = "SELECT EXISTS (SELECT 1 FROM everturn_instances WHERE instance_key = ?1 AND orphaned = 1 AND startable = 0 \
     AND created_at_ms IS NULL AND lock_token IS NULL)";
const CLEAR_ORPHANED: &str = "UPDATE everturn_instances SET orphaned = 0 WHERE instance_key = ?1";
const DELETE_VISIBLE: &str =
    "DELETE FROM everturn_orchestrator_queue WHERE instance_key = ?1 AND visible_at_ms <= ?2";
const DELETE_EMPTY: &str = "DELETE FROM everturn_instances WHERE instance_key = ?1 AND created_at_ms IS NULL \
     AND NOT EXISTS (SELECT 1 FROM everturn_executions WHERE everturn_executions.instance_key = ?1) \
     AND NOT EXISTS (SELECT 1 FROM everturn_orchestrator_queue WHERE everturn_orchestrator_queue.instance_key = ?1)";
const SELECT_UNSTARTED: &str = "SELECT instance_key, instance_id, startable OR EXISTS (SELECT 1 \
         FROM everturn_orchestrator_queue AS q WHERE q.instance_key = i.instance_key AND q.is_start = 1) \
     FROM everturn_instances AS i WHERE unstarted_since_ms IS NOT NULL AND unstarted_since_ms <= ?1 \
     ORDER BY unstarted_since_ms LIMIT ?2";
const SELECT_OLD: &str = "SELECT seq, kind FROM everturn_orchestrator_queue \
     WHERE instance_key = ?1 AND visible_at_ms <= ?2 AND arrived_at_ms <= ?3 ORDER BY seq LIMIT ?4";
const DEAD_LETTER: &str = concat!(
    "INSERT INTO everturn_dead_letters (dead_lettered_at_ms, reason, instance_id, work_item) \
     SELECT ?2, 'the instance was never started', ?3, CAST(",
    message_payload!(),
    " AS TEXT) FROM everturn_orchestrator_queue AS q WHERE q.seq = ?1"
);
const DELETE_MESSAGE: &str = "DELETE FROM everturn_orchestrator_queue WHERE seq = ?1";
const CLEAR_MARK: &str = "UPDATE everturn_instances SET unstarted_since_ms = NULL WHERE instance_key = ?1";
// Only messages of this kind have no end. Damaged activities are kept until they are repaired.
const FORGET_OLDEST: &str = "DELETE FROM everturn_dead_letters WHERE reason = 'the instance was never started' AND dead_letter_key <= (SELECT dead_letter_key \
         FROM everturn_dead_letters WHERE reason = 'the instance was never started' ORDER BY dead_letter_key DESC LIMIT 1 OFFSET ?1)";

/// What becomes of a message that is about to be inserted.
pub(crate) fn receipt_of(
    conn: &Connection,
    receiver: Option<&Receiver>,
    message: &StoredMessage,
) -> Result<Receipt, VerbFailure> {
    if !message.is_start && !message.is_cancel {
        return Ok(Receipt::Queued);
    }
    let is_taken = match receiver {
        None => false,
        Some(receiver) if receiver.startable => true,
        Some(receiver) => conn.prepare_cached(HAS_START)?.query_row([receiver.key], |row| row.get(0))?,
    };
    Ok(match (message.is_start, is_taken) {
        (true, true) => Receipt::Existing,
        (true, false) => Receipt::Created,
        (false, true) => Receipt::Queued,
        (false, false) => Receipt::Dropped,
    })
}

/// Notes that messages of an instance wait for its start from `arrived_at_ms` on, unless a start is queued.
pub(crate) fn note_unstarted(conn: &Connection, key: i64, arrived_at_ms: i64) -> Result<(), VerbFailure> {
    conn.prepare_cached(NOTE_UNSTARTED)?.execute([key, arrived_at_ms])?;
    Ok(())
}

/// Finds out again since when the messages of an instance wait for its start.
pub(crate) fn refresh_unstarted(conn: &Connection, key: i64) -> Result<(), VerbFailure> {
    conn.prepare_cached(REFRESH_UNSTARTED)?.execute([key])?;
    Ok(())
}

/// Deletes the messages of instances that have only queue messages and no queued start. Returns whether there may be more.
pub(crate) fn delete_orphans(scope: &mut Scope<'_>) -> Result<bool, VerbFailure> {
    let (conn, rows) = (scope.conn, scope.rows);
    let keys: Vec<i64> = conn
        .prepare_cached(if rows.one_by_one { ORPHANED_KEYS } else { SELECT_ORPHANED })?
        .query_map([], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    let mut is_found = false;
    for key in &keys {
        if rows.passes_over(RowPlace::Instance(*key)) {
            continue;
        }
        rows.at(RowPlace::Instance(*key));
        if rows.one_by_one
            && !conn.prepare_cached(IS_ORPHANED)?.query_row([key], |row| columns::flag(row, 0))?
        {
            continue;
        }
        is_found = true;
        conn.prepare_cached(DELETE_VISIBLE)?.execute([*key, scope.now.wall_ms])?;
        if !delete_if_empty(conn, *key)? {
            conn.prepare_cached(CLEAR_ORPHANED)?.execute([key])?;
        }
    }
    rows.done();
    Ok(is_found)
}

/// Takes the messages out of the queue that have waited so long, and whose instance neither exists nor is about to start.
pub(crate) fn dead_letter_unstarted(
    scope: &mut Scope<'_>,
    waited: Duration,
) -> Result<Vec<DeadLetter>, VerbFailure> {
    let since_ms = scope.now.wall_ms.saturating_sub(stored_ms(length_ms(waited)));
    let mut letters = Vec::new();
    for instance in unstarted(scope, since_ms)? {
        if instance.has_start {
            scope.conn.prepare_cached(CLEAR_MARK)?.execute([instance.key])?;
            continue;
        }
        let left = MAX_DEAD_LETTERS_PER_SWEEP.saturating_sub(letters.len());
        if left == 0 {
            break;
        }
        letters.extend(dead_letter_messages(scope, &instance, since_ms, left)?);
        if !delete_if_empty(scope.conn, instance.key)? {
            refresh_unstarted(scope.conn, instance.key)?;
            orchestrator_queue::refresh(scope, instance.key)?;
        }
    }
    if !letters.is_empty() {
        scope.conn.prepare_cached(FORGET_OLDEST)?.execute([row_counts::stored(MAX_DEAD_LETTERS)])?;
    }
    Ok(letters)
}

/// An instance with messages that came while no start was queued.
struct UnstartedInstance {
    key: i64,
    id: String,
    /// A start came after all.
    has_start: bool,
}

fn unstarted(scope: &Scope<'_>, since_ms: i64) -> Result<Vec<UnstartedInstance>, VerbFailure> {
    let mut select = scope.conn.prepare_cached(SELECT_UNSTARTED)?;
    let found = select.query_map([since_ms, row_counts::stored(MAX_DEAD_LETTERS_PER_SWEEP)], |row| {
        Ok(UnstartedInstance {
            key: row.get(0)?,
            id: columns::text(row, 1)?.unwrap_or_default(),
            has_start: columns::flag(row, 2)?,
        })
    })?;
    Ok(found.collect::<rusqlite::Result<_>>()?)
}

fn dead_letter_messages(
    scope: &Scope<'_>,
    instance: &UnstartedInstance,
    since_ms: i64,
    limit: usize,
) -> Result<Vec<DeadLetter>, VerbFailure> {
    let now_ms = scope.now.wall_ms;
    let old: Vec<(i64, String)> = scope
        .conn
        .prepare_cached(SELECT_OLD)?
        .query_map([instance.key, now_ms, since_ms, row_counts::stored(limit)], |row| {
            Ok((row.get(0)?, columns::text(row, 1)?.unwrap_or_default()))
        })?
        .collect::<rusqlite::Result<_>>()?;
    let mut letters = Vec::with_capacity(old.len());
    for (seq, kind) in old {
        scope.conn.prepare_cached(DEAD_LETTER)?.execute(params![seq, now_ms, instance.id])?;
        scope.conn.prepare_cached(DELETE_MESSAGE)?.execute([seq])?;
        letters.push(DeadLetter::new(instance.id.clone(), kind));
    }
    Ok(letters)
}

/// Deletes the row of an instance that does not exist and has no message any more; `false` if it stays.
fn delete_if_empty(conn: &Connection, key: i64) -> Result<bool, VerbFailure> {
    Ok(conn.prepare_cached(DELETE_EMPTY)?.execute([key])? > 0)
}
