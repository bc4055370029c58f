//! The tables as they are in the file, past the provider.

use std::collections::{BTreeMap, BTreeSet};

use everturn::Event;
use everturn_core::WorkItem;
use rusqlite::{Connection, Row};

/// Everything that is stored about instances.
pub struct Tables {
    /// What SQLite says of the file; "ok" if it is whole.
    pub integrity: String,
    /// Instances by id.
    pub instances: BTreeMap<String, Instance>,
    /// Executions by instance and number.
    pub executions: BTreeMap<(String, u64), Execution>,
    /// Messages to instances.
    pub messages: Vec<Message>,
    /// Activities to run.
    pub activities: Vec<Activity>,
    /// Why rows were set aside: whose they are cannot be told.
    pub set_aside: Vec<String>,
}

/// One instance that exists.
pub struct Instance {
    /// Its last execution.
    pub current_execution_id: Option<u64>,
    /// Whether somebody holds it.
    pub locked: bool,
    /// What it says of itself.
    pub custom_status: Option<String>,
    /// Its keys and their values.
    pub kv: BTreeMap<String, String>,
}

/// One execution.
pub struct Execution {
    /// Its status.
    pub status: String,
    /// How many events it says it has.
    pub event_count: u64,
    /// How many bytes they have together, as it says.
    pub event_bytes: u64,
    /// Its events, and each as it is stored.
    pub events: Vec<(Event, String)>,
}

/// One message.
pub struct Message {
    /// What it says.
    pub item: WorkItem,
    /// Whether it is in somebody's hands.
    pub tagged: bool,
}

/// One activity to run.
pub struct Activity {
    /// Who asked for it, in which execution, with which event.
    pub of: (String, u64, u64),
}

impl Tables {
    /// Reads everything.
    pub fn read(conn: &Connection) -> rusqlite::Result<Self> {
        let integrity = conn.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
        let mut tables = Self {
            integrity,
            instances: BTreeMap::new(),
            executions: BTreeMap::new(),
            messages: Vec::new(),
            activities: Vec::new(),
            set_aside: Vec::new(),
        };
        let there: i64 =
            conn.query_row("SELECT count(*) FROM sqlite_schema WHERE name = 'instances'", [], |row| {
                row.get(0)
            })?;
        if there == 1 {
            tables.read_instances(conn)?;
            tables.read_kv(conn)?;
            tables.read_queues(conn)?;
        }
        Ok(tables)
    }

    fn read_instances(&mut self, conn: &Connection) -> rusqlite::Result<()> {
        each(
            conn,
            "SELECT instance_id, current_execution_id, lock_token IS NOT NULL, custom_status FROM instances",
            |row| {
                let instance = Instance {
                    current_execution_id: row.get::<_, Option<i64>>(1)?.map(i64::cast_unsigned),
                    locked: row.get(2)?,
                    custom_status: row.get(3)?,
                    kv: BTreeMap::new(),
                };
                self.instances.insert(row.get(0)?, instance);
                Ok(())
            },
        )?;
        let executions = "SELECT instance_id, execution_id, status, event_count, event_bytes \
             FROM executions JOIN instances USING (instance_key)";
        each(conn, executions, |row| {
            let execution = Execution {
                status: row.get(2)?,
                event_count: number(row, 3)?,
                event_bytes: number(row, 4)?,
                events: Vec::new(),
            };
            self.executions.insert((row.get(0)?, number(row, 1)?), execution);
            Ok(())
        })?;
        let events = "SELECT instance_id, execution_id, event_data \
             FROM history JOIN instances USING (instance_key) ORDER BY instance_key, execution_id, event_id";
        each(conn, events, |row| {
            let data: String = row.get(2)?;
            let event = serde_json::from_str(&data).expect("an event is readable");
            let execution = self.executions.get_mut(&(row.get(0)?, number(row, 1)?));
            execution.expect("events belong to an execution").events.push((event, data));
            Ok(())
        })
    }

    /// What completed executions left, and what the current one wrote over it.
    fn read_kv(&mut self, conn: &Connection) -> rusqlite::Result<()> {
        for table in ["kv_base", "kv_delta"] {
            let sql =
                format!("SELECT instance_id, key, value FROM {table} JOIN instances USING (instance_key)");
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
        each(conn, "SELECT work_item, tagged FROM orchestrator_queue ORDER BY seq", |row| {
            let item: String = row.get(0)?;
            let item = serde_json::from_str(&item).expect("a message is readable");
            self.messages.push(Message { item, tagged: row.get(1)? });
            Ok(())
        })?;
        each(conn, "SELECT instance_id, execution_id, activity_id FROM worker_queue ORDER BY seq", |row| {
            self.activities.push(Activity { of: (row.get(0)?, number(row, 1)?, number(row, 2)?) });
            Ok(())
        })?;
        each(conn, "SELECT reason FROM set_aside ORDER BY set_aside_key", |row| {
            self.set_aside.push(row.get(0)?);
            Ok(())
        })
    }

    /// The executions of an instance, in order.
    pub fn executions_of<'a>(&'a self, instance: &'a str) -> impl Iterator<Item = (u64, &'a Execution)> {
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

/// Removes everything that does not belong to one of these instances, to their children or to those they began: of what
/// is damaged nothing can be said.
pub fn keep_only(conn: &Connection, instances: &BTreeSet<String>) -> rusqlite::Result<()> {
    let is_theirs = |name: &str| {
        instances.iter().any(|id| {
            let rest = name.strip_prefix(id.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-') || rest.starts_with("::"))
        })
    };
    conn.pragma_update(None, "foreign_keys", "OFF")?;
    conn.execute("DELETE FROM set_aside WHERE instance_id IS NULL", [])?;
    for table in ["instances", "worker_queue", "set_aside"] {
        let mut select = conn.prepare(&format!("SELECT DISTINCT CAST(instance_id AS BLOB) FROM {table}"))?;
        let names: Vec<Vec<u8>> = select.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
        let strangers = names.iter().filter(|name| !std::str::from_utf8(name).is_ok_and(is_theirs));
        for name in strangers {
            conn.execute(&format!("DELETE FROM {table} WHERE CAST(instance_id AS BLOB) = ?1"), [name])?;
        }
    }
    for table in ["executions", "history", "orchestrator_queue", "kv_base", "kv_delta"] {
        let keys = "SELECT instance_key FROM instances";
        conn.execute(&format!("DELETE FROM {table} WHERE instance_key NOT IN ({keys})"), [])?;
    }
    Ok(())
}

/// How many messages, activities and locks there are.
pub fn left_over(conn: &Connection) -> rusqlite::Result<u64> {
    const LEFT: &str = "SELECT (SELECT count(*) FROM orchestrator_queue) + (SELECT count(*) FROM worker_queue) \
         + (SELECT count(*) FROM instances WHERE lock_token IS NOT NULL)";
    conn.query_row(LEFT, [], |row| number(row, 0))
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
