//! What becomes of messages whose instance does not exist.
//!
//! A cancellation is dropped when it is sent. Queue messages without a queued start are orphans, and the next fetch deletes
//! them. Any other message waits for a start; a sweep dead-letters it after a time. What still reaches the runtime without
//! naming an orchestration is dropped there (`dispatcher/decision.rs`).

use std::time::Duration;

use everturn_core::limits::{MAX_DEAD_LETTERS, MAX_DEAD_LETTERS_PER_SWEEP};
use everturn_provider::ProviderError;
use everturn_provider::encoded::{length_ms, stored_ms};
use everturn_provider::store::DeadLetter;
use tokio_postgres::Error;

use crate::instance_image::QueuedMessages;
use crate::needs::Needs;
use crate::operation::{BatchOrder, Run, Verb};
use crate::session::ServerSession;
use crate::unit_of_work::UnitOfWork;

/// Deletes the messages of instances that have only queue messages and no queued start.
pub(crate) struct DeleteOrphans {
    pub(crate) keys: Vec<i64>,
}

impl Verb for DeleteOrphans {
    type Answer = ();
    const NAME: &'static str = "delete_orphans";
    const ORDER: BatchOrder = BatchOrder::NewWork;

    fn needs(&self, needs: &mut Needs) {
        needs.keys.extend(&self.keys);
    }

    fn run(&self, unit: &mut UnitOfWork, _run: Run) -> Result<(), ProviderError> {
        for key in &self.keys {
            let Some(instance) = unit.instances.get_mut(key) else { continue };
            if !instance.orphaned || instance.startable || instance.lock.token.is_some() {
                continue;
            }
            instance.orphaned = false;
            instance.is_changed = true;
            // Only messages that are not visible yet may be left.
            instance.untagged =
                QueuedMessages { oldest: None, has_visible_other: false, ..instance.untagged.clone() };
            unit.writes.delete_orphans.push(*key);
            unit.writes.delete_empty.push(*key);
        }
        Ok(())
    }
}

const UNSTARTED: &str = "SELECT i.instance_key, i.instance_id, i.startable OR EXISTS (SELECT 1 \
         FROM {schema}.everturn_orchestrator_queue AS q WHERE q.instance_key = i.instance_key AND q.is_start) \
     FROM {schema}.everturn_instances AS i WHERE i.unstarted_since_ms IS NOT NULL \
     AND i.unstarted_since_ms <= {schema}.everturn_now_ms($1) - $2 ORDER BY i.instance_key LIMIT $3 FOR UPDATE";
const CLEAR_MARK: &str =
    "UPDATE {schema}.everturn_instances SET unstarted_since_ms = NULL WHERE instance_key = ANY($1)";
const DEAD_LETTER: &str = "WITH old AS (SELECT q.seq FROM {schema}.everturn_orchestrator_queue AS q \
         WHERE q.instance_key = ANY($3) AND q.visible_at_ms <= {schema}.everturn_now_ms($1) \
         AND q.arrived_at_ms <= {schema}.everturn_now_ms($1) - $2 ORDER BY q.seq LIMIT $4), \
     gone AS (DELETE FROM {schema}.everturn_orchestrator_queue AS q USING old WHERE q.seq = old.seq RETURNING q.*), \
     kept AS (INSERT INTO {schema}.everturn_dead_letters (dead_lettered_at_ms, reason, instance_id, work_item) \
         SELECT {schema}.everturn_now_ms($1), 'the instance was never started', i.instance_id, g.work_item \
         FROM gone AS g JOIN {schema}.everturn_instances AS i ON i.instance_key = g.instance_key ORDER BY g.seq) \
     SELECT g.instance_key, g.kind FROM gone AS g ORDER BY g.seq";
const REFRESH: &str = "UPDATE {schema}.everturn_instances AS i SET \
     unstarted_since_ms = (SELECT min(q.arrived_at_ms) FROM {schema}.everturn_orchestrator_queue AS q \
         WHERE q.instance_key = i.instance_key), \
     orphaned = EXISTS (SELECT 1 FROM {schema}.everturn_orchestrator_queue AS q WHERE q.instance_key = i.instance_key \
             AND q.visible_at_ms <= {schema}.everturn_now_ms($1)) \
         AND NOT EXISTS (SELECT 1 FROM {schema}.everturn_orchestrator_queue AS q WHERE q.instance_key = i.instance_key \
             AND (q.is_start OR (q.visible_at_ms <= {schema}.everturn_now_ms($1) AND q.kind <> 'ExternalRaisedPersistent'))) \
     WHERE i.instance_key = ANY($2)";
const DELETE_EMPTY: &str = "DELETE FROM {schema}.everturn_instances AS i WHERE i.instance_key = ANY($1) \
     AND i.created_at_ms IS NULL \
     AND NOT EXISTS (SELECT 1 FROM {schema}.everturn_executions AS e WHERE e.instance_key = i.instance_key) \
     AND NOT EXISTS (SELECT 1 FROM {schema}.everturn_orchestrator_queue AS q WHERE q.instance_key = i.instance_key)";
// Only messages of this kind have no end. Damaged activities are kept until they are repaired.
const FORGET_OLDEST: &str = "DELETE FROM {schema}.everturn_dead_letters WHERE reason = 'the instance was never started' \
     AND dead_letter_key <= (SELECT dead_letter_key FROM {schema}.everturn_dead_letters \
         WHERE reason = 'the instance was never started' ORDER BY dead_letter_key DESC LIMIT 1 OFFSET $1)";

/// Takes the messages out of the queue that have waited so long, and whose instance neither exists nor is about to start. Runs
/// in the caller's transaction.
pub(crate) async fn dead_letter_unstarted(
    session: &ServerSession,
    waited: Duration,
    test_now_ms: Option<i64>,
) -> Result<Vec<DeadLetter>, Error> {
    let waited_ms = stored_ms(length_ms(waited));
    let limit = i64::try_from(MAX_DEAD_LETTERS_PER_SWEEP).unwrap_or(i64::MAX);
    let (mut keys, mut ids, mut started) = (Vec::<i64>::new(), Vec::<String>::new(), Vec::<i64>::new());
    for row in session.query(UNSTARTED, &[&test_now_ms, &waited_ms, &limit]).await? {
        if row.try_get(2)? {
            started.push(row.try_get(0)?);
        } else {
            keys.push(row.try_get(0)?);
            ids.push(row.try_get(1)?);
        }
    }
    if !started.is_empty() {
        session.execute(CLEAR_MARK, &[&started]).await?;
    }
    let mut letters = Vec::new();
    if !keys.is_empty() {
        for row in session.query(DEAD_LETTER, &[&test_now_ms, &waited_ms, &keys, &limit]).await? {
            let (key, kind): (i64, String) = (row.try_get(0)?, row.try_get(1)?);
            let id = keys.iter().position(|known| *known == key).and_then(|place| ids.get(place));
            letters.extend(id.map(|id| DeadLetter::new(id.clone(), kind)));
        }
        session.execute(REFRESH, &[&test_now_ms, &keys]).await?;
        session.execute(DELETE_EMPTY, &[&keys]).await?;
    }
    if !letters.is_empty() {
        let kept = i64::try_from(MAX_DEAD_LETTERS).unwrap_or(i64::MAX);
        session.execute(FORGET_OLDEST, &[&kept]).await?;
    }
    Ok(letters)
}
