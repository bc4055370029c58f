//! Releasing locks held by providers that no longer run. The attempts stay counted.

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, params};

use crate::columns;
use crate::locks;
use crate::operation::{BatchOrder, Scope, Verb, VerbFailure};
use crate::owners::{OwnerFile, OwnerId};
use crate::unreadable::{RowPlace, RowReads, is_unreadable};
use crate::{abandon_turn, settle_work};

// The row of an expired lock is ready already.
const LOCKED_INSTANCES: LockedRows = LockedRows {
    // From an index alone: rows that cannot be read do not hide the others.
    keys: "SELECT instance_key FROM everturn_instances \
     WHERE lock_token IS NOT NULL AND ready_seq IS NULL AND locked_until_ms >= 0",
    row: "SELECT lock_token FROM everturn_instances WHERE instance_key = ?1 AND (?2 IS NULL OR lock_owner = ?2)",
    place: RowPlace::Instance,
};
const LOCKED_ACTIVITIES: LockedRows = LockedRows {
    keys: "SELECT seq FROM everturn_worker_queue \
     WHERE lock_token IS NOT NULL AND ready = 0 AND locked_until_ms >= 0",
    row: "SELECT lock_token FROM everturn_worker_queue WHERE seq = ?1 AND (?2 IS NULL OR lock_owner = ?2)",
    place: RowPlace::Activity,
};
const LEASED_SESSIONS: &str = "SELECT session_id, lock_owner, lease_until_ms FROM everturn_sessions WHERE ?1 IS NULL OR lock_owner = ?1";
const RELEASE_SESSION: &str =
    "DELETE FROM everturn_sessions WHERE session_id IS ?1 AND lock_owner IS ?2 AND lease_until_ms IS ?3";

/// Locks and leases as one look found them.
#[derive(Debug, Default)]
pub(crate) struct StaleLocks {
    /// Instances: key and token.
    instances: Vec<(i64, Option<String>)>,
    /// Activities: row and token.
    activities: Vec<(i64, Option<String>)>,
    /// Sessions: id, owner and end of the lease.
    sessions: Vec<(Value, Value, Value)>,
}

impl StaleLocks {
    /// All locks that this owner holds; all locks if none is named. Not inside a transaction: locks whose rows cannot be
    /// read are left out.
    pub(crate) fn find(conn: &Connection, owner: Option<OwnerId>) -> rusqlite::Result<Self> {
        Self::find_with(conn, owner, None)
    }

    fn find_with(
        conn: &Connection,
        owner: Option<OwnerId>,
        reads: Option<RowReads<'_>>,
    ) -> rusqlite::Result<Self> {
        Ok(Self {
            instances: LOCKED_INSTANCES.of(conn, owner, reads)?,
            activities: LOCKED_ACTIVITIES.of(conn, owner, reads)?,
            sessions: leased_sessions(conn, owner, reads)?,
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.instances.is_empty() && self.activities.is_empty() && self.sessions.is_empty()
    }

    /// Releases those that no other holder has taken since they were found.
    pub(crate) fn release(&self, scope: &mut Scope<'_>) -> Result<(), VerbFailure> {
        for (key, token) in &self.instances {
            release_row(scope, RowPlace::Instance(*key), |scope| {
                let is_same = locks::instance_lock(scope, *key)?.is_some_and(|lock| lock.token == *token);
                if is_same { abandon_turn::release(scope, *key, None, false) } else { Ok(()) }
            })?;
        }
        for (seq, token) in &self.activities {
            release_row(scope, RowPlace::Activity(*seq), |scope| {
                let is_same = locks::work_lock(scope, *seq)?.is_some_and(|(lock, _)| lock.token == *token);
                if is_same { settle_work::release(scope, *seq, 0, None, false) } else { Ok(()) }
            })?;
        }
        if !scope.rows.passes_over(RowPlace::Leases) {
            scope.rows.at(RowPlace::Leases);
            for (session_id, owner, until_ms) in &self.sessions {
                scope.conn.prepare_cached(RELEASE_SESSION)?.execute(params![session_id, owner, until_ms])?;
            }
            scope.rows.done();
        }
        // A released session may have activities that are ready.
        scope.effects.work |= !self.sessions.is_empty();
        Ok(())
    }
}

/// The sessions that this owner has leased; none if they cannot be read. Such a lease ends when it expires.
fn leased_sessions(
    conn: &Connection,
    owner: Option<OwnerId>,
    reads: Option<RowReads<'_>>,
) -> rusqlite::Result<Vec<(Value, Value, Value)>> {
    if reads.is_some_and(|reads| reads.passes_over(RowPlace::Leases)) {
        return Ok(Vec::new());
    }
    reads.iter().for_each(|reads| reads.at(RowPlace::Leases));
    let mut select = conn.prepare_cached(LEASED_SESSIONS)?;
    let found = select.query_map([owner], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?.collect();
    match found {
        Err(error) if reads.is_none() && is_unreadable(&error) => {
            tracing::error!(target: "everturn::providers::sqlite", %error,
                "the sessions of processes that no longer run cannot be read; their leases end when they expire");
            Ok(Vec::new())
        }
        Err(error) => Err(error),
        Ok(found) => {
            reads.iter().for_each(RowReads::done);
            Ok(found)
        }
    }
}

/// How locked rows are found.
struct LockedRows {
    keys: &'static str,
    row: &'static str,
    place: fn(i64) -> RowPlace,
}

impl LockedRows {
    /// The rows that this owner has locked, with their tokens.
    fn of(
        &self,
        conn: &Connection,
        owner: Option<OwnerId>,
        reads: Option<RowReads<'_>>,
    ) -> rusqlite::Result<Vec<(i64, Option<String>)>> {
        let mut keys = conn.prepare_cached(self.keys)?;
        let keys = keys.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<Vec<i64>>>()?;
        let mut found = Vec::new();
        for key in keys {
            if reads.is_some_and(|reads| reads.passes_over((self.place)(key))) {
                continue;
            }
            reads.iter().for_each(|reads| reads.at((self.place)(key)));
            let mut select = conn.prepare_cached(self.row)?;
            match select.query_row(params![key, owner], |row| columns::text(row, 0)).optional() {
                Ok(token) => found.extend(token.map(|token| (key, token))),
                Err(error) if reads.is_none() && is_unreadable(&error) => {
                    tracing::error!(target: "everturn::providers::sqlite", row = ?(self.place)(key), %error,
                        "the lock of a process that no longer runs cannot be read; it ends when it expires");
                }
                Err(error) => return Err(error),
            }
        }
        reads.iter().for_each(RowReads::done);
        Ok(found)
    }
}

/// Releases one row completely or not at all. A row that is damaged or cannot be read keeps its lock and does not prevent the
/// others.
fn release_row(
    scope: &mut Scope<'_>,
    place: RowPlace,
    release: impl FnOnce(&mut Scope<'_>) -> Result<(), VerbFailure>,
) -> Result<(), VerbFailure> {
    if let Some(error) = scope.change_row(place, release)? {
        tracing::error!(target: "everturn::providers::sqlite", %error,
            "a damaged row keeps the lock of a process that no longer runs; repair or delete the row");
    }
    Ok(())
}

/// Releases locks that were found when the file was opened by one process alone: their holders no longer run.
pub(crate) struct ReleaseFound(pub(crate) StaleLocks);

impl Verb for ReleaseFound {
    type Answer = ();
    const NAME: &'static str = "release_stale_locks";
    const ORDER: BatchOrder = BatchOrder::LockHolder;

    fn run(&self, scope: &mut Scope<'_>) -> Result<(), VerbFailure> {
        self.0.release(scope)
    }
}

/// Releases all locks of an owner that no longer runs, and then removes its file.
pub(crate) struct ReleaseOwner(pub(crate) OwnerFile);

impl Verb for ReleaseOwner {
    type Answer = ();
    const NAME: &'static str = "release_stale_locks";
    const ORDER: BatchOrder = BatchOrder::LockHolder;

    fn run(&self, scope: &mut Scope<'_>) -> Result<(), VerbFailure> {
        let found = StaleLocks::find_with(scope.conn, Some(self.0.id), Some(scope.rows))?;
        if !found.is_empty() {
            let (turns, activities, sessions) =
                (found.instances.len(), found.activities.len(), found.sessions.len());
            tracing::info!(target: "everturn::providers::sqlite", turns, activities, sessions,
                "a process that held locks no longer runs; its work is free for others");
        }
        found.release(scope)
    }

    fn committed(&self, _answer: &Self::Answer) {
        self.0.remove();
    }
}
