//! Stores with very many instances, filled by SQL: a thousand times faster than by turns.

use rusqlite::{Connection, params};

use crate::store::{Store, started};

/// What a large store holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoreContent {
    /// Instances that have completed: `done-0`, `done-1`, …, one second after another, each with one execution.
    pub(crate) completed: u32,
    /// Events in each of their histories.
    pub(crate) events: u32,
    /// Instances that sleep: `asleep-0`, …, each with a timer that fires in a year.
    pub(crate) asleep: u32,
}

impl StoreContent {
    pub(crate) const fn completed(completed: u32) -> Self {
        Self { completed, events: 2, asleep: 0 }
    }
}

/// When the first instance completed.
pub(crate) const FIRST_COMPLETED_MS: i64 = 1_000_000;
/// When the timers of sleeping instances fire.
const FIRE_AT_MS: i64 = 33_000_000_000_000;

const INSTANCES: &str = "WITH RECURSIVE n(i) AS (SELECT 0 WHERE ?1 > 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?1) \
     INSERT INTO everturn_instances (instance_id, orchestration_name, orchestration_version, current_execution_id, \
         created_at_ms, updated_at_ms, turn_stamp, startable, event_count, event_bytes, last_event_id, status, ended_at_ms) \
     SELECT ?2 || '-' || i, 'order', '1.0.0', 1, ?3 + i, ?3 + i, i, 1, ?4, ?4 * octet_length(?5), ?4, ?6, \
         iif(?6 = 'Running', NULL, ?3 + i) FROM n";
const EXECUTIONS: &str = "INSERT INTO everturn_executions (instance_key, execution_id, status, output, started_at_ms, \
         completed_at_ms, event_count, event_bytes, start_event_id) \
     SELECT instance_key, 1, ?2, iif(?2 = 'Running', NULL, 'ok'), created_at_ms, \
         iif(?2 = 'Running', NULL, created_at_ms), ?3, ?3 * octet_length(?4), 1 \
     FROM everturn_instances WHERE instance_id >= ?1 || '-' AND instance_id < ?1 || '.'";
const HISTORY: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?2) \
     INSERT INTO everturn_history (instance_key, execution_id, first_event_id, last_event_id, events) \
     SELECT instance_key, 1, i, i, json_array(json_set(?3, '$.event_id', i, '$.instance_id', instance_id)) FROM everturn_instances CROSS JOIN n \
     WHERE instance_id >= ?1 || '-' AND instance_id < ?1 || '.' ORDER BY instance_key, i";
const TIMERS: &str = "INSERT INTO everturn_orchestrator_queue (instance_key, kind, is_start, arrived_at_ms, visible_at_ms, \
         timer_execution_id, work_item) \
     SELECT instance_key, 'TimerFired', 0, ?1, ?1, 1, '{}' FROM everturn_instances \
     WHERE instance_id >= 'asleep-' AND instance_id < 'asleep.'";
const TOTALS: &str = "UPDATE everturn_totals SET instances = (SELECT count(*) FROM everturn_instances), \
     running = (SELECT count(*) FROM everturn_executions WHERE status = 'Running'), \
     completed = (SELECT count(*) FROM everturn_executions WHERE status = 'Completed'), \
     executions = (SELECT count(*) FROM everturn_executions), events = (SELECT count(*) FROM everturn_history)";

impl Store {
    /// A store with this content; no provider has it open.
    pub(crate) async fn filled(content: StoreContent) -> Self {
        let store = Self::new();
        store.open().await.close().await;
        let conn = store.sql();
        conn.pragma_update(None, "synchronous", "OFF").unwrap();
        conn.pragma_update(None, "cache_size", -200_000).unwrap();
        conn.execute_batch("BEGIN").unwrap();
        fill(&conn, "done", content.completed, "Completed", content.events);
        fill(&conn, "asleep", content.asleep, "Running", 1);
        conn.execute(TIMERS, [FIRE_AT_MS]).unwrap();
        conn.execute(TOTALS, []).unwrap();
        conn.execute_batch("COMMIT; PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
        store
    }
}

fn fill(conn: &Connection, name: &str, instances: u32, status: &str, events: u32) {
    let event = serde_json::to_string(&started(name)).unwrap();
    conn.execute(INSTANCES, params![instances, name, FIRST_COMPLETED_MS, events, event, status]).unwrap();
    conn.execute(EXECUTIONS, params![name, status, events, event]).unwrap();
    conn.execute(HISTORY, params![name, events, event]).unwrap();
}
