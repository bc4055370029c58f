//! The schema, in numbered steps.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};

use crate::error::SqliteError;
use crate::pragmas::{self, APPLICATION_ID};

/// The steps in order; the file's `user_version` says how many it has taken.
const MIGRATIONS: &[&str] = &[include_str!("../migrations/0001_initial.sql")];

/// Refuses a file of a newer version and a file of another application; reads only. Returns the file's version.
pub(crate) fn check(conn: &Connection, path: &Path) -> Result<usize, SqliteError> {
    let named =
        |error: rusqlite::Error| SqliteError::sqlite(format_args!("opening {}", path.display()), error);
    // One snapshot: another process may migrate a new file between two reads.
    let snapshot = conn.unchecked_transaction().map_err(named)?;
    let number =
        |name: &str| snapshot.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).map_err(named);
    let version = usize::try_from(number("user_version")?).unwrap_or(usize::MAX);
    let application_id = number("application_id")?;
    let tables: i64 =
        snapshot.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(named)?;
    let is_new = version == 0 && application_id == 0 && tables == 0;
    if !is_new && application_id != APPLICATION_ID {
        return Err(SqliteError::database(format!(
            "{} is a database of another application; choose another path",
            path.display()
        )));
    }
    if version > MIGRATIONS.len() {
        return Err(SqliteError::newer_schema(newer(version)));
    }
    Ok(version)
}

/// Why the file must not be used any more, if another process has migrated it to a newer version.
pub(crate) fn newer_version(conn: &Connection) -> rusqlite::Result<Option<String>> {
    let version: i64 = conn.prepare_cached("PRAGMA user_version")?.query_row([], |row| row.get(0))?;
    let version = usize::try_from(version).unwrap_or(usize::MAX);
    Ok((version > MIGRATIONS.len()).then(|| newer(version)))
}

fn newer(version: usize) -> String {
    let known = MIGRATIONS.len();
    format!(
        "the database has schema version {version}, which is newer than the {known} this library knows: \
         upgrade the library"
    )
}

/// Whether a file of this version must be migrated before it is used.
pub(crate) fn must_migrate(version: usize) -> bool {
    version < MIGRATIONS.len()
}

/// Migrates the file to this version of the schema.
pub(crate) fn migrate(conn: &mut Connection) -> Result<(), SqliteError> {
    let failed = |error| SqliteError::sqlite("migrating the schema", error);
    let transaction = conn.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    let text = pragmas::read(&transaction, "user_version")?;
    let version: usize =
        text.parse().map_err(|_| SqliteError::database(format!("user_version is {text}")))?;
    for migration in MIGRATIONS.iter().skip(version) {
        transaction.execute_batch(migration).map_err(failed)?;
    }
    transaction.pragma_update(None, "user_version", MIGRATIONS.len().to_string()).map_err(failed)?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID).map_err(failed)?;
    transaction.commit().map_err(failed)
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::time::Duration;

    use super::*;

    fn connect(path: &Path) -> Connection {
        let conn = Connection::open(path).unwrap();
        conn.busy_timeout(Duration::from_secs(10)).unwrap();
        conn
    }

    #[test]
    fn a_file_that_is_migrated_meanwhile_is_new_or_ours() {
        for round in 0..20 {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("new.db");
            let mut migrator = connect(&path);
            pragmas::set(&migrator, "journal_mode", "WAL", "wal").unwrap();
            let together = Barrier::new(2);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let conn = connect(&path);
                    together.wait();
                    loop {
                        match check(&conn, &path) {
                            Ok(version) if must_migrate(version) => {}
                            Ok(_) => break,
                            Err(error) => panic!("round {round}: the file was refused: {error}"),
                        }
                    }
                });
                together.wait();
                migrate(&mut migrator).unwrap();
            });
        }
    }
}
