//! The orchestrator queue: messages as they are stored, and whether their instance is ready.

use everturn_core::{WorkItem, kind_of};
use everturn_provider::ProviderError;
use rusqlite::{Connection, OptionalExtension, params};

use crate::clock_reading::stored_ms;
use crate::columns;
use crate::operation::{Scope, VerbFailure};

/// A message as it is stored.
#[derive(Debug)]
pub(crate) struct StoredMessage {
    pub(crate) instance_id: String,
    pub(crate) kind: &'static str,
    pub(crate) is_start: bool,
    pub(crate) is_queue_message: bool,
    /// When a timer becomes visible.
    pub(crate) fire_at_ms: Option<i64>,
    pub(crate) work_item: String,
}

impl StoredMessage {
    /// Encodes a message of the orchestrator queue; refuses an activity.
    pub(crate) fn encode(operation: &str, item: &WorkItem) -> Result<Self, ProviderError> {
        if matches!(item, WorkItem::ActivityExecute { .. }) {
            return Err(ProviderError::permanent(
                operation,
                "an ActivityExecute belongs into the worker queue, not into the orchestrator queue",
            ));
        }
        let fire_at_ms = match item {
            WorkItem::TimerFired { fire_at_ms, .. } => Some(stored_ms(*fire_at_ms)),
            _ => None,
        };
        Ok(Self {
            instance_id: item.instance().to_owned(),
            kind: kind_of(item),
            is_start: item.is_start(),
            is_queue_message: matches!(item, WorkItem::QueueMessage { .. }),
            fire_at_ms,
            work_item: encoded(operation, serde_json::to_string(item))?,
        })
    }
}

/// JSON text, or the error of encoding it.
pub(crate) fn encoded(operation: &str, json: serde_json::Result<String>) -> Result<String, ProviderError> {
    json.map_err(|error| ProviderError::permanent(operation, format!("encoding: {error}")).with_source(error))
}

const SELECT_INSTANCE: &str = "SELECT instance_key, startable, ready_seq IS NOT NULL, lock_token IS NOT NULL, orphaned \
     FROM instances WHERE instance_id = ?1";
const INSERT_INSTANCE: &str = "INSERT INTO instances (instance_id, orphaned) VALUES (?1, ?2)";
const INSERT_MESSAGE: &str = "INSERT INTO orchestrator_queue (instance_key, kind, is_start, visible_at_ms, work_item) \
     VALUES (?1, ?2, ?3, ?4, ?5)";
const MARK_READY: &str = "UPDATE instances SET ready_seq = ?2 WHERE instance_key = ?1";
const CLEAR_ORPHANED: &str = "UPDATE instances SET orphaned = 0 WHERE instance_key = ?1";
/// Computes whether an instance is ready, and whether its messages are orphans.
macro_rules! refresh_sql {
    ($condition:literal) => {
        concat!(
            "UPDATE instances SET \
             ready_seq = CASE WHEN startable = 1 OR EXISTS (SELECT 1 FROM orchestrator_queue AS q \
                     WHERE q.instance_key = ?1 AND q.is_start = 1 AND q.visible_at_ms = 0) \
                 THEN (SELECT min(q.seq) FROM orchestrator_queue AS q \
                     WHERE q.instance_key = ?1 AND q.visible_at_ms = 0) END, \
             orphaned = startable = 0 \
                 AND NOT EXISTS (SELECT 1 FROM orchestrator_queue AS q \
                     WHERE q.instance_key = ?1 AND q.is_start = 1) \
                 AND EXISTS (SELECT 1 FROM orchestrator_queue AS q \
                     WHERE q.instance_key = ?1 AND q.visible_at_ms = 0) \
                 AND NOT EXISTS (SELECT 1 FROM orchestrator_queue AS q \
                     WHERE q.instance_key = ?1 AND q.visible_at_ms = 0 AND q.kind <> 'ExternalRaisedPersistent') \
             WHERE instance_key = ?1",
            $condition,
            " RETURNING ready_seq IS NOT NULL, orphaned"
        )
    };
}
// If an instance is ready although a lock is in its row, the lock has expired.
pub(crate) const REFRESH: &str = refresh_sql!(" AND (lock_token IS NULL OR ready_seq IS NOT NULL)");
const EXPOSE: &str = refresh_sql!("");
const SELECT_ORPHANED: &str = "SELECT instance_key FROM instances WHERE orphaned = 1 AND startable = 0 AND created_at_ms IS NULL AND lock_token IS NULL LIMIT 64";
const DELETE_VISIBLE: &str = "DELETE FROM orchestrator_queue WHERE instance_key = ?1 AND visible_at_ms = 0";
const DELETE_EMPTY: &str = "DELETE FROM instances WHERE instance_key = ?1 AND created_at_ms IS NULL \
     AND NOT EXISTS (SELECT 1 FROM executions WHERE executions.instance_key = ?1) \
     AND NOT EXISTS (SELECT 1 FROM orchestrator_queue WHERE orchestrator_queue.instance_key = ?1)";

/// What decides whether a new message makes its instance ready.
struct Receiver {
    key: i64,
    startable: bool,
    ready: bool,
    locked: bool,
    orphaned: bool,
    /// The message is its first.
    new: bool,
}

/// Puts a message into the queue, visible now or from `visible_at_ms` on.
pub(crate) fn insert(
    scope: &mut Scope<'_>,
    message: &StoredMessage,
    visible_at_ms: Option<i64>,
) -> Result<(), VerbFailure> {
    let visible_at_ms = visible_at_ms.filter(|at_ms| *at_ms > scope.now.wall_ms).unwrap_or(0);
    let receiver = find_or_create(scope.conn, message, visible_at_ms)?;
    scope.conn.prepare_cached(INSERT_MESSAGE)?.execute(params![
        receiver.key,
        message.kind,
        message.is_start,
        visible_at_ms,
        message.work_item
    ])?;
    if visible_at_ms > 0 && !message.is_start {
        return Ok(());
    }
    if receiver.startable || (receiver.new && message.is_start) {
        if !receiver.locked && !receiver.ready && visible_at_ms == 0 {
            let seq = scope.conn.last_insert_rowid();
            let marked = scope.conn.prepare_cached(MARK_READY)?.execute(params![receiver.key, seq]);
            scope.effects.new_turns |=
                unless_damaged(receiver.key, marked.map_err(VerbFailure::from))?.is_some();
        }
    } else if message.is_queue_message && receiver.orphaned {
        // The next fetch deletes orphans, even if it finds no instance.
        scope.effects.orphans = true;
    } else {
        refresh(scope, receiver.key)?;
    }
    Ok(())
}

fn find_or_create(
    conn: &Connection,
    message: &StoredMessage,
    visible_at_ms: i64,
) -> Result<Receiver, VerbFailure> {
    let found = conn
        .prepare_cached(SELECT_INSTANCE)?
        .query_row([&message.instance_id], |row| {
            Ok(Receiver {
                key: row.get(0)?,
                startable: columns::flag(row, 1)?,
                ready: columns::flag(row, 2)?,
                locked: columns::flag(row, 3)?,
                orphaned: columns::flag(row, 4)?,
                new: false,
            })
        })
        .optional()?;
    if let Some(receiver) = found {
        return Ok(receiver);
    }
    let orphaned = message.is_queue_message && visible_at_ms == 0;
    conn.prepare_cached(INSERT_INSTANCE)?.execute(params![message.instance_id, orphaned])?;
    Ok(Receiver {
        key: conn.last_insert_rowid(),
        startable: false,
        ready: false,
        locked: false,
        orphaned,
        new: true,
    })
}

/// Computes the instance's oldest visible message again, unless the instance is locked.
pub(crate) fn refresh(scope: &mut Scope<'_>, key: i64) -> Result<(), VerbFailure> {
    let refreshed = run_refresh(scope, REFRESH, key);
    unless_damaged(key, refreshed).map(|_| ())
}

/// The same although a lock is in the row: it has expired. Returns whether there is a message.
pub(crate) fn expose(scope: &mut Scope<'_>, key: i64) -> Result<bool, VerbFailure> {
    run_refresh(scope, EXPOSE, key)
}

/// A damaged row of an instance cannot be changed. Its messages stay in the queue, and their sender gets no error.
fn unless_damaged<T>(key: i64, changed: Result<T, VerbFailure>) -> Result<Option<T>, VerbFailure> {
    match changed {
        Ok(changed) => Ok(Some(changed)),
        Err(VerbFailure::Refused(error)) => {
            tracing::error!(target: "everturn::providers::sqlite", instance_key = key, %error,
                "the row of an instance is damaged; its messages stay queued until the row is repaired");
            Ok(None)
        }
        Err(storage) => Err(storage),
    }
}

fn run_refresh(scope: &mut Scope<'_>, sql: &str, key: i64) -> Result<bool, VerbFailure> {
    let found: Option<(bool, bool)> =
        scope.conn.prepare_cached(sql)?.query_row([key], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let (ready, orphaned) = found.unwrap_or_default();
    scope.effects.turns |= ready;
    scope.effects.orphans |= orphaned;
    Ok(ready || orphaned)
}

/// Deletes the messages of instances that have only queue messages and no queued start. Returns whether there may be more.
pub(crate) fn delete_orphans(scope: &mut Scope<'_>) -> Result<bool, VerbFailure> {
    let conn = scope.conn;
    let keys: Vec<i64> = conn
        .prepare_cached(SELECT_ORPHANED)?
        .query_map([], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    for key in &keys {
        conn.prepare_cached(DELETE_VISIBLE)?.execute([key])?;
        if conn.prepare_cached(DELETE_EMPTY)?.execute([key])? == 0 {
            conn.prepare_cached(CLEAR_ORPHANED)?.execute([key])?;
        }
    }
    Ok(!keys.is_empty())
}
