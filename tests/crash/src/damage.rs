//! Damages stored data past the provider: any bit of any value in any row of an instance.

use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, Row, params_from_iter};

use everturn_simulation::SeededRandom;

/// The tables with rows of an instance, and which rows those are.
const TABLES: [(&str, &str); 11] = [
    ("everturn_instances", "instance_id = ?1"),
    ("everturn_worker_queue", "instance_id = ?1"),
    ("everturn_sessions", "session_id = ?1"),
    ("everturn_executions", OWNED),
    ("everturn_history", OWNED),
    ("everturn_orchestrator_queue", OWNED),
    (
        "everturn_message_payloads",
        "seq IN (SELECT q.seq FROM everturn_orchestrator_queue AS q JOIN everturn_instances USING (instance_key) \
         WHERE instance_id = ?1)",
    ),
    (
        "everturn_activity_payloads",
        "seq IN (SELECT q.seq FROM everturn_worker_queue AS q WHERE q.instance_id = ?1)",
    ),
    ("everturn_custom_statuses", OWNED),
    ("everturn_kv_base", OWNED),
    ("everturn_kv_delta", OWNED),
];
const OWNED: &str = "instance_key = (SELECT instance_key FROM everturn_instances WHERE instance_id = ?1)";

/// The low bits of a key are not flipped: the result could be the key of another instance.
const KEY_BITS: u64 = 8;

/// Damages a random value of this instance. Returns a description, or `None` if there was no such row or a constraint
/// of the schema rejected the value.
pub fn damage(
    conn: &Connection,
    instance: &str,
    random: &mut SeededRandom,
) -> rusqlite::Result<Option<String>> {
    conn.pragma_update(None, "ignore_check_constraints", "ON")?;
    conn.pragma_update(None, "foreign_keys", "OFF")?;
    let (table, rows) = TABLES[random.index(TABLES.len())];
    let columns = columns(conn, table)?;
    let keys: Vec<&str> = columns.iter().filter(|(_, is_key)| *is_key).map(|(name, _)| &**name).collect();
    let (column, _) = &columns[random.index(columns.len())];
    let select = format!("SELECT {}, {column} FROM {table} WHERE {rows}", keys.join(", "));
    let mut found: Vec<(Vec<Value>, Value)> = conn
        .prepare(&select)?
        .query_map([instance], |row| {
            let key = (0..keys.len()).map(|place| row.get(place)).collect::<Result<_, _>>()?;
            Ok((key, bytes_or_number(row, keys.len())?))
        })?
        .collect::<Result<_, _>>()?;
    if found.is_empty() {
        return Ok(None);
    }
    let (mut key, stored) = found.swap_remove(random.index(found.len()));
    let lowest_bit = if column == "instance_key" { KEY_BITS } else { 0 };
    let (value, place) = match damaged(stored.clone(), lowest_bit, random) {
        Value::Blob(bytes) if !random.percent(5) => (Value::Blob(bytes), "CAST(?1 AS TEXT)"),
        other => (other, "?1"),
    };
    let by_key: Vec<String> =
        keys.iter().enumerate().map(|(place, name)| format!("{name} = ?{}", place + 2)).collect();
    let update = format!("UPDATE {table} SET {column} = {place} WHERE {}", by_key.join(" AND "));
    key.insert(0, value.clone());
    match conn.execute(&update, params_from_iter(key)) {
        Ok(0) => Ok(None),
        Ok(_) => Ok(Some(format!(
            "{table}.{column} of {instance}: {} became {}",
            describe(&stored),
            describe(&value)
        ))),
        Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::ConstraintViolation) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The columns of a table, and whether they are part of its key.
fn columns(conn: &Connection, table: &str) -> rusqlite::Result<Vec<(String, bool)>> {
    conn.prepare("SELECT name, pk > 0 FROM pragma_table_info(?1)")?
        .query_map([table], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect()
}

/// A value; text is read as bytes, because damaged text need not be valid UTF-8.
fn bytes_or_number(row: &Row<'_>, place: usize) -> rusqlite::Result<Value> {
    Ok(match row.get_ref(place)? {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Value::Blob(bytes.to_vec()),
        ValueRef::Integer(number) => Value::Integer(number),
        ValueRef::Real(number) => Value::Real(number),
        ValueRef::Null => Value::Null,
    })
}

fn damaged(stored: Value, lowest_bit: u64, random: &mut SeededRandom) -> Value {
    match stored {
        _ if random.percent(8) => Value::Null,
        Value::Integer(number) => {
            Value::Integer(number ^ (1_i64 << (lowest_bit + random.modulo(64 - lowest_bit))))
        }
        Value::Blob(mut bytes) if !bytes.is_empty() => {
            let at = random.index(bytes.len());
            match random.modulo(6) {
                0 => bytes.truncate(at),
                1 => bytes.extend((0..40).map(|_| random.next_u64() as u8)),
                2 => bytes[at..].iter_mut().take(8).for_each(|byte| *byte = random.next_u64() as u8),
                _ => bytes[at] ^= 1 << random.modulo(8),
            }
            Value::Blob(bytes)
        }
        Value::Null if random.percent(50) => Value::Integer(random.next_u64().cast_signed()),
        _ => Value::Blob((0..random.modulo(40)).map(|_| random.next_u64() as u8).collect()),
    }
}

fn describe(value: &Value) -> String {
    match value {
        Value::Blob(bytes) => format!("{:?}", String::from_utf8_lossy(bytes)),
        other => format!("{other:?}"),
    }
}
