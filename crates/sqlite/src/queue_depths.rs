//! How much waits in the two queues. Entries of indexes are counted; no row of an instance or an execution is looked up.

use everturn_provider::encoded::unsigned;
use everturn_provider::management::QueueDepths;
use rusqlite::Connection;

// All but those that a holder of a lock has, timers that are not due and that nothing waits for, and garbage.
pub(crate) const MESSAGES: &str = "SELECT (SELECT count(*) FROM everturn_orchestrator_queue) \
     - (SELECT count(*) FROM everturn_instances AS i INDEXED BY everturn_instances_locked CROSS JOIN everturn_orchestrator_queue AS q \
         ON q.instance_key = i.instance_key WHERE i.lock_token IS NOT NULL AND i.ready_seq IS NULL \
         AND i.locked_until_ms > ?1 AND q.visible_at_ms = 0 AND q.tagged = 1) \
     - (SELECT count(*) FROM everturn_orchestrator_queue WHERE unawaited = 1 AND visible_at_ms > ?1) \
     - (SELECT count(*) FROM everturn_garbage AS g CROSS JOIN everturn_orchestrator_queue AS q \
         ON q.instance_key = g.instance_key WHERE g.execution_id = 0)";
// All but those that a worker has.
pub(crate) const ACTIVITIES: &str = "SELECT (SELECT count(*) FROM everturn_worker_queue) \
     - (SELECT count(*) FROM everturn_worker_queue WHERE lock_token IS NOT NULL AND ready = 0 AND locked_until_ms > ?1)";

/// The depths at this moment.
pub(crate) fn read(conn: &Connection, now_ms: i64) -> rusqlite::Result<QueueDepths> {
    let count = |sql: &str, parameters: &[i64]| {
        conn.prepare_cached(sql)?.query_row(rusqlite::params_from_iter(parameters), |row| {
            Ok(usize::try_from(unsigned(row.get::<_, i64>(0)?.max(0))).unwrap_or(usize::MAX))
        })
    };
    Ok(QueueDepths {
        orchestrator_queue: count(MESSAGES, &[now_ms])?,
        worker_queue: count(ACTIVITIES, &[now_ms])?,
        timer_queue: 0,
    })
}
