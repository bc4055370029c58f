//! The schema, in numbered steps.

use rusqlite::{Connection, TransactionBehavior};

use crate::error::SqliteError;
use crate::pragmas::{self, APPLICATION_ID};

/// The steps in order; the file's `user_version` says how many it has taken.
const MIGRATIONS: &[&str] = &[include_str!("../migrations/0001_initial.sql")];

/// Migrates the file to this version of the schema. Refuses a file of a newer version, and a file of another application.
pub(crate) fn migrate(conn: &mut Connection) -> Result<(), SqliteError> {
    let failed = |error| SqliteError::sqlite("migrating the schema", error);
    // Two processes may open a new file at the same time.
    conn.busy_timeout(std::time::Duration::from_secs(10)).map_err(failed)?;
    let transaction = conn.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    let version = number(&transaction, "user_version")?;
    let known = MIGRATIONS.len();
    let version = usize::try_from(version).unwrap_or(usize::MAX);
    if version > known {
        return Err(SqliteError::newer_schema(format!(
            "the database has schema version {version}, which is newer than the {known} this library knows: \
             upgrade the library"
        )));
    }
    check_ownership(&transaction, version)?;
    let mut migrated = version;
    for migration in MIGRATIONS.iter().skip(version) {
        transaction.execute_batch(migration).map_err(failed)?;
        migrated += 1;
    }
    if migrated != version {
        transaction.pragma_update(None, "user_version", migrated.to_string()).map_err(failed)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID).map_err(failed)?;
    }
    transaction.commit().map_err(failed)?;
    conn.busy_timeout(std::time::Duration::ZERO).map_err(failed)
}

/// A file with tables that are not ours stays untouched.
fn check_ownership(conn: &Connection, version: usize) -> Result<(), SqliteError> {
    let application_id = number(conn, "application_id")?;
    let tables: i64 = conn
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(|error| SqliteError::sqlite("reading the schema", error))?;
    let is_new = version == 0 && application_id == 0 && tables == 0;
    if is_new || application_id == APPLICATION_ID {
        Ok(())
    } else {
        Err(SqliteError::database("the file is a database of another application; choose another path"))
    }
}

fn number(conn: &Connection, name: &str) -> Result<i64, SqliteError> {
    let text = pragmas::read(conn, name)?;
    text.parse().map_err(|_| SqliteError::database(format!("{name} is {text}")))
}
