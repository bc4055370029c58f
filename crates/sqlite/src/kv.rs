//! The key-value store of an instance: the base of completed executions, and the current execution's delta.

use std::collections::HashMap;

use everturn_core::KvEntry;
use everturn_provider::encoded::{KvChange, unsigned};
use rusqlite::{Connection, OptionalExtension, params};

use crate::columns;
use crate::operation::VerbFailure;

const SET: &str = "INSERT INTO everturn_kv_delta (instance_key, key, value, last_updated_at_ms) VALUES (?1, ?2, ?3, ?4) \
     ON CONFLICT (instance_key, key) DO UPDATE SET value = ?3, last_updated_at_ms = ?4";
const HAS_DELTA: &str = "SELECT 1 FROM everturn_kv_delta WHERE instance_key = ?1";
const CLEAR_DELTA: &str = "DELETE FROM everturn_kv_delta WHERE instance_key = ?1";
const HIDE_BASE: &str = "INSERT INTO everturn_kv_delta (instance_key, key, value, last_updated_at_ms) \
     SELECT instance_key, key, NULL, ?2 FROM everturn_kv_base WHERE instance_key = ?1";
const MERGE_CLEARED: &str = "DELETE FROM everturn_kv_base WHERE instance_key = ?1 AND key IN \
     (SELECT key FROM everturn_kv_delta WHERE everturn_kv_delta.instance_key = ?1 AND value IS NULL)";
const MERGE_SET: &str = "INSERT INTO everturn_kv_base (instance_key, key, value, last_updated_at_ms) \
     SELECT instance_key, key, value, last_updated_at_ms FROM everturn_kv_delta \
     WHERE instance_key = ?1 AND value IS NOT NULL \
     ON CONFLICT (instance_key, key) DO UPDATE SET value = excluded.value, \
         last_updated_at_ms = excluded.last_updated_at_ms";
const SELECT_SNAPSHOT: &str =
    "SELECT key, value, last_updated_at_ms FROM everturn_kv_base WHERE instance_key = ?1";
const SELECT_DELTA: &str = "SELECT key, value FROM everturn_kv_delta WHERE instance_key = ?1";
const SELECT_VALUE: &str = "SELECT CASE WHEN d.key IS NOT NULL THEN d.value ELSE b.value END FROM everturn_instances AS i \
     LEFT JOIN everturn_kv_delta AS d ON d.instance_key = i.instance_key AND d.key = ?2 \
     LEFT JOIN everturn_kv_base AS b ON b.instance_key = i.instance_key AND b.key = ?2 WHERE i.instance_id = ?1";
const SELECT_MERGED: &str = "SELECT d.key, d.value FROM everturn_instances AS i \
     JOIN everturn_kv_delta AS d ON d.instance_key = i.instance_key WHERE i.instance_id = ?1 AND d.value IS NOT NULL \
     UNION ALL SELECT b.key, b.value FROM everturn_instances AS i \
     JOIN everturn_kv_base AS b ON b.instance_key = i.instance_key WHERE i.instance_id = ?1 \
     AND NOT EXISTS (SELECT 1 FROM everturn_kv_delta AS d WHERE d.instance_key = i.instance_key AND d.key = b.key)";

/// Writes a turn's changes into the delta.
pub(crate) fn apply(conn: &Connection, key: i64, changes: &[KvChange]) -> Result<(), VerbFailure> {
    for change in changes {
        match change {
            KvChange::Set { key: name, value, at_ms } => {
                conn.prepare_cached(SET)?.execute(params![key, name, value, at_ms])?;
            }
            KvChange::Clear { key: name, at_ms } => {
                conn.prepare_cached(SET)?.execute(params![key, name, None::<String>, at_ms])?;
            }
            KvChange::ClearAll { at_ms } => {
                conn.prepare_cached(CLEAR_DELTA)?.execute([key])?;
                conn.prepare_cached(HIDE_BASE)?.execute(params![key, at_ms])?;
            }
        }
    }
    Ok(())
}

/// Merges the delta into the base: the execution has ended. Most executions write no keys.
pub(crate) fn merge(conn: &Connection, key: i64) -> Result<(), VerbFailure> {
    if !conn.prepare_cached(HAS_DELTA)?.exists([key])? {
        return Ok(());
    }
    conn.prepare_cached(MERGE_CLEARED)?.execute([key])?;
    conn.prepare_cached(MERGE_SET)?.execute([key])?;
    conn.prepare_cached(CLEAR_DELTA)?.execute([key])?;
    Ok(())
}

/// The key-value store as completed executions left it. What the current execution wrote is read too: an instance whose
/// keys are damaged fails here, visibly, and not when a client reads the key.
pub(crate) fn snapshot(conn: &Connection, key: i64) -> rusqlite::Result<HashMap<String, KvEntry>> {
    let mut delta = conn.prepare_cached(SELECT_DELTA)?;
    let mut rows = delta.query([key])?;
    while let Some(row) = rows.next()? {
        columns::name(row, 0)?;
        columns::nullable(row, 1)?;
    }
    conn.prepare_cached(SELECT_SNAPSHOT)?
        .query_map([key], |row| {
            let last_updated_at_ms = unsigned(row.get(2)?);
            Ok((columns::name(row, 0)?, KvEntry { value: columns::name(row, 1)?, last_updated_at_ms }))
        })?
        .collect()
}

/// A key as clients see it.
pub(crate) fn value(conn: &Connection, instance_id: &str, key: &str) -> rusqlite::Result<Option<String>> {
    let found: Option<Option<String>> =
        conn.prepare_cached(SELECT_VALUE)?.query_row([instance_id, key], |row| row.get(0)).optional()?;
    Ok(found.flatten())
}

/// All keys as clients see them.
pub(crate) fn all_values(conn: &Connection, instance_id: &str) -> rusqlite::Result<HashMap<String, String>> {
    conn.prepare_cached(SELECT_MERGED)?
        .query_map([instance_id], |row| Ok((columns::name(row, 0)?, columns::name(row, 1)?)))?
        .collect()
}
