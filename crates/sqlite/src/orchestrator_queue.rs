//! The orchestrator queue: messages as they are stored, and whether their instance is ready.

use std::ops::Range;

use everturn_provider::encoded::StoredMessage;
use everturn_provider::store::Receipt;
use rusqlite::{Connection, OptionalExtension, params};

use crate::columns;
use crate::garbage::new_instance_key;
use crate::operation::{Scope, VerbFailure};
use crate::payloads;
use crate::unknown_instance;

const SELECT_INSTANCE: &str = "SELECT instance_key, startable, ready_seq IS NOT NULL, lock_token IS NOT NULL, orphaned, \
     delayed_until_ms IS NOT NULL FROM everturn_instances WHERE instance_id = ?1";
const INSERT_INSTANCE: &str = concat!(
    "INSERT INTO everturn_instances (instance_key, instance_id, orphaned, unstarted_since_ms) VALUES (",
    new_instance_key!(),
    ", ?1, ?2, ?3)"
);
// Two looks, each into one range of the index.
const LATEST_VISIBLE: &str = "SELECT max(at_ms) FROM ( \
     SELECT max(arrived_at_ms) AS at_ms FROM everturn_orchestrator_queue WHERE instance_key = ?1 AND visible_at_ms = 0 \
     UNION ALL SELECT max(arrived_at_ms) FROM everturn_orchestrator_queue \
         WHERE instance_key = ?1 AND visible_at_ms > 0 AND visible_at_ms <= ?2)";
const INSERT_MESSAGE: &str = "INSERT INTO everturn_orchestrator_queue \
     (instance_key, kind, is_start, arrived_at_ms, visible_at_ms, timer_execution_id, work_item, notes, unawaited) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
const IS_UNAWAITED: &str = "SELECT EXISTS (SELECT 1 FROM everturn_instances WHERE instance_key = ?1 AND current_execution_id > ?2) \
     OR EXISTS (SELECT 1 FROM everturn_executions WHERE instance_key = ?1 AND execution_id = ?2 AND status <> 'Running')";
const NOTE_UNAWAITED: &str = "UPDATE everturn_orchestrator_queue SET unawaited = 1 WHERE instance_key = ?1 \
     AND visible_at_ms > 0 AND timer_execution_id >= ?2 AND timer_execution_id < ?3 AND unawaited = 0";
const MARK_READY: &str = "UPDATE everturn_instances SET ready_seq = ?2 WHERE instance_key = ?1";
/// Computes whether an instance is ready at `?2`, and whether its messages are orphans.
macro_rules! refresh_sql {
    ($condition:literal) => {
        concat!(
            "UPDATE everturn_instances SET \
             ready_seq = CASE WHEN delayed_until_ms IS NOT NULL AND missing_handler IS NULL THEN NULL \
                 WHEN startable = 1 OR EXISTS (SELECT 1 FROM everturn_orchestrator_queue AS q \
                     WHERE q.instance_key = ?1 AND q.is_start = 1 AND q.visible_at_ms <= ?2) \
                 THEN (SELECT min(q.seq) FROM everturn_orchestrator_queue AS q \
                     WHERE q.instance_key = ?1 AND q.visible_at_ms <= ?2) END, \
             orphaned = startable = 0 \
                 AND NOT EXISTS (SELECT 1 FROM everturn_orchestrator_queue AS q \
                     WHERE q.instance_key = ?1 AND q.is_start = 1) \
                 AND EXISTS (SELECT 1 FROM everturn_orchestrator_queue AS q \
                     WHERE q.instance_key = ?1 AND q.visible_at_ms <= ?2) \
                 AND NOT EXISTS (SELECT 1 FROM everturn_orchestrator_queue AS q \
                     WHERE q.instance_key = ?1 AND q.visible_at_ms <= ?2 AND q.kind <> 'ExternalRaisedPersistent') \
             WHERE instance_key = ?1",
            $condition,
            " RETURNING ready_seq, orphaned"
        )
    };
}
// If an instance is ready although a lock is in its row, the lock has expired.
pub(crate) const REFRESH: &str = refresh_sql!(" AND (lock_token IS NULL OR ready_seq IS NOT NULL)");
const EXPOSE: &str = refresh_sql!("");

/// What decides whether a new message makes its instance ready.
pub(crate) struct Receiver {
    pub(crate) key: i64,
    /// Its messages need no start among them: it exists, or its history has a start.
    pub(crate) startable: bool,
    ready: bool,
    locked: bool,
    orphaned: bool,
    delayed: bool,
    /// The message is its first.
    new: bool,
}

impl Receiver {
    /// Whether none of its messages was made visible. One that is due and not yet made visible has arrived before it was due,
    /// so before now.
    fn has_no_visible_message(&self) -> bool {
        self.startable && !self.ready && !self.locked && !self.delayed
    }
}

/// Puts a message into the queue, visible now or from `visible_at_ms` on. A timer arrives at its fire time, or when it becomes
/// visible if that is before; any other message now, but not before one of the instance's messages that is visible. A
/// cancellation is kept only if its instance exists or is about to start.
pub(crate) fn insert(
    scope: &mut Scope<'_>,
    message: &StoredMessage,
    visible_at_ms: Option<i64>,
) -> Result<Receipt, VerbFailure> {
    let visible_at_ms = visible_at_ms.filter(|at_ms| *at_ms > scope.now.wall_ms).unwrap_or(0);
    let found = find(scope.conn, &message.instance_id)?;
    let receipt = unknown_instance::receipt_of(scope.conn, found.as_ref(), message)?;
    if receipt == Receipt::Dropped {
        return Ok(receipt);
    }
    let arrived_at_ms = match (&message.timer, &found) {
        (Some(timer), _) => visible_at_ms.max(scope.now.wall_ms).min(timer.fire_at_ms),
        (None, None) => scope.now.wall_ms,
        (None, Some(receiver)) if receiver.has_no_visible_message() => scope.now.wall_ms,
        (None, Some(receiver)) => {
            latest_visible(scope, receiver.key)?.map_or(scope.now.wall_ms, |at| at.max(scope.now.wall_ms))
        }
    };
    let receiver = match found {
        Some(receiver) => receiver,
        None => create(scope.conn, message, arrived_at_ms, visible_at_ms)?,
    };
    let unawaited = match message.timer {
        Some(timer) if !receiver.new => scope
            .conn
            .prepare_cached(IS_UNAWAITED)?
            .query_row([receiver.key, timer.execution_id], |row| row.get(0))?,
        _ => false,
    };
    scope.conn.prepare_cached(INSERT_MESSAGE)?.execute(params![
        receiver.key,
        message.kind,
        message.is_start,
        arrived_at_ms,
        visible_at_ms,
        message.timer.map(|timer| timer.execution_id),
        payloads::inline(&message.work_item),
        message.notes,
        unawaited
    ])?;
    let seq = scope.conn.last_insert_rowid();
    payloads::insert_of_message(scope.conn, seq, &message.work_item)?;
    if !receiver.startable && !receiver.new && !message.is_start {
        let noted = unknown_instance::note_unstarted(scope.conn, receiver.key, arrived_at_ms);
        queued_although_damaged(receiver.key, noted)?;
    }
    if visible_at_ms > 0 && !message.is_start {
        return Ok(receipt);
    }
    if receiver.delayed {
        refresh(scope, receiver.key)?;
    } else if receiver.startable || (receiver.new && message.is_start) {
        if !receiver.locked && !receiver.ready && visible_at_ms == 0 {
            let marked = scope.conn.prepare_cached(MARK_READY)?.execute(params![receiver.key, seq]);
            scope.effects.new_turns |=
                queued_although_damaged(receiver.key, marked.map_err(VerbFailure::from))?.is_some();
        }
        // A ready instance may have been passed over because a step of it was under way.
        scope.effects.new_turns |= receiver.ready && !receiver.locked;
    } else if message.is_queue_message && receiver.orphaned {
        // The next fetch deletes orphans, even if it finds no instance.
        scope.effects.orphans = true;
    } else {
        refresh(scope, receiver.key)?;
    }
    Ok(receipt)
}

/// Nothing waits any more for the timers of these executions.
pub(crate) fn note_unawaited(conn: &Connection, key: i64, executions: Range<i64>) -> Result<(), VerbFailure> {
    conn.prepare_cached(NOTE_UNAWAITED)?.execute([key, executions.start, executions.end])?;
    Ok(())
}

/// When the latest of an instance's visible messages arrived.
fn latest_visible(scope: &Scope<'_>, key: i64) -> Result<Option<i64>, VerbFailure> {
    let mut select = scope.conn.prepare_cached(LATEST_VISIBLE)?;
    Ok(select.query_row([key, scope.now.wall_ms], |row| columns::integer(row, 0))?)
}

fn find(conn: &Connection, instance_id: &str) -> Result<Option<Receiver>, VerbFailure> {
    Ok(conn
        .prepare_cached(SELECT_INSTANCE)?
        .query_row([instance_id], |row| {
            Ok(Receiver {
                key: row.get(0)?,
                startable: columns::flag(row, 1)?,
                ready: columns::flag(row, 2)?,
                locked: columns::flag(row, 3)?,
                orphaned: columns::flag(row, 4)?,
                delayed: columns::flag(row, 5)?,
                new: false,
            })
        })
        .optional()?)
}

fn create(
    conn: &Connection,
    message: &StoredMessage,
    arrived_at_ms: i64,
    visible_at_ms: i64,
) -> Result<Receiver, VerbFailure> {
    let orphaned = message.is_queue_message && visible_at_ms == 0;
    let unstarted_since_ms = (!message.is_start).then_some(arrived_at_ms);
    let mut insert = conn.prepare_cached(INSERT_INSTANCE)?;
    insert.execute(params![message.instance_id, orphaned, unstarted_since_ms])?;
    Ok(Receiver {
        key: conn.last_insert_rowid(),
        startable: false,
        ready: false,
        locked: false,
        orphaned,
        delayed: false,
        new: true,
    })
}

/// Computes the instance's oldest visible message again, unless the instance is locked.
pub(crate) fn refresh(scope: &mut Scope<'_>, key: i64) -> Result<(), VerbFailure> {
    let refreshed = run_refresh(scope, REFRESH, key);
    queued_although_damaged(key, refreshed).map(|_| ())
}

/// The same although a lock is in the row: it has expired. Returns whether there is a message.
pub(crate) fn expose(scope: &mut Scope<'_>, key: i64) -> Result<bool, VerbFailure> {
    run_refresh(scope, EXPOSE, key)
}

/// A damaged row of an instance cannot be changed. Its messages stay in the queue, and their sender gets no error.
fn queued_although_damaged<T>(key: i64, changed: Result<T, VerbFailure>) -> Result<Option<T>, VerbFailure> {
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
    let found: Option<(Option<i64>, bool)> = scope
        .conn
        .prepare_cached(sql)?
        .query_row([key, scope.now.wall_ms], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let (ready_seq, orphaned) = found.unwrap_or_default();
    scope.effects.turn_is_ready(ready_seq);
    scope.effects.orphans |= orphaned;
    Ok(ready_seq.is_some() || orphaned)
}
