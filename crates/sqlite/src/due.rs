//! What becomes due: messages that become visible, locks and leases that expire.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use rusqlite::{Connection, params};

use crate::clock_reading::{ClockReading, unsigned};
use crate::columns;
use crate::locks::row_of;
use crate::operation::{Scope, VerbFailure};
use crate::orchestrator_queue;

/// How many rows of a kind one batch wakes at most; the rest follows in the next batch.
const WAKE_MAX: i64 = 1_000;
/// How many locks that end too late are watched at most.
const FUTURE_MAX: i64 = 64;

const DUE_MESSAGES: &str = "SELECT seq, instance_key FROM orchestrator_queue \
     WHERE visible_at_ms > 0 AND visible_at_ms <= ?1 ORDER BY visible_at_ms LIMIT ?2";
const SHOW_MESSAGE: &str = "UPDATE orchestrator_queue SET visible_at_ms = 0 WHERE seq = ?1";
const DUE_ACTIVITIES: &str = "SELECT seq FROM worker_queue \
     WHERE visible_at_ms > 0 AND visible_at_ms <= ?1 ORDER BY visible_at_ms LIMIT ?2";
const SHOW_ACTIVITY: &str = "UPDATE worker_queue SET visible_at_ms = 0, ready = 1 WHERE seq = ?1";
const EXPIRED_INSTANCES: &str = "SELECT instance_key, lock_token FROM instances \
     WHERE lock_token IS NOT NULL AND ready_seq IS NULL AND locked_until_ms <= ?1 LIMIT ?2";
const EXPIRED_ACTIVITIES: &str = "SELECT seq, lock_token FROM worker_queue \
     WHERE lock_token IS NOT NULL AND ready = 0 AND locked_until_ms <= ?1 LIMIT ?2";
const EXTEND_INSTANCE: &str = "UPDATE instances SET locked_until_ms = ?2 WHERE instance_key = ?1";
const EXTEND_ACTIVITY: &str = "UPDATE worker_queue SET locked_until_ms = ?2 WHERE seq = ?1";
const EXPOSE_ACTIVITY: &str = "UPDATE worker_queue SET ready = 1 WHERE seq = ?1";
const HOLDS_ACTIVITY: &str = "SELECT 1 FROM worker_queue WHERE seq = ?1 AND lock_token = ?2 AND ready = 0";
const HOLDS_INSTANCE: &str =
    "SELECT 1 FROM instances WHERE instance_key = ?1 AND lock_token = ?2 AND ready_seq IS NULL";
const CLEAR_LOCK: &str = "UPDATE instances SET lock_token = NULL, locked_until_ms = NULL, lock_ms = NULL \
     WHERE instance_key = ?1";
const FUTURE_INSTANCES: &str = "SELECT lock_token, locked_until_ms, lock_ms FROM instances \
     WHERE lock_token IS NOT NULL AND ready_seq IS NULL AND locked_until_ms > ?1 ORDER BY locked_until_ms DESC LIMIT ?2";
const FUTURE_ACTIVITIES: &str = "SELECT lock_token, locked_until_ms, lock_ms FROM worker_queue \
     WHERE lock_token IS NOT NULL AND ready = 0 AND locked_until_ms > ?1 ORDER BY locked_until_ms DESC LIMIT ?2";
const FUTURE_LEASES: &str = "SELECT session_id, lease_until_ms, lease_ms FROM sessions \
     WHERE lease_until_ms > ?1 ORDER BY lease_until_ms DESC LIMIT ?2";
const END_LEASE: &str = "UPDATE sessions SET lease_until_ms = ?2 WHERE session_id = ?1";
const CAP_INSTANCE: &str =
    "UPDATE instances SET locked_until_ms = min(locked_until_ms, ?2) WHERE instance_key = ?1";
const CAP_ACTIVITY: &str =
    "UPDATE worker_queue SET locked_until_ms = min(locked_until_ms, ?2) WHERE seq = ?1";
const NEXT_DUE: &str = "SELECT min(at_ms) FROM ( \
     SELECT min(visible_at_ms) AS at_ms FROM orchestrator_queue WHERE visible_at_ms > 0 AND visible_at_ms > ?1 \
     UNION ALL SELECT min(visible_at_ms) FROM worker_queue WHERE visible_at_ms > 0 AND visible_at_ms > ?1 \
     UNION ALL SELECT min(locked_until_ms) FROM instances \
         WHERE lock_token IS NOT NULL AND ready_seq IS NULL AND locked_until_ms > ?1 \
     UNION ALL SELECT min(locked_until_ms) FROM worker_queue \
         WHERE lock_token IS NOT NULL AND ready = 0 AND locked_until_ms > ?1 \
     UNION ALL SELECT min(lease_until_ms) FROM sessions WHERE lease_until_ms > ?1)";

/// The earliest wall time after `woken_ms` at which something becomes due. Rows that were due before and did not change are
/// damaged and cannot be woken.
pub(crate) fn next(conn: &Connection, woken_ms: i64) -> rusqlite::Result<Option<i64>> {
    conn.prepare_cached(NEXT_DUE)?.query_row([woken_ms], |row| columns::integer(row, 0))
}

/// Makes rows visible that have become due, and rows ready whose lock has expired. Returns whether there is more. Locks that
/// were taken or renewed in this batch are `fresh`: their new end counts only after the commit.
pub(crate) fn wake(
    scope: &mut Scope<'_>,
    future: &mut FutureLocks,
    fresh: &BTreeSet<String>,
) -> Result<bool, VerbFailure> {
    let mut more = false;
    for (seq, key) in due_rows(scope, DUE_MESSAGES, &mut more)? {
        one(scope, |scope| {
            scope.conn.prepare_cached(SHOW_MESSAGE)?.execute([seq])?;
            key.map_or(Ok(()), |key| orchestrator_queue::refresh(scope, key))
        })?;
    }
    for (seq, _) in due_rows(scope, DUE_ACTIVITIES, &mut more)? {
        one(scope, |scope| {
            scope.conn.prepare_cached(SHOW_ACTIVITY)?.execute([seq])?;
            Ok(())
        })?;
    }
    more |= expire_by_wall(scope)?;
    let ended = scope.own_locks.ended(scope.now).filter(|token| !fresh.contains(*token));
    let ended: Vec<String> = ended.map(str::to_owned).collect();
    for token in ended {
        one(scope, |scope| expose(scope, &token))?;
        scope.effects.ended.push(token);
    }
    for token in future.locks.ended(scope, &[FUTURE_INSTANCES, FUTURE_ACTIVITIES])? {
        one(scope, |scope| expose(scope, &token))?;
    }
    for session_id in future.leases.ended(scope, &[FUTURE_LEASES])? {
        scope.conn.prepare_cached(END_LEASE)?.execute(params![session_id, scope.now.wall_ms])?;
    }
    // An expired lease may have freed a session with queued activities.
    scope.effects.work = true;
    Ok(more)
}

/// Runs one change completely or not at all. A damaged row that refuses it does not keep the others from waking.
fn one(
    scope: &mut Scope<'_>,
    run: impl FnOnce(&mut Scope<'_>) -> Result<(), VerbFailure>,
) -> Result<(), VerbFailure> {
    scope.conn.prepare_cached("SAVEPOINT one")?.execute([])?;
    match run(scope) {
        Ok(()) => {}
        Err(VerbFailure::Refused(error)) => {
            tracing::warn!(target: "everturn::providers::sqlite", %error,
                "a row that is due is damaged and stays as it is; the others are woken");
            scope.conn.prepare_cached("ROLLBACK TO one")?.execute([])?;
        }
        Err(storage) => return Err(storage),
    }
    scope.conn.prepare_cached("RELEASE one")?.execute([])?;
    Ok(())
}

/// Rows that have become due: their id, and the instance of a message. Sets `more` if there are more.
fn due_rows(
    scope: &Scope<'_>,
    select: &str,
    more: &mut bool,
) -> Result<Vec<(i64, Option<i64>)>, VerbFailure> {
    let mut select = scope.conn.prepare_cached(select)?;
    let has_instance = select.column_count() > 1;
    let mut rows = select.query([scope.now.wall_ms, WAKE_MAX])?;
    let mut due = Vec::new();
    while let Some(row) = rows.next()? {
        due.push((row.get(0)?, if has_instance { columns::integer(row, 1)? } else { None }));
    }
    *more |= is_full(&due);
    Ok(due)
}

fn is_full<T>(rows: &[T]) -> bool {
    i64::try_from(rows.len()).is_ok_and(|rows| rows >= WAKE_MAX)
}

/// Expires locks by the wall clock. A lock of this process is judged by its monotonic clock: if that has not reached the
/// end, the wall clock jumped, and the stored end moves with it. Returns whether there are more.
fn expire_by_wall(scope: &mut Scope<'_>) -> Result<bool, VerbFailure> {
    let instances = expired(scope, EXPIRED_INSTANCES)?;
    let activities = expired(scope, EXPIRED_ACTIVITIES)?;
    let more = is_full(&instances) || is_full(&activities);
    for (key, left) in instances {
        one(scope, |scope| match left {
            Some(until_ms) => {
                scope.conn.prepare_cached(EXTEND_INSTANCE)?.execute([key, until_ms])?;
                Ok(())
            }
            None => expose_instance(scope, key),
        })?;
    }
    for (seq, left) in activities {
        one(scope, |scope| match left {
            Some(until_ms) => {
                scope.conn.prepare_cached(EXTEND_ACTIVITY)?.execute([seq, until_ms])?;
                Ok(())
            }
            None => expose_activity(scope, seq),
        })?;
    }
    Ok(more)
}

/// Rows whose lock has expired by the wall clock; with its new end if this process holds it and it has not.
fn expired(scope: &Scope<'_>, select: &str) -> Result<Vec<(i64, Option<i64>)>, VerbFailure> {
    let mut select = scope.conn.prepare_cached(select)?;
    let mut rows = select.query([scope.now.wall_ms, WAKE_MAX])?;
    let mut expired = Vec::new();
    while let Some(row) = rows.next()? {
        let token = columns::text(row, 1)?.unwrap_or_default();
        let left = scope.own_locks.left(&token, scope.now);
        expired.push((row.get(0)?, left.map(|left| scope.now.wall_after(left))));
    }
    Ok(expired)
}

/// Expires the lock with this token by both clocks, if it is still in its row: it has ended by the monotonic clock.
fn expose(scope: &mut Scope<'_>, token: &str) -> Result<(), VerbFailure> {
    let Some(row) = row_of(token) else { return Ok(()) };
    if scope.conn.prepare_cached(HOLDS_ACTIVITY)?.exists(params![row, token])? {
        scope.conn.prepare_cached(CAP_ACTIVITY)?.execute([row, scope.now.wall_ms])?;
        expose_activity(scope, row)?;
    }
    if scope.conn.prepare_cached(HOLDS_INSTANCE)?.exists(params![row, token])? {
        scope.conn.prepare_cached(CAP_INSTANCE)?.execute([row, scope.now.wall_ms])?;
        expose_instance(scope, row)?;
    }
    Ok(())
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
    fn ended(&mut self, scope: &Scope<'_>, selects: &[&str]) -> Result<Vec<String>, VerbFailure> {
        let now = scope.now;
        let mut seen = HashMap::new();
        let mut ended = Vec::new();
        for select in selects {
            let mut select = scope.conn.prepare_cached(select)?;
            let mut rows = select.query([now.wall_ms, FUTURE_MAX])?;
            while let Some(row) = rows.next()? {
                let token = columns::text(row, 0)?.unwrap_or_default();
                let (Some(until_ms), Some(lock_ms)) = (columns::integer(row, 1)?, columns::integer(row, 2)?)
                else {
                    continue;
                };
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

/// How long until the wall clock shows `due_ms`.
pub(crate) fn until(due_ms: i64, now: ClockReading) -> Duration {
    Duration::from_millis(unsigned(due_ms.saturating_sub(now.wall_ms)))
}
