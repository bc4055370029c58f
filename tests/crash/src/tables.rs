//! The tables of the file, read past the provider.

use std::collections::{BTreeMap, BTreeSet};

use everturn::Event;
use everturn_core::WorkItem;
use rusqlite::{Connection, Row};

/// Everything that is stored about instances.
pub struct StoredTables {
    /// The result of SQLite's integrity check; "ok" if the file is intact.
    pub integrity: String,
    /// Instances by id.
    pub instances: BTreeMap<String, InstanceRow>,
    /// Executions by instance and number.
    pub executions: BTreeMap<(String, u64), ExecutionRow>,
    /// Messages to instances.
    pub messages: Vec<MessageRow>,
    /// Activities to run.
    pub activities: Vec<ActivityRow>,
    /// Why rows were dead-lettered.
    pub dead_letters: Vec<String>,
}

/// One instance that exists.
pub struct InstanceRow {
    /// Its last execution.
    pub current_execution_id: Option<u64>,
    /// Whether it is locked.
    pub locked: bool,
    /// Its custom status.
    pub custom_status: Option<String>,
    /// Its keys and their values.
    pub kv: BTreeMap<String, String>,
}

/// One execution.
pub struct ExecutionRow {
    /// Its status.
    pub status: String,
    /// The stored count of its events.
    pub event_count: u64,
    /// The stored sum of their bytes.
    pub event_bytes: u64,
    /// Its events, each with its stored text.
    pub events: Vec<(Event, String)>,
}

/// One message.
pub struct MessageRow {
    /// The work item.
    pub item: WorkItem,
    /// Whether a locked turn has fetched it.
    pub tagged: bool,
}

/// One activity to run.
pub struct ActivityRow {
    /// The instance, execution and event that scheduled it.
    pub of: (String, u64, u64),
}

impl StoredTables {
    /// Reads everything.
    pub fn read(conn: &Connection) -> rusqlite::Result<Self> {
        let integrity = conn.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
        let mut tables = Self {
            integrity,
            instances: BTreeMap::new(),
            executions: BTreeMap::new(),
            messages: Vec::new(),
            activities: Vec::new(),
            dead_letters: Vec::new(),
        };
        let has_schema: i64 = conn.query_row(
            "SELECT count(*) FROM sqlite_schema WHERE name = 'everturn_instances'",
            [],
            |row| row.get(0),
        )?;
        if has_schema == 1 {
            tables.read_instances(conn)?;
            tables.read_kv(conn)?;
            tables.read_queues(conn)?;
        }
        Ok(tables)
    }

    fn read_instances(&mut self, conn: &Connection) -> rusqlite::Result<()> {
        each(
            conn,
            "SELECT instance_id, current_execution_id, lock_token IS NOT NULL, custom_status FROM everturn_instances \
             LEFT JOIN everturn_custom_statuses USING (instance_key)",
            |row| {
                let instance = InstanceRow {
                    current_execution_id: row.get::<_, Option<i64>>(1)?.map(i64::cast_unsigned),
                    locked: row.get(2)?,
                    custom_status: row.get(3)?,
                    kv: BTreeMap::new(),
                };
                self.instances.insert(row.get(0)?, instance);
                Ok(())
            },
        )?;
        let executions = "SELECT instance_id, execution_id, e.status, \
             iif(execution_id = current_execution_id, i.event_count, e.event_count), \
             iif(execution_id = current_execution_id, i.event_bytes, e.event_bytes) \
             FROM everturn_executions AS e JOIN everturn_instances AS i USING (instance_key)";
        each(conn, executions, |row| {
            let execution = ExecutionRow {
                status: row.get(2)?,
                event_count: number(row, 3)?,
                event_bytes: number(row, 4)?,
                events: Vec::new(),
            };
            self.executions.insert((row.get(0)?, number(row, 1)?), execution);
            Ok(())
        })?;
        let rows = "SELECT instance_id, execution_id, events \
             FROM everturn_history JOIN everturn_instances USING (instance_key) \
             ORDER BY instance_key, execution_id, first_event_id";
        each(conn, rows, |row| {
            let events: Vec<Event> =
                serde_json::from_str(&row.get::<_, String>(2)?).expect("events are readable");
            let execution = self.executions.get_mut(&(row.get(0)?, number(row, 1)?));
            let execution = execution.expect("events belong to an execution");
            execution.events.extend(events.into_iter().map(|event| {
                let data = serde_json::to_string(&event).expect("an event is written as it was read");
                (event, data)
            }));
            Ok(())
        })
    }

    /// The keys that completed executions left, overwritten by those of the current execution.
    fn read_kv(&mut self, conn: &Connection) -> rusqlite::Result<()> {
        for table in ["everturn_kv_base", "everturn_kv_delta"] {
            let sql = format!(
                "SELECT instance_id, key, value FROM {table} JOIN everturn_instances USING (instance_key)"
            );
            each(conn, &sql, |row| {
                let instance = self.instances.get_mut(&row.get::<_, String>(0)?);
                let kv = &mut instance.expect("a key belongs to an instance").kv;
                match row.get::<_, Option<String>>(2)? {
                    Some(value) => kv.insert(row.get(1)?, value),
                    None => kv.remove(&row.get::<_, String>(1)?),
                };
                Ok(())
            })?;
        }
        Ok(())
    }

    fn read_queues(&mut self, conn: &Connection) -> rusqlite::Result<()> {
        each(
            conn,
            "SELECT coalesce(q.work_item, p.work_item), q.tagged FROM everturn_orchestrator_queue AS q \
             LEFT JOIN everturn_message_payloads AS p ON p.seq = q.seq ORDER BY q.seq",
            |row| {
                let item: String = row.get(0)?;
                let item = serde_json::from_str(&item).expect("a message is readable");
                self.messages.push(MessageRow { item, tagged: row.get(1)? });
                Ok(())
            },
        )?;
        each(
            conn,
            "SELECT instance_id, execution_id, activity_id FROM everturn_worker_queue ORDER BY seq",
            |row| {
                self.activities.push(ActivityRow { of: (row.get(0)?, number(row, 1)?, number(row, 2)?) });
                Ok(())
            },
        )?;
        each(conn, "SELECT reason FROM everturn_dead_letters ORDER BY dead_letter_key", |row| {
            self.dead_letters.push(row.get(0)?);
            Ok(())
        })
    }

    /// The executions of an instance, in order.
    pub fn executions_of<'a>(&'a self, instance: &'a str) -> impl Iterator<Item = (u64, &'a ExecutionRow)> {
        let all = (instance.to_owned(), 0)..=(instance.to_owned(), u64::MAX);
        self.executions.range(all).map(|((_, number), execution)| (*number, execution))
    }

    /// Whether an instance has ended.
    pub fn has_ended(&self, instance: &str) -> bool {
        self.executions_of(instance)
            .last()
            .is_some_and(|(_, last)| last.status == "Completed" || last.status == "Failed")
    }

    /// The messages to an instance.
    pub fn messages_to<'a>(&'a self, instance: &'a str) -> impl Iterator<Item = &'a WorkItem> {
        self.messages.iter().map(|message| &message.item).filter(move |item| item.instance() == instance)
    }
}

/// Removes all rows except those of these instances, their children and the instances they detached.
pub fn keep_only(conn: &Connection, instances: &BTreeSet<String>) -> rusqlite::Result<()> {
    let is_theirs = |name: &str| {
        instances.iter().any(|id| {
            let rest = name.strip_prefix(id.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-') || rest.starts_with("::"))
        })
    };
    conn.pragma_update(None, "foreign_keys", "OFF")?;
    conn.execute("DELETE FROM everturn_dead_letters WHERE instance_id IS NULL", [])?;
    for table in ["everturn_instances", "everturn_worker_queue", "everturn_dead_letters"] {
        let mut select = conn.prepare(&format!("SELECT DISTINCT CAST(instance_id AS BLOB) FROM {table}"))?;
        let names: Vec<Vec<u8>> = select.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
        let others = names.iter().filter(|name| !std::str::from_utf8(name).is_ok_and(is_theirs));
        for name in others {
            conn.execute(&format!("DELETE FROM {table} WHERE CAST(instance_id AS BLOB) = ?1"), [name])?;
        }
    }
    for table in [
        "everturn_executions",
        "everturn_history",
        "everturn_orchestrator_queue",
        "everturn_custom_statuses",
        "everturn_kv_base",
        "everturn_kv_delta",
    ] {
        let keys = "SELECT instance_key FROM everturn_instances";
        conn.execute(&format!("DELETE FROM {table} WHERE instance_key NOT IN ({keys})"), [])?;
    }
    Ok(())
}

/// How many messages, activities and locks there are.
pub fn pending_rows(conn: &Connection) -> rusqlite::Result<u64> {
    const PENDING: &str = "SELECT (SELECT count(*) FROM everturn_orchestrator_queue) + (SELECT count(*) FROM everturn_worker_queue) \
         + (SELECT count(*) FROM everturn_instances WHERE lock_token IS NOT NULL)";
    conn.query_row(PENDING, [], |row| number(row, 0))
}

fn each(
    conn: &Connection,
    sql: &str,
    mut read: impl FnMut(&Row<'_>) -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    let mut statement = conn.prepare(sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        read(row)?;
    }
    Ok(())
}

fn number(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get(column).map(i64::cast_unsigned)
}
