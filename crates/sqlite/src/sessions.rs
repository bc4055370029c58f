//! Sessions: which worker owns which, and until when.

use std::collections::BTreeSet;
use std::time::Duration;

use rusqlite::{OptionalExtension, params};

use crate::columns;
use crate::moment::{Moment, length_ms, stored_ms};
use crate::operation::{Failure, Order, Scope, Verb};

const NOTE_ACTIVITY: &str =
    "UPDATE sessions SET active_at_ms = ?2 WHERE session_id = ?1 AND lease_until_ms > ?2";
const SELECT_SESSION: &str =
    "SELECT owner_id, lease_until_ms, active_at_ms FROM sessions WHERE session_id = ?1";
const CLAIM: &str = "INSERT INTO sessions (session_id, owner_id, lease_until_ms, lease_ms, active_at_ms) \
     VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (session_id) DO UPDATE SET owner_id = ?2, lease_until_ms = ?3, \
     lease_ms = ?4, active_at_ms = ?5";
const OTHER_HOLDER: &str = "SELECT EXISTS (SELECT 1 FROM worker_queue WHERE session_id = ?1 AND lock_token IS NOT NULL AND ready = 0)";
const RELEASE: &str = "DELETE FROM sessions WHERE session_id = ?1 AND owner_id = ?2";
const RENEW: &str = "UPDATE sessions SET lease_until_ms = ?2, lease_ms = ?5 \
     WHERE owner_id = ?1 AND lease_until_ms > ?3 AND active_at_ms > ?4";
const SWEEP: &str = "DELETE FROM sessions WHERE (lease_until_ms <= ?1 OR typeof(lease_until_ms) <> 'integer') \
     AND NOT EXISTS (SELECT 1 FROM worker_queue WHERE worker_queue.session_id = sessions.session_id)";

/// The session of this activity was active just now, if its lease is alive.
pub(crate) fn note_activity(scope: &Scope<'_>, session: Option<&str>) -> Result<(), Failure> {
    if let Some(session) = session {
        scope.conn.prepare_cached(NOTE_ACTIVITY)?.execute(params![session, scope.now.wall_ms])?;
    }
    Ok(())
}

/// A session that a fetch took for its owner.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    pub(crate) session_id: String,
    pub(crate) owner_id: String,
    /// Whether it belonged to somebody else, or to nobody, before.
    pub(crate) is_new: bool,
}

/// Takes a session that is free or already the owner's.
pub(crate) fn claim(
    scope: &Scope<'_>,
    session_id: &str,
    owner_id: &str,
    lease: Duration,
) -> Result<Claim, Failure> {
    let owned: Option<(Option<String>, Option<i64>)> = scope
        .conn
        .prepare_cached(SELECT_SESSION)?
        .query_row([session_id], |row| Ok((columns::text(row, 0)?, columns::integer(row, 1)?)))
        .optional()?;
    let is_new = !owned.is_some_and(|(owner, until_ms)| {
        owner.as_deref() == Some(owner_id) && until_ms > Some(scope.now.wall_ms)
    });
    scope.conn.prepare_cached(CLAIM)?.execute(params![
        session_id,
        owner_id,
        scope.now.wall_after(lease),
        stored_ms(length_ms(lease)),
        scope.now.wall_ms
    ])?;
    Ok(Claim { session_id: session_id.to_owned(), owner_id: owner_id.to_owned(), is_new })
}

/// Undoes a claim whose activity was handed back, unless the owner works on another activity of the session.
pub(crate) fn undo(scope: &Scope<'_>, claim: &Claim) -> Result<(), Failure> {
    if !claim.is_new {
        return Ok(());
    }
    let in_use: bool =
        scope.conn.prepare_cached(OTHER_HOLDER)?.query_row([&claim.session_id], |row| row.get(0))?;
    if !in_use {
        scope.conn.prepare_cached(RELEASE)?.execute([&claim.session_id, &claim.owner_id])?;
    }
    Ok(())
}

/// Extends live leases.
pub(crate) struct RenewSessions {
    pub(crate) owner_ids: BTreeSet<String>,
    pub(crate) extend_for: Duration,
    pub(crate) idle_timeout: Duration,
    pub(crate) called: Moment,
}

impl Verb for RenewSessions {
    type Answer = usize;
    const NAME: &'static str = "renew_session_lock";
    const ORDER: Order = Order::Renewal;

    fn run(&self, scope: &mut Scope<'_>) -> Result<usize, Failure> {
        let mut renew = scope.conn.prepare_cached(RENEW)?;
        let until_ms = scope.now.wall_after(self.extend_for);
        let active_since_ms = self.called.wall_ms.saturating_sub(stored_ms(length_ms(self.idle_timeout)));
        let lease_ms = stored_ms(length_ms(self.extend_for));
        let mut renewed = 0;
        for owner_id in &self.owner_ids {
            renewed +=
                renew.execute(params![owner_id, until_ms, self.called.wall_ms, active_since_ms, lease_ms])?;
        }
        Ok(renewed)
    }
}

/// Removes expired sessions without queued activities.
pub(crate) struct CleanupSessions;

impl Verb for CleanupSessions {
    type Answer = usize;
    const NAME: &'static str = "cleanup_orphaned_sessions";
    const ORDER: Order = Order::Newcomer;

    fn run(&self, scope: &mut Scope<'_>) -> Result<usize, Failure> {
        Ok(scope.conn.prepare_cached(SWEEP)?.execute([scope.now.wall_ms])?)
    }
}
