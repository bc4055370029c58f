//! What comes with time: messages that become visible, locks and leases that end.

use std::collections::HashMap;
use std::time::Duration;

use rusqlite::{Connection, params};

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
const SHOW_ACTIVITIES: &str = "UPDATE worker_queue SET visible_at_ms = 0, ready = 1 WHERE seq IN \
     (SELECT seq FROM worker_queue WHERE visible_at_ms > 0 AND visible_at_ms <= ?1 LIMIT ?2)";
const EXPIRED_INSTANCES: &str = "SELECT instance_key, lock_token FROM instances \
     WHERE lock_token IS NOT NULL AND ready_seq IS NULL AND locked_until_ms <= ?1 LIMIT ?2";
const EXPIRED_ACTIVITIES: &str = "SELECT seq, lock_token FROM worker_queue \
     WHERE lock_token IS NOT NULL AND ready = 0 AND locked_until_ms <= ?1 LIMIT ?2";
const EXTEND_INSTANCE: &str = "UPDATE instances SET locked_until_ms = ?2 WHERE instance_key = ?1";
const EXTEND_ACTIVITY: &str = "UPDATE worker_queue SET locked_until_ms = ?2 WHERE seq = ?1";
const EXPOSE_ACTIVITY: &str = "UPDATE worker_queue SET ready = 1 WHERE seq = ?1 AND lock_token = ?2 AND ready = 0";
const HOLDS_INSTANCE: &str =
    "SELECT 1 FROM instances WHERE instance_key = ?1 AND lock_token = ?2 AND ready_seq IS NULL";
const CLEAR_LOCK: &str = "UPDATE instances SET lock_token = NULL, locked_until_ms = NULL, lock_ms = NULL \
     WHERE instance_key = ?1";
const FUTURE_INSTANCES: &str = "SELECT lock_token, locked_until_ms, lock_ms FROM instances \
     WHERE lock_token IS NOT NULL AND ready_seq IS NULL AND locked_until_ms > ?1 ORDER BY locked_until_ms DESC LIMIT ?2";
const FUTURE_ACTIVITIES: &str = "SELECT lock_token, locked_until_ms, lock_ms FROM worker_queue \
     WHERE lock_token IS NOT NULL AND ready = 0 AND locked_until_ms > ?1 ORDER BY locked_until_ms DESC LIMIT ?2";
const NEXT_DUE: &str = "SELECT min(at_ms) FROM ( \
     SELECT min(visible_at_ms) AS at_ms FROM orchestrator_queue WHERE visible_at_ms > 0 \
     UNION ALL SELECT min(visible_at_ms) FROM worker_queue WHERE visible_at_ms > 0 \
     UNION ALL SELECT min(locked_until_ms) FROM instances WHERE lock_token IS NOT NULL AND ready_seq IS NULL \
     UNION ALL SELECT min(locked_until_ms) FROM worker_queue WHERE lock_token IS NOT NULL AND ready = 0 \
     UNION ALL SELECT min(lease_until_ms) FROM sessions WHERE lease_until_ms > ?1)";

/// The earliest wall time at which something becomes due.
pub(crate) fn next(conn: &Connection, now: Moment) -> rusqlite::Result<Option<i64>> {
    conn.prepare_cached(NEXT_DUE)?.query_row([now.wall_ms], |row| row.get(0))
}

/// Makes visible what has become due, and ready what was locked by a lock that has ended.
pub(crate) fn wake(scope: &mut Scope<'_>, future: &mut FutureLocks) -> Result<(), Failure> {
    show_messages(scope)?;
    let shown = scope.conn.prepare_cached(SHOW_ACTIVITIES)?.execute([scope.now.wall_ms, WAKE_MAX])?;
    scope.effects.work |= shown > 0;
    expire_by_wall(scope)?;
    let ended: Vec<String> = scope.own_locks.ended(scope.now).map(str::to_owned).collect();
    for token in ended {
        expose(scope, &token)?;
        scope.effects.released.push(token);
    }
    for token in future.ended(scope)? {
        expose(scope, &token)?;
    }
    // A lease that ended may have freed a session whose activities wait.
    scope.effects.work = true;
    Ok(())
}

fn show_messages(scope: &mut Scope<'_>) -> Result<(), Failure> {
    let due: Vec<(i64, i64)> = scope
        .conn
        .prepare_cached(DUE_MESSAGES)?
        .query_map([scope.now.wall_ms, WAKE_MAX], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    for (seq, key) in due {
        scope.conn.prepare_cached(SHOW_MESSAGE)?.execute([seq])?;
        inbox::refresh(scope, key)?;
    }
    Ok(())
}

/// Locks whose end has come by the wall clock. Those of this process go by its monotonic clock: if that says
/// otherwise, the wall clock jumped, and their end moves with it.
fn expire_by_wall(scope: &mut Scope<'_>) -> Result<(), Failure> {
    for (select, extend) in [(EXPIRED_INSTANCES, EXTEND_INSTANCE), (EXPIRED_ACTIVITIES, EXTEND_ACTIVITY)] {
        let expired: Vec<(i64, String)> = scope
            .conn
            .prepare_cached(select)?
            .query_map([scope.now.wall_ms, WAKE_MAX], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<rusqlite::Result<_>>()?;
        for (row, token) in expired {
            match scope.own_locks.left(&token, scope.now) {
                Some(left) => {
                    let until_ms = scope.now.wall_after(left);
                    scope.conn.prepare_cached(extend)?.execute(params![row, until_ms])?;
                }
                None => expose(scope, &token)?,
            }
        }
    }
    Ok(())
}

/// The lock has ended. It stays in its row until somebody takes over, so that a holder whose call came in time is
/// still known; only a lock without messages goes at once.
fn expose(scope: &mut Scope<'_>, token: &str) -> Result<(), Failure> {
    let Some(row) = row_of(token) else { return Ok(()) };
    if scope.conn.prepare_cached(EXPOSE_ACTIVITY)?.execute(params![row, token])? > 0 {
        scope.effects.work = true;
    }
    if scope.conn.prepare_cached(HOLDS_INSTANCE)?.exists(params![row, token])? && !inbox::expose(scope, row)? {
        scope.conn.prepare_cached(CLEAR_LOCK)?.execute([row])?;
    }
    Ok(())
}

/// Locks that were taken later than now: the wall clock was set back. They end when their length has passed unchanged
/// by the monotonic clock.
#[derive(Debug, Default)]
pub(crate) struct FutureLocks {
    seen: HashMap<String, Sighting>,
}

#[derive(Debug, Clone, Copy)]
struct Sighting {
    until_ms: i64,
    ends: Duration,
}

impl FutureLocks {
    /// When the next of them ends, by the monotonic clock.
    pub(crate) fn next_end(&self) -> Option<Duration> {
        self.seen.values().map(|sighting| sighting.ends).min()
    }

    /// The locks from the future that have ended. Whatever is no longer there, or was renewed, is forgotten.
    fn ended(&mut self, scope: &Scope<'_>) -> Result<Vec<String>, Failure> {
        let now = scope.now;
        let mut seen = HashMap::new();
        let mut ended = Vec::new();
        for select in [FUTURE_INSTANCES, FUTURE_ACTIVITIES] {
            let mut select = scope.conn.prepare_cached(select)?;
            let mut rows = select.query([now.wall_ms, FUTURE_MAX])?;
            while let Some(row) = rows.next()? {
                let (token, until_ms, lock_ms): (String, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
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
