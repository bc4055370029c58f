//! Locks and leases that expire.

use everturn_provider::encoded::unsigned;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use rusqlite::{OptionalExtension, Row, params};

use crate::columns;
use crate::due_rows::{due_rows, wake_row};
use crate::locks::{self, StoredLock, row_of};
use crate::operation::{Scope, VerbFailure};
use crate::orchestrator_queue;
use crate::unreadable::RowPlace;

/// How many locks that end too late are watched at most.
const FUTURE_MAX: i64 = 64;

// The lists of rows are read from an index alone: rows that cannot be read do not hide the others.
const EXPIRED_INSTANCES: &str = "SELECT instance_key FROM everturn_instances \
     WHERE lock_token IS NOT NULL AND ready_seq IS NULL AND locked_until_ms <= ?1 LIMIT ?2";
const EXPIRED_ACTIVITIES: &str = "SELECT seq FROM everturn_worker_queue \
     WHERE lock_token IS NOT NULL AND ready = 0 AND locked_until_ms <= ?1 LIMIT ?2";
const EXTEND_INSTANCE: &str = "UPDATE everturn_instances SET locked_until_ms = ?2 WHERE instance_key = ?1";
const EXTEND_ACTIVITY: &str = "UPDATE everturn_worker_queue SET locked_until_ms = ?2 WHERE seq = ?1";
const EXPOSE_ACTIVITY: &str = "UPDATE everturn_worker_queue SET ready = 1 WHERE seq = ?1";
const HOLDS_ACTIVITY: &str =
    "SELECT 1 FROM everturn_worker_queue WHERE seq = ?1 AND lock_token = ?2 AND ready = 0";
const HOLDS_INSTANCE: &str =
    "SELECT 1 FROM everturn_instances WHERE instance_key = ?1 AND lock_token = ?2 AND ready_seq IS NULL";
const CLEAR_LOCK: &str = "UPDATE everturn_instances SET lock_token = NULL, locked_until_ms = NULL, lock_ms = NULL \
     WHERE instance_key = ?1";
const FUTURE_INSTANCES: FutureRows = FutureRows {
    all: "SELECT lock_token, locked_until_ms, lock_ms FROM everturn_instances \
     WHERE lock_token IS NOT NULL AND ready_seq IS NULL AND locked_until_ms > ?1 ORDER BY locked_until_ms DESC LIMIT ?2",
    one_by_one: Some(FutureRow {
        keys: "SELECT instance_key FROM everturn_instances \
     WHERE lock_token IS NOT NULL AND ready_seq IS NULL AND locked_until_ms > ?1 ORDER BY locked_until_ms DESC LIMIT ?2",
        row: "SELECT lock_token, locked_until_ms, lock_ms FROM everturn_instances WHERE instance_key = ?1",
        place: RowPlace::Instance,
    }),
};
const FUTURE_ACTIVITIES: FutureRows = FutureRows {
    all: "SELECT lock_token, locked_until_ms, lock_ms FROM everturn_worker_queue \
     WHERE lock_token IS NOT NULL AND ready = 0 AND locked_until_ms > ?1 ORDER BY locked_until_ms DESC LIMIT ?2",
    one_by_one: Some(FutureRow {
        keys: "SELECT seq FROM everturn_worker_queue \
     WHERE lock_token IS NOT NULL AND ready = 0 AND locked_until_ms > ?1 ORDER BY locked_until_ms DESC LIMIT ?2",
        row: "SELECT lock_token, locked_until_ms, lock_ms FROM everturn_worker_queue WHERE seq = ?1",
        place: RowPlace::Activity,
    }),
};
const FUTURE_LEASES: FutureRows = FutureRows {
    all: "SELECT session_id, lease_until_ms, lease_ms FROM everturn_sessions \
     WHERE lease_until_ms > ?1 ORDER BY lease_until_ms DESC LIMIT ?2",
    one_by_one: None,
};
const END_LEASE: &str = "UPDATE everturn_sessions SET lease_until_ms = ?2 WHERE session_id = ?1";
const CAP_INSTANCE: &str =
    "UPDATE everturn_instances SET locked_until_ms = min(locked_until_ms, ?2) WHERE instance_key = ?1";
const CAP_ACTIVITY: &str =
    "UPDATE everturn_worker_queue SET locked_until_ms = min(locked_until_ms, ?2) WHERE seq = ?1";
/// Makes rows ready whose lock has expired, and ends leases. Returns whether there is more. Locks that were taken or renewed
/// in this batch are `fresh`: their new end counts only after the commit.
pub(crate) fn expire(
    scope: &mut Scope<'_>,
    future: &mut FutureLocks,
    fresh: &BTreeSet<String>,
) -> Result<bool, VerbFailure> {
    let more = expire_by_wall(scope)?;
    let ended = scope.own_locks.ended(scope.now).filter(|token| !fresh.contains(*token));
    let ended: Vec<String> = ended.map(str::to_owned).collect();
    for token in ended {
        expose(scope, &token)?;
        // If its row cannot be read now, the wall clock ends it later.
        scope.effects.ended.push(token);
    }
    for token in future.locks.ended(scope, &[FUTURE_INSTANCES, FUTURE_ACTIVITIES])? {
        expose(scope, &token)?;
    }
    if !scope.rows.passes_over(RowPlace::Leases) {
        scope.rows.at(RowPlace::Leases);
        for session_id in future.leases.ended(scope, &[FUTURE_LEASES])? {
            scope.conn.prepare_cached(END_LEASE)?.execute(params![session_id, scope.now.wall_ms])?;
        }
        scope.rows.done();
    }
    // An expired lease may have freed a session with queued activities.
    scope.effects.work = true;
    Ok(more)
}

/// Expires locks by the wall clock. A lock of this process is judged by its monotonic clock: if that has not reached the
/// end, the wall clock jumped, and the stored end moves with it. Returns whether there are more.
fn expire_by_wall(scope: &mut Scope<'_>) -> Result<bool, VerbFailure> {
    let mut more = false;
    let instances = due_rows(scope, EXPIRED_INSTANCES, &mut more)?;
    let activities = due_rows(scope, EXPIRED_ACTIVITIES, &mut more)?;
    for key in instances {
        wake_row(scope, RowPlace::Instance(key), |scope| {
            match left(scope, locks::instance_lock(scope, key)?) {
                Some(until_ms) => {
                    scope.conn.prepare_cached(EXTEND_INSTANCE)?.execute([key, until_ms])?;
                    Ok(())
                }
                None => expose_instance(scope, key),
            }
        })?;
    }
    for seq in activities {
        let lock =
            |scope: &Scope<'_>| Ok::<_, VerbFailure>(locks::work_lock(scope, seq)?.map(|(lock, _)| lock));
        wake_row(scope, RowPlace::Activity(seq), |scope| match left(scope, lock(scope)?) {
            Some(until_ms) => {
                scope.conn.prepare_cached(EXTEND_ACTIVITY)?.execute([seq, until_ms])?;
                Ok(())
            }
            None => expose_activity(scope, seq),
        })?;
    }
    Ok(more)
}

/// The new end of a lock that has expired by the wall clock, if this process holds it and it has not.
fn left(scope: &Scope<'_>, lock: Option<StoredLock>) -> Option<i64> {
    let token = lock?.token?;
    scope.own_locks.left(&token, scope.now).map(|left| scope.now.wall_after(left))
}

/// Expires the lock with this token by both clocks, if it is still in its row: it has ended by the monotonic clock.
fn expose(scope: &mut Scope<'_>, token: &str) -> Result<(), VerbFailure> {
    let Some(row) = row_of(token) else { return Ok(()) };
    wake_row(scope, RowPlace::Activity(row), |scope| {
        if scope.conn.prepare_cached(HOLDS_ACTIVITY)?.exists(params![row, token])? {
            scope.conn.prepare_cached(CAP_ACTIVITY)?.execute([row, scope.now.wall_ms])?;
            expose_activity(scope, row)?;
        }
        Ok(())
    })?;
    wake_row(scope, RowPlace::Instance(row), |scope| {
        if scope.conn.prepare_cached(HOLDS_INSTANCE)?.exists(params![row, token])? {
            scope.conn.prepare_cached(CAP_INSTANCE)?.execute([row, scope.now.wall_ms])?;
            expose_instance(scope, row)?;
        }
        Ok(())
    })
}

/// Makes an activity ready. Its expired lock stays in the row until another worker takes over, so that a call of the holder
/// that came in time still succeeds.
fn expose_activity(scope: &mut Scope<'_>, seq: i64) -> Result<(), VerbFailure> {
    scope.conn.prepare_cached(EXPOSE_ACTIVITY)?.execute([seq])?;
    scope.effects.work = true;
    Ok(())
}

/// The same for an instance; a lock without messages is cleared at once.
fn expose_instance(scope: &mut Scope<'_>, key: i64) -> Result<(), VerbFailure> {
    if !orchestrator_queue::expose(scope, key)? {
        scope.conn.prepare_cached(CLEAR_LOCK)?.execute([key])?;
    }
    Ok(())
}

/// Locks and leases that were taken later than now: the wall clock was set back.
#[derive(Debug, Default)]
pub(crate) struct FutureLocks {
    locks: FutureEnds,
    leases: FutureEnds,
}

impl FutureLocks {
    /// When the next of them ends, by the monotonic clock.
    pub(crate) fn next_end(&self) -> Option<Duration> {
        [self.locks.next_end(), self.leases.next_end()].into_iter().flatten().min()
    }
}

/// How rows with a lock or a lease that has not expired are read.
struct FutureRows {
    all: &'static str,
    one_by_one: Option<FutureRow>,
}

/// How one of them is read, so that others can be read if it cannot.
struct FutureRow {
    keys: &'static str,
    row: &'static str,
    place: fn(i64) -> RowPlace,
}

/// The token of a lock, or the session of a lease; when it ends, and how long it is.
struct StoredEnd {
    token: String,
    until_ms: Option<i64>,
    lock_ms: Option<i64>,
}

impl StoredEnd {
    fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        let token = columns::text(row, 0)?.unwrap_or_default();
        Ok(Self { token, until_ms: columns::integer(row, 1)?, lock_ms: columns::integer(row, 2)? })
    }
}

impl FutureRows {
    fn read(&self, scope: &Scope<'_>) -> Result<Vec<StoredEnd>, VerbFailure> {
        let wanted = [scope.now.wall_ms, FUTURE_MAX];
        let Some(one) = self.one_by_one.as_ref().filter(|_| scope.rows.one_by_one) else {
            let mut select = scope.conn.prepare_cached(self.all)?;
            return Ok(select.query_map(wanted, StoredEnd::of)?.collect::<rusqlite::Result<_>>()?);
        };
        let mut select = scope.conn.prepare_cached(one.keys)?;
        let keys = select.query_map(wanted, |row| row.get(0))?.collect::<rusqlite::Result<Vec<i64>>>()?;
        let mut found = Vec::new();
        for key in keys {
            if !scope.rows.passes_over((one.place)(key)) {
                scope.rows.at((one.place)(key));
                found.extend(scope.conn.prepare_cached(one.row)?.query_row([key], StoredEnd::of).optional()?);
            }
        }
        scope.rows.done();
        Ok(found)
    }
}

/// Rows that end too far in the future. One ends when its length has passed by the monotonic clock and it was not renewed.
#[derive(Debug, Default)]
struct FutureEnds {
    seen: HashMap<String, FutureEnd>,
}

#[derive(Debug, Clone, Copy)]
struct FutureEnd {
    until_ms: i64,
    ends: Duration,
}

impl FutureEnds {
    fn next_end(&self) -> Option<Duration> {
        self.seen.values().map(|seen| seen.ends).min()
    }

    /// Those that have ended. Rows that are gone or were renewed are forgotten.
    fn ended(&mut self, scope: &Scope<'_>, tables: &[FutureRows]) -> Result<Vec<String>, VerbFailure> {
        let now = scope.now;
        let mut seen = HashMap::new();
        let mut ended = Vec::new();
        for table in tables {
            for StoredEnd { token, until_ms, lock_ms } in table.read(scope)? {
                let (Some(until_ms), Some(lock_ms)) = (until_ms, lock_ms) else { continue };
                let from_the_future = until_ms.saturating_sub(lock_ms) > now.wall_ms;
                if !from_the_future || scope.own_locks.deadline(&token).is_some() {
                    continue;
                }
                let ends = now.monotonic.saturating_add(Duration::from_millis(unsigned(lock_ms)));
                let seen_before = self.seen.get(&token).copied();
                let future_end = seen_before
                    .filter(|before| before.until_ms == until_ms)
                    .unwrap_or(FutureEnd { until_ms, ends });
                if future_end.ends <= now.monotonic {
                    ended.push(token);
                } else {
                    seen.insert(token, future_end);
                }
            }
        }
        self.seen = seen;
        Ok(ended)
    }
}
