//! What comes with time: messages that become visible, locks and leases that end.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use rusqlite::{Connection, params};

use crate::columns;
use crate::inbox;
use crate::locks::row_of;
use crate::moment::{Moment, unsigned};
use crate::operation::{Failure, Scope};

/// How many rows of a kind one batch wakes at most; the rest follows in the next.
const WAKE_MAX: i64 = 1_000;
/// How many locks from the future are watched at most.
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

/// The earliest wall time after `woken_ms` at which something becomes due. What was due before and did not change cannot
/// be helped.
pub(crate) fn next(conn: &Connection, woken_ms: i64) -> rusqlite::Result<Option<i64>> {
    conn.prepare_cached(NEXT_DUE)?.query_row([woken_ms], |row| columns::integer(row, 0))
}

/// Makes visible what has become due, and ready what was locked by a lock that has ended. Says whether there is more.
/// Locks that were taken or renewed in this batch are `fresh`: their new end is known only when it is committed.
pub(crate) fn wake(
    scope: &mut Scope<'_>,
    future: &mut FutureLocks,
    fresh: &BTreeSet<String>,
) -> Result<bool, Failure> {
    let mut more = false;
    for (seq, key) in due_rows(scope, DUE_MESSAGES, &mut more)? {
        one(scope, |scope| {
            scope.conn.prepare_cached(SHOW_MESSAGE)?.execute([seq])?;
            key.map_or(Ok(()), |key| inbox::refresh(scope, key))
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
    // A lease that ended may have freed a session whose activities wait.
    scope.effects.work = true;
    Ok(more)
}

/// Does one thing whole or not at all. What a damaged row refuses does not keep the others from waking.
fn one(
    scope: &mut Scope<'_>,
    run: impl FnOnce(&mut Scope<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    scope.conn.prepare_cached("SAVEPOINT one")?.execute([])?;
    match run(scope) {
        Ok(()) => {}
        Err(Failure::Refused(error)) => {
            tracing::warn!(target: "everturn::providers::sqlite", %error, "a damaged row does not wake");
            scope.conn.prepare_cached("ROLLBACK TO one")?.execute([])?;
        }
        Err(storage) => return Err(storage),
    }
    scope.conn.prepare_cached("RELEASE one")?.execute([])?;
    Ok(())
}

/// Rows that have become due: their id, and the instance of a message. Says whether there are more.
fn due_rows(scope: &Scope<'_>, select: &str, more: &mut bool) -> Result<Vec<(i64, Option<i64>)>, Failure> {
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

/// Locks whose end has come by the wall clock. Those of this process go by its monotonic clock: if that says
/// otherwise, the wall clock jumped, and their end moves with it. Says whether there are more.
fn expire_by_wall(scope: &mut Scope<'_>) -> Result<bool, Failure> {
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

/// Rows whose lock has ended by the wall clock, and until when it lasts if it is ours and has not.
fn expired(scope: &Scope<'_>, select: &str) -> Result<Vec<(i64, Option<i64>)>, Failure> {
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

/// The lock with this token has ended by the monotonic clock, if it is still there; then by the wall clock too.
fn expose(scope: &mut Scope<'_>, token: &str) -> Result<(), Failure> {
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

/// The lock has ended. It stays in its row until somebody takes over, so that a holder whose call came in time is
/// still known.
fn expose_activity(scope: &mut Scope<'_>, seq: i64) -> Result<(), Failure> {
    scope.conn.prepare_cached(EXPOSE_ACTIVITY)?.execute([seq])?;
    scope.effects.work = true;
    Ok(())
}

/// The same for an instance; a lock without messages goes at once.
fn expose_instance(scope: &mut Scope<'_>, key: i64) -> Result<(), Failure> {
    if !inbox::expose(scope, key)? {
        scope.conn.prepare_cached(CLEAR_LOCK)?.execute([key])?;
    }
    Ok(())
}

/// Locks and leases that were taken later than now: the wall clock was set back.
#[derive(Debug, Default)]
pub(crate) struct FutureLocks {
    locks: Sightings,
    leases: Sightings,
}

impl FutureLocks {
    /// When the next of them ends, by the monotonic clock.
    pub(crate) fn next_end(&self) -> Option<Duration> {
        [self.locks.next_end(), self.leases.next_end()].into_iter().flatten().min()
    }
}

/// What was seen to reach too far into the future. It ends when its length has passed unchanged by the monotonic clock.
#[derive(Debug, Default)]
struct Sightings {
    seen: HashMap<String, Sighting>,
}

#[derive(Debug, Clone, Copy)]
struct Sighting {
    until_ms: i64,
    ends: Duration,
}

impl Sightings {
    fn next_end(&self) -> Option<Duration> {
        self.seen.values().map(|sighting| sighting.ends).min()
    }

    /// Those that have ended. Whatever is no longer there, or was renewed, is forgotten.
    fn ended(&mut self, scope: &Scope<'_>, selects: &[&str]) -> Result<Vec<String>, Failure> {
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
                let sighting = self
                    .seen
                    .get(&token)
                    .copied()
                    .filter(|sighting| sighting.until_ms == until_ms)
                    .unwrap_or(Sighting { until_ms, ends });
                if sighting.ends <= now.monotonic {
                    ended.push(token);
                } else {
                    seen.insert(token, sighting);
                }
            }
        }
        self.seen = seen;
        Ok(ended)
    }
}

/// How long until the wall clock shows `due_ms`.
pub(crate) fn until(due_ms: i64, now: Moment) -> Duration {
    Duration::from_millis(unsigned(due_ms.saturating_sub(now.wall_ms)))
}
