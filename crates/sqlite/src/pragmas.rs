//! How each connection is set up. Every pragma is read back: SQLite ignores a value it does not know.

use rusqlite::Connection;
use rusqlite::config::DbConfig;

use crate::error::SqliteError;
use crate::options::Synchronous;

/// Marks the file as ours: "Evtn".
pub(crate) const APPLICATION_ID: i64 = 0x4576_746E;

/// The log is cut to this size when it starts anew.
const JOURNAL_SIZE_LIMIT: i64 = 32 * 1024 * 1024;
/// The writer's page cache, in KiB (negative means KiB): the hot part of every index, so that a step reads nothing.
const WRITER_CACHE: &str = "-32768";
/// How many statements stay prepared: more than there are.
const PREPARED_STATEMENTS: usize = 256;

/// What must be set before a database has its first table: its file can give pages back to the disk.
pub(crate) fn set_up_new_file(conn: &Connection) -> Result<(), SqliteError> {
    let setting = ("auto_vacuum", "INCREMENTAL");
    conn.pragma_update(None, setting.0, setting.1).map_err(|error| {
        SqliteError::sqlite(format_args!("setting {} to {}", setting.0, setting.1), error)
    })?;
    if read(conn, setting.0)? != "2" {
        // Another program has made an empty database of the file.
        conn.execute_batch("VACUUM")
            .map_err(|error| SqliteError::sqlite("preparing the empty file", error))?;
    }
    set(conn, setting.0, setting.1, "2")
}

/// Sets up the connection that writes.
pub(crate) fn set_up_writer(
    conn: &Connection,
    in_file: bool,
    synchronous: Synchronous,
) -> Result<(), SqliteError> {
    keep_statements(conn)?;
    set(conn, "foreign_keys", "OFF", "0")?;
    set(conn, "cache_size", WRITER_CACHE, WRITER_CACHE)?;
    // Savepoints keep their undo pages here.
    set(conn, "temp_store", "MEMORY", "2")?;
    if in_file {
        set(conn, "journal_mode", "WAL", "wal")?;
        let level = match synchronous {
            Synchronous::Full => ("FULL", "2"),
            Synchronous::Normal => ("NORMAL", "1"),
        };
        set(conn, "synchronous", level.0, level.1)?;
        // Only macOS has a stronger sync than fsync; elsewhere this changes nothing.
        let strong = if synchronous == Synchronous::Full { ("ON", "1") } else { ("OFF", "0") };
        set(conn, "fullfsync", strong.0, strong.1)?;
        set(conn, "checkpoint_fullfsync", strong.0, strong.1)?;
        set(conn, "wal_autocheckpoint", "0", "0")?;
        let limit = JOURNAL_SIZE_LIMIT.to_string();
        set(conn, "journal_size_limit", &limit, &limit)?;
    }
    // Last, because another process may be recovering the file until here. From now on the writer itself waits for other
    // processes and serves its callers meanwhile.
    set(conn, "busy_timeout", "0", "0")
}

/// Sets up a connection that only reads.
pub(crate) fn set_up_reader(conn: &Connection) -> Result<(), SqliteError> {
    keep_statements(conn)?;
    // A reader waits only for recovery after a crash.
    set(conn, "busy_timeout", "1000", "1000")?;
    set(conn, "query_only", "ON", "1")
}

/// Statements are planned once. Without the guarantee SQLite plans a statement again whenever a parameter that could
/// matter to a partial index is bound anew, which costs more than everything else in a step.
fn keep_statements(conn: &Connection) -> Result<(), SqliteError> {
    conn.set_prepared_statement_cache_capacity(PREPARED_STATEMENTS);
    let stable = conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true);
    match stable {
        Ok(true) => Ok(()),
        Ok(false) => Err(SqliteError::database("stable query plans cannot be switched on")),
        Err(error) => Err(SqliteError::sqlite(format_args!("switching stable query plans on"), error)),
    }
}

/// Sets a pragma and reads it back.
pub(crate) fn set(conn: &Connection, name: &str, value: &str, expected: &str) -> Result<(), SqliteError> {
    let failed = |error| SqliteError::sqlite(format_args!("setting {name} to {value}"), error);
    conn.pragma_update(None, name, value).map_err(failed)?;
    let actual = read(conn, name)?;
    if actual == expected {
        Ok(())
    } else {
        Err(SqliteError::database(format!("setting {name} to {value}: it stayed at {actual}")))
    }
}

/// Reads from the file, so that an error of opening it comes now.
pub(crate) fn read_version(conn: &Connection) -> rusqlite::Result<()> {
    conn.pragma_query_value(None, "user_version", |_row| Ok(()))
}

/// The value of a pragma as text.
pub(crate) fn read(conn: &Connection, name: &str) -> Result<String, SqliteError> {
    conn.pragma_query_value(None, name, |row| {
        Ok(match row.get_ref(0)? {
            rusqlite::types::ValueRef::Integer(number) => number.to_string(),
            other => String::from_utf8_lossy(other.as_bytes_or_null()?.unwrap_or_default()).into_owned(),
        })
    })
    .map_err(|error| SqliteError::sqlite(format_args!("reading {name}"), error))
}
