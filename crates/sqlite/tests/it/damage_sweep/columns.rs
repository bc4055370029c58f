//! Every stored column, as the database itself lists them, and what can happen to its values.

use std::path::Path;
use std::time::Duration;

use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, params_from_iter};

/// The instance whose rows are damaged.
pub(crate) const DAMAGED: &str = "damaged";

/// One column of one table.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    pub(crate) table: String,
    pub(crate) name: String,
    is_text: bool,
}

/// What happens to a stored value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Damage {
    Null,
    Empty,
    Truncated,
    BitFlip,
    WrongType,
    Fraction,
    UnknownVariant,
    Huge,
}

impl Damage {
    pub(crate) const ALL: [Self; 8] = [
        Self::Null,
        Self::Empty,
        Self::Truncated,
        Self::BitFlip,
        Self::WrongType,
        Self::Fraction,
        Self::UnknownVariant,
        Self::Huge,
    ];
}

/// A value to be stored; text need not be UTF-8.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Stored {
    Null,
    Integer(i64),
    Real(f64),
    Text(Vec<u8>),
    Blob(Vec<u8>),
}

/// What an attempt to damage rows led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Applied {
    /// There was nothing to change.
    Nothing,
    /// The schema accepts it.
    Written,
    /// A constraint refuses it; only a failing disk can do it, and did.
    Forced,
    /// Not even a failing disk can: the file format has no such value in this place.
    Impossible,
}

fn connect(path: &Path) -> Connection {
    let conn = Connection::open(path).unwrap();
    conn.pragma_update(None, "foreign_keys", "ON").unwrap();
    conn.busy_timeout(Duration::from_secs(5)).unwrap();
    conn.pragma_update(None, "synchronous", "OFF").unwrap();
    conn
}

/// All columns of all tables.
pub(crate) fn columns(path: &Path) -> Vec<Column> {
    let conn = connect(path);
    let mut select = conn
        .prepare(
            "SELECT t.name, c.name, c.type FROM sqlite_schema AS t JOIN pragma_table_info(t.name) AS c \
             WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%' ORDER BY t.name, c.cid",
        )
        .unwrap();
    let columns = select.query_map([], |row| {
        let declared: String = row.get(2)?;
        assert!(matches!(declared.as_str(), "TEXT" | "INTEGER"), "a column of type {declared}");
        Ok(Column { table: row.get(0)?, name: row.get(1)?, is_text: declared == "TEXT" })
    });
    columns.unwrap().collect::<Result<_, _>>().unwrap()
}

/// Which rows of a table are damaged: those of the damaged instance.
fn rows_of_the_damaged(table: &str) -> String {
    let owned = format!(
        "instance_key = (SELECT instance_key FROM everturn_instances WHERE instance_id = '{DAMAGED}')"
    );
    match table {
        "everturn_instances" | "everturn_worker_queue" | "everturn_dead_letters" => {
            format!("instance_id = '{DAMAGED}'")
        }
        // In the middle of a history: neither the first row nor the last.
        "everturn_history" => format!("{owned} AND execution_id = 2 AND first_event_id = 3"),
        "everturn_message_payloads" => {
            format!("seq IN (SELECT seq FROM everturn_orchestrator_queue WHERE {owned})")
        }
        "everturn_activity_payloads" => {
            format!("seq IN (SELECT seq FROM everturn_worker_queue WHERE instance_id = '{DAMAGED}')")
        }
        "everturn_custom_statuses"
        | "everturn_executions"
        | "everturn_kv_undo"
        | "everturn_orchestrator_queue"
        | "everturn_kv_base"
        | "everturn_kv_delta" => owned,
        // Nothing writes them yet.
        "everturn_holds" | "everturn_nodes" | "everturn_records" => "1 = 0".to_owned(),
        // It names no row here: a large deletion is needed for that. `bulk_delete` damages it.
        "everturn_garbage" => "1 = 0".to_owned(),
        // They belong to no instance, and must disturb none.
        "everturn_totals" => "1 = 1".to_owned(),
        "everturn_sessions" => format!("session_id = 'session-{DAMAGED}'"),
        other => panic!("this test does not know which rows of {other} belong to an instance"),
    }
}

/// The value after the damage; `None` if that is the value it has.
pub(crate) fn damaged(column: &Column, stored: &Stored, damage: Damage) -> Option<Stored> {
    let text = |text: &str| Stored::Text(text.as_bytes().to_vec());
    let after = match (damage, stored) {
        (Damage::Null, _) => Stored::Null,
        (Damage::Empty, _) if column.is_text => text(""),
        (Damage::Empty, _) => Stored::Integer(0),
        (Damage::Truncated | Damage::BitFlip, Stored::Null | Stored::Real(_)) => return None,
        (Damage::Truncated, Stored::Text(bytes) | Stored::Blob(bytes)) => {
            Stored::Text(bytes[..bytes.len() / 2].to_vec())
        }
        (Damage::Truncated, Stored::Integer(number)) => Stored::Integer(number & 0x1),
        (Damage::BitFlip, Stored::Text(bytes) | Stored::Blob(bytes)) => {
            flipped(bytes, bytes.len() / 2 * 8 + 7)
        }
        (Damage::BitFlip, Stored::Integer(number)) => Stored::Integer(number ^ (1 << 40)),
        (Damage::WrongType, _) if column.is_text => Stored::Blob(vec![0, 0xff, 1]),
        (Damage::WrongType, _) => text("twelve"),
        // It would become text.
        (Damage::Fraction, _) if column.is_text => return None,
        (Damage::Fraction, _) => Stored::Real(123.5),
        (Damage::UnknownVariant, _) if column.name == "parent_instance_id" => text(DAMAGED),
        (Damage::UnknownVariant, _) if is_json(column) => text(r#"{"type":"Nonsense","Nonsense":{}}"#),
        (Damage::UnknownVariant, _) if column.is_text => text("Nonsense"),
        (Damage::UnknownVariant, _) => Stored::Integer(-7),
        (Damage::Huge, _) if column.is_text => Stored::Text(vec![b'x'; 2_000_000]),
        (Damage::Huge, _) => Stored::Integer(i64::MAX),
    };
    (after != *stored).then_some(after)
}

fn is_json(column: &Column) -> bool {
    matches!(column.name.as_str(), "work_item" | "events")
}

/// The bytes with one bit flipped.
pub(crate) fn flipped(bytes: &[u8], bit: usize) -> Stored {
    let mut bytes = bytes.to_vec();
    let at = (bit / 8).min(bytes.len().saturating_sub(1));
    if let Some(byte) = bytes.get_mut(at) {
        *byte ^= 1 << (bit % 8);
    }
    Stored::Text(bytes)
}

/// Damages a column of the damaged instance's rows, behind the provider.
pub(crate) fn apply(path: &Path, column: &Column, change: &dyn Fn(&Stored) -> Option<Stored>) -> Applied {
    let rows = changes(&connect(path), column, change);
    if rows.is_empty() {
        return Applied::Nothing;
    }
    if write(&connect(path), column, &rows) {
        return Applied::Written;
    }
    let strict = loosened(path, &column.table);
    let conn = connect(path);
    conn.pragma_update(None, "ignore_check_constraints", "ON").unwrap();
    conn.pragma_update(None, "foreign_keys", "OFF").unwrap();
    let written = write(&conn, column, &rows);
    drop(conn);
    write_schema(path, &column.table, &strict);
    if written { Applied::Forced } else { Applied::Impossible }
}

/// A row that changes: its primary key, and the new value.
type Change = (Vec<(String, Value)>, Stored);

fn changes(conn: &Connection, column: &Column, change: &dyn Fn(&Stored) -> Option<Stored>) -> Vec<Change> {
    let key_columns: Vec<String> = conn
        .prepare(&format!("SELECT name FROM pragma_table_info('{}') WHERE pk > 0 ORDER BY pk", column.table))
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    let keys = key_columns.join(", ");
    let (table, name, rows) = (&column.table, &column.name, rows_of_the_damaged(&column.table));
    let mut select = conn.prepare(&format!("SELECT {keys}, {name} FROM {table} WHERE {rows}")).unwrap();
    let mut found = select.query([]).unwrap();
    let mut changed = Vec::new();
    while let Some(row) = found.next().unwrap() {
        let key: Vec<(String, Value)> = key_columns
            .iter()
            .enumerate()
            .map(|(place, name)| (name.clone(), row.get::<_, Value>(place).unwrap()))
            .collect();
        let stored = match row.get_ref(key_columns.len()).unwrap() {
            ValueRef::Null => Stored::Null,
            ValueRef::Integer(number) => Stored::Integer(number),
            ValueRef::Text(bytes) => Stored::Text(bytes.to_vec()),
            ValueRef::Blob(bytes) => Stored::Blob(bytes.to_vec()),
            ValueRef::Real(number) => Stored::Real(number),
        };
        changed.extend(change(&stored).map(|after| (key, after)));
    }
    changed
}

/// Writes the changes; `false` if none of them is accepted.
fn write(conn: &Connection, column: &Column, rows: &[Change]) -> bool {
    let mut written = false;
    for (key, after) in rows {
        let (placeholder, value) = match after {
            Stored::Null => ("?1", Value::Null),
            Stored::Integer(number) => ("?1", Value::Integer(*number)),
            Stored::Real(number) => ("?1", Value::Real(*number)),
            // Bytes that are no UTF-8 are stored as text all the same.
            Stored::Text(bytes) => ("CAST(?1 AS TEXT)", Value::Blob(bytes.clone())),
            Stored::Blob(bytes) => ("?1", Value::Blob(bytes.clone())),
        };
        let place: Vec<String> =
            key.iter().enumerate().map(|(nth, (name, _))| format!("{name} = ?{}", nth + 2)).collect();
        let sql = format!(
            "UPDATE {} SET {} = {placeholder} WHERE {}",
            column.table,
            column.name,
            place.join(" AND ")
        );
        let params = std::iter::once(value).chain(key.iter().map(|(_, value)| value.clone()));
        written |= conn.execute(&sql, params_from_iter(params)).is_ok_and(|rows| rows > 0);
    }
    written
}

/// Removes the types and the NOT NULLs from a table's definition; returns the old definition.
fn loosened(path: &Path, table: &str) -> String {
    let strict: String = connect(path)
        .query_row("SELECT sql FROM sqlite_schema WHERE name = ?1", [table], |row| row.get(0))
        .unwrap();
    let loose = strict
        .replace("IS NOT NULL", "NOTNULL")
        .replace(" NOT NULL", "")
        .replace(") STRICT, WITHOUT", ") WITHOUT")
        .replace(") STRICT", ")");
    write_schema(path, table, &loose);
    strict
}

/// Replaces the definition of a table. Open connections do not notice, as they would not notice a failing disk.
fn write_schema(path: &Path, table: &str, definition: &str) {
    let conn = connect(path);
    conn.pragma_update(None, "writable_schema", "ON").unwrap();
    let sql = "UPDATE sqlite_schema SET sql = ?2 WHERE name = ?1";
    assert_eq!(conn.execute(sql, [table, definition]).unwrap(), 1);
}
