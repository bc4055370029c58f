//! Timers that fire: messages and activities that become visible, and delays of instances that end. A fetch also shows what is
//! due of the instance that it takes (`fetch_turns.rs`).

use rusqlite::OptionalExtension;

use crate::columns;
use crate::due_rows::{due_rows, wake_row};
use crate::operation::{Scope, VerbFailure};
use crate::orchestrator_queue;
use crate::unreadable::RowPlace;

// The lists of rows are read from an index alone: rows that cannot be read do not hide the others.
const DUE_MESSAGES: &str = "SELECT seq FROM everturn_orchestrator_queue \
     WHERE visible_at_ms > 0 AND visible_at_ms <= ?1 ORDER BY visible_at_ms LIMIT ?2";
pub(crate) const SHOW_MESSAGE: &str =
    "UPDATE everturn_orchestrator_queue SET visible_at_ms = 0 WHERE seq = ?1";
const SHOW_DUE_MESSAGE: &str =
    "UPDATE everturn_orchestrator_queue SET visible_at_ms = 0 WHERE seq = ?1 RETURNING instance_key";
const DUE_ACTIVITIES: &str = "SELECT seq FROM everturn_worker_queue \
     WHERE visible_at_ms > 0 AND visible_at_ms <= ?1 ORDER BY visible_at_ms LIMIT ?2";
const SHOW_ACTIVITY: &str =
    "UPDATE everturn_worker_queue SET visible_at_ms = 0, missing_handler = NULL, ready = 1 WHERE seq = ?1";
const DUE_INSTANCES: &str = "SELECT instance_key FROM everturn_instances \
     WHERE delayed_until_ms IS NOT NULL AND delayed_until_ms <= ?1 ORDER BY delayed_until_ms LIMIT ?2";
const END_DELAY: &str = "UPDATE everturn_instances SET delayed_until_ms = NULL, missing_handler = NULL, missing_version = NULL \
     WHERE instance_key = ?1";

/// Makes rows visible that have become due, and ends the delays of instances. Returns whether there is more.
pub(crate) fn show(scope: &mut Scope<'_>) -> Result<bool, VerbFailure> {
    let mut more = false;
    for seq in due_rows(scope, DUE_MESSAGES, &mut more)? {
        wake_row(scope, RowPlace::Message(seq), |scope| {
            let mut show = scope.conn.prepare_cached(SHOW_DUE_MESSAGE)?;
            let key = show.query_row([seq], |row| columns::integer(row, 0)).optional()?.flatten();
            key.map_or(Ok(()), |key| orchestrator_queue::refresh(scope, key))
        })?;
    }
    for seq in due_rows(scope, DUE_ACTIVITIES, &mut more)? {
        wake_row(scope, RowPlace::Activity(seq), |scope| {
            scope.conn.prepare_cached(SHOW_ACTIVITY)?.execute([seq])?;
            scope.effects.work = true;
            Ok(())
        })?;
    }
    for key in due_rows(scope, DUE_INSTANCES, &mut more)? {
        wake_row(scope, RowPlace::Instance(key), |scope| {
            scope.conn.prepare_cached(END_DELAY)?.execute([key])?;
            orchestrator_queue::refresh(scope, key)
        })?;
    }
    Ok(more)
}
