//! Sessions: which worker owns which, and until when.

use everturn_provider::encoded::{length_ms, stored_ms};
use std::time::Duration;

use rusqlite::{OptionalExtension, params};

use crate::columns;
use crate::operation::{Scope, VerbFailure};

const NOTE_ACTIVITY: &str =
    "UPDATE everturn_sessions SET active_at_ms = ?2 WHERE session_id = ?1 AND lease_until_ms > ?2";
const SELECT_SESSION: &str = "SELECT owner_id, lease_until_ms FROM everturn_sessions WHERE session_id = ?1";
const LEASE: &str = "INSERT INTO everturn_sessions (session_id, owner_id, lease_until_ms, lease_ms, active_at_ms, lock_owner) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (session_id) DO UPDATE SET owner_id = ?2, lease_until_ms = ?3, \
     lease_ms = ?4, active_at_ms = ?5, lock_owner = ?6";
const OTHER_HOLDER: &str = "SELECT EXISTS (SELECT 1 FROM everturn_worker_queue WHERE session_id = ?1 AND lock_token IS NOT NULL AND ready = 0)";
const RELEASE: &str = "DELETE FROM everturn_sessions WHERE session_id = ?1 AND owner_id = ?2";

/// Records that the activity's session was active just now, if its lease has not expired.
pub(crate) fn note_activity(scope: &Scope<'_>, session: Option<&str>) -> Result<(), VerbFailure> {
    if let Some(session) = session {
        scope.conn.prepare_cached(NOTE_ACTIVITY)?.execute(params![session, scope.now.wall_ms])?;
    }
    Ok(())
}

/// A session that a fetch leased for its owner.
#[derive(Debug, Clone)]
pub(crate) struct SessionLease {
    session_id: String,
    owner_id: String,
    /// Whether the owner did not have the session before.
    is_new: bool,
}

/// Leases a session that is free or already the owner's.
pub(crate) fn lease(
    scope: &Scope<'_>,
    session_id: &str,
    owner_id: &str,
    length: Duration,
) -> Result<SessionLease, VerbFailure> {
    let owned: Option<(Option<String>, Option<i64>)> = scope
        .conn
        .prepare_cached(SELECT_SESSION)?
        .query_row([session_id], |row| Ok((columns::text(row, 0)?, columns::integer(row, 1)?)))
        .optional()?;
    let is_new = !owned.is_some_and(|(owner, until_ms)| {
        owner.as_deref() == Some(owner_id) && until_ms > Some(scope.now.wall_ms)
    });
    scope.conn.prepare_cached(LEASE)?.execute(params![
        session_id,
        owner_id,
        scope.now.wall_after(length),
        stored_ms(length_ms(length)),
        scope.now.wall_ms,
        scope.owner
    ])?;
    Ok(SessionLease { session_id: session_id.to_owned(), owner_id: owner_id.to_owned(), is_new })
}

/// Undoes a lease whose activity was returned unread, unless the owner works on another activity of the session.
pub(crate) fn undo_lease(scope: &Scope<'_>, lease: &SessionLease) -> Result<(), VerbFailure> {
    if !lease.is_new {
        return Ok(());
    }
    let in_use: bool =
        scope.conn.prepare_cached(OTHER_HOLDER)?.query_row([&lease.session_id], |row| row.get(0))?;
    if !in_use {
        scope.conn.prepare_cached(RELEASE)?.execute([&lease.session_id, &lease.owner_id])?;
    }
    Ok(())
}
