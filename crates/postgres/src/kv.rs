//! Reads of the key-value store of an instance: the base of completed executions, and the current execution's delta.

use std::collections::HashMap;

use everturn_core::KvEntry;
use everturn_provider::ProviderError;
use everturn_provider::encoded::unsigned;
use tokio_postgres::{Error, Row};

use crate::error::storage_error;
use crate::provider::PostgresProvider;

const SELECT_SNAPSHOT: &str =
    "SELECT key, value, last_updated_at_ms FROM {schema}.everturn_kv_base WHERE instance_key = $1";
const SELECT_VALUE: &str = "SELECT CASE WHEN d.key IS NOT NULL THEN d.value ELSE b.value END \
     FROM {schema}.everturn_instances AS i \
     LEFT JOIN {schema}.everturn_kv_delta AS d ON d.instance_key = i.instance_key AND d.key = $2 \
     LEFT JOIN {schema}.everturn_kv_base AS b ON b.instance_key = i.instance_key AND b.key = $2 WHERE i.instance_id = $1";
const SELECT_MERGED: &str = "SELECT d.key, d.value FROM {schema}.everturn_instances AS i \
     JOIN {schema}.everturn_kv_delta AS d ON d.instance_key = i.instance_key \
     WHERE i.instance_id = $1 AND d.value IS NOT NULL \
     UNION ALL SELECT b.key, b.value FROM {schema}.everturn_instances AS i \
     JOIN {schema}.everturn_kv_base AS b ON b.instance_key = i.instance_key WHERE i.instance_id = $1 \
     AND NOT EXISTS (SELECT 1 FROM {schema}.everturn_kv_delta AS d \
         WHERE d.instance_key = i.instance_key AND d.key = b.key)";

/// The key-value store as completed executions left it.
pub(crate) async fn snapshot(
    provider: &PostgresProvider,
    key: i64,
) -> Result<HashMap<String, KvEntry>, ProviderError> {
    const NAME: &str = "fetch_turns";
    let rows = provider.readers().query(NAME, SELECT_SNAPSHOT, &[&key]).await?;
    let entries = rows.iter().map(entry).collect::<Result<HashMap<_, _>, _>>();
    entries.map_err(|error| storage_error(NAME, error))
}

fn entry(row: &Row) -> Result<(String, KvEntry), Error> {
    let entry = KvEntry { value: row.try_get(1)?, last_updated_at_ms: unsigned(row.try_get(2)?) };
    Ok((row.try_get(0)?, entry))
}

/// `read_kv_value`: a key as clients see it.
pub(crate) async fn value(
    provider: &PostgresProvider,
    instance: &str,
    key: &str,
) -> Result<Option<String>, ProviderError> {
    const NAME: &str = "read_kv_value";
    match provider.readers().query_opt(NAME, SELECT_VALUE, &[&instance, &key]).await? {
        Some(row) => row.try_get(0).map_err(|error| storage_error(NAME, error)),
        None => Ok(None),
    }
}

/// `read_kv_values`: all keys as clients see them.
pub(crate) async fn all_values(
    provider: &PostgresProvider,
    instance: &str,
) -> Result<HashMap<String, String>, ProviderError> {
    const NAME: &str = "read_kv_values";
    let rows = provider.readers().query(NAME, SELECT_MERGED, &[&instance]).await?;
    let pairs = rows.iter().map(pair).collect::<Result<HashMap<_, _>, _>>();
    pairs.map_err(|error| storage_error(NAME, error))
}

fn pair(row: &Row) -> Result<(String, String), Error> {
    Ok((row.try_get(0)?, row.try_get(1)?))
}
