//! `sweep`: expired sessions are deleted, and messages for instances that were never started are dead-lettered.

use std::time::Duration;

use everturn_core::limits::{MAX_DEAD_LETTERS, MAX_DEAD_LETTERS_PER_SWEEP};
use everturn_provider::store::{DeadLetter, Sweep, Swept};
use rusqlite::params;

use crate::clock_reading::{length_ms, stored_ms};
use crate::columns;
use crate::operation::{BatchOrder, Scope, Verb, VerbFailure};
use crate::orchestrator_queue;

const DELETE_EXPIRED: &str = "DELETE FROM sessions WHERE (lease_until_ms <= ?1 OR typeof(lease_until_ms) <> 'integer') \
     AND NOT EXISTS (SELECT 1 FROM worker_queue WHERE worker_queue.session_id = sessions.session_id)";
const SELECT_UNSTARTED: &str = "SELECT instance_key, instance_id, startable OR EXISTS (SELECT 1 \
         FROM orchestrator_queue AS q WHERE q.instance_key = i.instance_key AND q.is_start = 1) \
     FROM instances AS i WHERE unstarted_since_ms IS NOT NULL AND unstarted_since_ms <= ?1 \
     ORDER BY unstarted_since_ms LIMIT ?2";
const SELECT_OLD: &str = "SELECT seq, kind FROM orchestrator_queue \
     WHERE instance_key = ?1 AND visible_at_ms <= ?2 AND arrived_at_ms <= ?3 ORDER BY seq LIMIT ?4";
const KEEP_ASIDE: &str = "INSERT INTO set_aside (set_aside_at_ms, reason, instance_id, work_item) \
     SELECT ?2, 'the instance was never started', ?3, CAST(work_item AS TEXT) FROM orchestrator_queue WHERE seq = ?1";
const DELETE_MESSAGE: &str = "DELETE FROM orchestrator_queue WHERE seq = ?1";
const CLEAR_MARK: &str = "UPDATE instances SET unstarted_since_ms = NULL WHERE instance_key = ?1";
// Only messages of this kind have no end. Damaged activities are kept until they are repaired.
const FORGET_OLDEST: &str = "DELETE FROM set_aside WHERE reason = 'the instance was never started' AND set_aside_key <= (SELECT set_aside_key \
         FROM set_aside WHERE reason = 'the instance was never started' ORDER BY set_aside_key DESC LIMIT 1 OFFSET ?1)";

/// Deletes expired sessions without queued activities, and dead-letters messages that have waited too long for a start.
pub(crate) struct SweepExpired {
    pub(crate) sweep: Sweep,
}

impl Verb for SweepExpired {
    type Answer = Swept;
    const NAME: &'static str = "sweep";
    const ORDER: BatchOrder = BatchOrder::NewWork;
    const WRITES_BEFORE_REFUSAL: bool = true;

    fn run(&self, scope: &mut Scope<'_>) -> Result<Swept, VerbFailure> {
        let deleted = scope.conn.prepare_cached(DELETE_EXPIRED)?.execute([scope.now.wall_ms])?;
        let swept = Swept::new(deleted);
        Ok(match self.sweep.dead_letter_after {
            Some(waited) => swept.with_dead_letters(dead_letter_unstarted(scope, waited)?),
            None => swept,
        })
    }
}

/// An instance with messages that came while no start was queued.
struct UnstartedInstance {
    key: i64,
    id: String,
    /// A start came after all.
    has_start: bool,
}

/// Takes the messages out of the queue that have waited so long, and whose instance neither exists nor is about to start.
fn dead_letter_unstarted(scope: &mut Scope<'_>, waited: Duration) -> Result<Vec<DeadLetter>, VerbFailure> {
    let since_ms = scope.now.wall_ms.saturating_sub(stored_ms(length_ms(waited)));
    let mut letters = Vec::new();
    for instance in unstarted(scope, since_ms)? {
        if instance.has_start {
            scope.conn.prepare_cached(CLEAR_MARK)?.execute([instance.key])?;
            continue;
        }
        let left = MAX_DEAD_LETTERS_PER_SWEEP.saturating_sub(letters.len());
        if left == 0 {
            break;
        }
        letters.extend(dead_letter_messages(scope, &instance, since_ms, left)?);
        if !orchestrator_queue::delete_if_empty(scope.conn, instance.key)? {
            orchestrator_queue::refresh_unstarted(scope.conn, instance.key)?;
            orchestrator_queue::refresh(scope, instance.key)?;
        }
    }
    if !letters.is_empty() {
        scope.conn.prepare_cached(FORGET_OLDEST)?.execute([row_count(MAX_DEAD_LETTERS)])?;
    }
    Ok(letters)
}

fn unstarted(scope: &Scope<'_>, since_ms: i64) -> Result<Vec<UnstartedInstance>, VerbFailure> {
    let mut select = scope.conn.prepare_cached(SELECT_UNSTARTED)?;
    let found = select.query_map([since_ms, row_count(MAX_DEAD_LETTERS_PER_SWEEP)], |row| {
        Ok(UnstartedInstance {
            key: row.get(0)?,
            id: columns::text(row, 1)?.unwrap_or_default(),
            has_start: columns::flag(row, 2)?,
        })
    })?;
    Ok(found.collect::<rusqlite::Result<_>>()?)
}

fn dead_letter_messages(
    scope: &Scope<'_>,
    instance: &UnstartedInstance,
    since_ms: i64,
    limit: usize,
) -> Result<Vec<DeadLetter>, VerbFailure> {
    let now_ms = scope.now.wall_ms;
    let old: Vec<(i64, String)> = scope
        .conn
        .prepare_cached(SELECT_OLD)?
        .query_map([instance.key, now_ms, since_ms, row_count(limit)], |row| {
            Ok((row.get(0)?, columns::text(row, 1)?.unwrap_or_default()))
        })?
        .collect::<rusqlite::Result<_>>()?;
    let mut letters = Vec::with_capacity(old.len());
    for (seq, kind) in old {
        scope.conn.prepare_cached(KEEP_ASIDE)?.execute(params![seq, now_ms, instance.id])?;
        scope.conn.prepare_cached(DELETE_MESSAGE)?.execute([seq])?;
        letters.push(DeadLetter::new(instance.id.clone(), kind));
    }
    Ok(letters)
}

fn row_count(rows: usize) -> i64 {
    i64::try_from(rows).unwrap_or(i64::MAX)
}
