//! What becomes due: timers and delayed messages, delays of instances, and locks that expire.

use everturn_provider::ProviderError;
use tokio_postgres::Error;

use crate::needs::Needs;
use crate::operation::{BatchOrder, Run, Verb};
use crate::session::ServerSession;
use crate::unit_of_work::UnitOfWork;

/// How many instances one look wakes at most.
const ROWS: i64 = 500;

const DUE_INSTANCES: &str = "SELECT DISTINCT due.instance_key FROM ( \
     (SELECT q.instance_key FROM {schema}.everturn_orchestrator_queue AS q \
         WHERE q.visible_at_ms > 0 AND q.visible_at_ms <= {schema}.everturn_now_ms($1) ORDER BY q.visible_at_ms LIMIT $2) \
     UNION ALL (SELECT i.instance_key FROM {schema}.everturn_instances AS i WHERE i.delayed_until_ms IS NOT NULL \
         AND i.delayed_until_ms <= {schema}.everturn_now_ms($1) ORDER BY i.delayed_until_ms LIMIT $2) \
     UNION ALL (SELECT i.instance_key FROM {schema}.everturn_instances AS i WHERE i.lock_token IS NOT NULL \
         AND i.ready_seq IS NULL AND i.locked_until_ms <= {schema}.everturn_now_ms($1) ORDER BY i.locked_until_ms LIMIT $2) \
     ) AS due";
// An expired lock stays in its row until another worker takes the row over, so that a call of the holder that came in time
// still succeeds.
const WAKE_ACTIVITIES: &str = "UPDATE {schema}.everturn_worker_queue AS q SET \
     ready = n.is_due OR q.ready, check_at_ms = CASE WHEN n.is_due THEN 0 ELSE n.ends_ms END, \
     visible_at_ms = CASE WHEN n.is_due THEN 0 ELSE q.visible_at_ms END, \
     missing_handler = CASE WHEN n.is_due THEN NULL ELSE q.missing_handler END \
     FROM (SELECT w.seq, e.ends_ms, e.ends_ms <= {schema}.everturn_now_ms($1) AS is_due \
         FROM {schema}.everturn_worker_queue AS w, \
         LATERAL (SELECT CASE WHEN w.lock_token IS NOT NULL THEN w.locked_until_ms ELSE w.visible_at_ms END AS ends_ms) AS e \
         WHERE w.check_at_ms > 0 AND w.check_at_ms <= {schema}.everturn_now_ms($1) ORDER BY w.check_at_ms LIMIT $2 \
         FOR UPDATE OF w SKIP LOCKED) AS n \
     WHERE q.seq = n.seq RETURNING n.is_due";
const NEXT_DUE: &str = "SELECT least( \
     (SELECT min(q.visible_at_ms) FROM {schema}.everturn_orchestrator_queue AS q WHERE q.visible_at_ms > 0), \
     (SELECT min(i.delayed_until_ms) FROM {schema}.everturn_instances AS i WHERE i.delayed_until_ms IS NOT NULL), \
     (SELECT min(i.locked_until_ms) FROM {schema}.everturn_instances AS i \
         WHERE i.lock_token IS NOT NULL AND i.ready_seq IS NULL), \
     (SELECT min(w.check_at_ms) FROM {schema}.everturn_worker_queue AS w WHERE w.check_at_ms > 0))";

/// All statements of a look.
pub(crate) const STATEMENTS: &[&str] = &[DUE_INSTANCES, WAKE_ACTIVITIES, NEXT_DUE];

/// What is due.
#[derive(Debug, Default)]
pub(crate) struct DueRows {
    /// Instances to wake.
    pub(crate) keys: Vec<i64>,
    pub(crate) has_more: bool,
    /// Activities became ready.
    pub(crate) woke_activities: bool,
    /// When something becomes due next.
    pub(crate) next_ms: Option<i64>,
}

/// Wakes activities, and finds instances to wake.
pub(crate) async fn look(session: &ServerSession, test_now_ms: Option<i64>) -> Result<DueRows, Error> {
    let woken = session.query(WAKE_ACTIVITIES, &[&test_now_ms, &ROWS]).await?;
    let mut due = DueRows::default();
    for row in &woken {
        due.woke_activities |= row.try_get::<_, bool>(0)?;
    }
    for row in session.query(DUE_INSTANCES, &[&test_now_ms, &ROWS]).await? {
        due.keys.push(row.try_get(0)?);
    }
    due.has_more = i64::try_from(due.keys.len().max(woken.len())).is_ok_and(|found| found >= ROWS);
    if due.keys.is_empty() {
        let next = session.query_opt(NEXT_DUE, &[]).await?;
        due.next_ms = next.map_or(Ok(None), |row| row.try_get(0))?;
    }
    Ok(due)
}

/// Makes due messages visible, and ends delays and locks of instances.
pub(crate) struct WakeDue {
    pub(crate) keys: Vec<i64>,
}

impl Verb for WakeDue {
    type Answer = ();
    const NAME: &'static str = "wake_due";
    const ORDER: BatchOrder = BatchOrder::NewWork;

    fn needs(&self, needs: &mut Needs) {
        needs.keys.extend(&self.keys);
        needs.released.extend(&self.keys);
        needs.due.extend(&self.keys);
    }

    fn run(&self, unit: &mut UnitOfWork, _run: Run) -> Result<(), ProviderError> {
        let now_ms = unit.now_ms;
        for key in &self.keys {
            let seqs: Vec<i64> =
                unit.due_messages.iter().filter(|(of, _)| of == key).map(|(_, seq)| *seq).collect();
            let Some(instance) = unit.instances.get_mut(key) else { continue };
            let is_delay_over = instance.delayed_until_ms.is_some_and(|until_ms| until_ms <= now_ms);
            let is_lock_over = instance.lock.token.is_some()
                && instance.ready_seq.is_none()
                && instance.lock.until_ms.is_some_and(|until_ms| until_ms <= now_ms);
            if is_delay_over {
                instance.end_delay();
            }
            if is_lock_over {
                instance.expose();
                if instance.ready_seq.is_none() && !instance.orphaned {
                    // A lock without messages is cleared at once.
                    instance.unlock();
                }
            } else if is_delay_over || !seqs.is_empty() {
                instance.refresh();
            }
            unit.effects.turns |= instance.ready_seq.is_some();
            unit.effects.orphans |= instance.orphaned;
            unit.writes.show_messages.extend(seqs);
        }
        // The next look finds what is due then.
        unit.effects.due_at(now_ms);
        Ok(())
    }
}
