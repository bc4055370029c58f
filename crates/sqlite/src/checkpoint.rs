//! Moving the write-ahead log into the database file.

use rusqlite::Connection;

use crate::error::SqliteError;

/// Pages in the log above which they are moved without waiting for anybody: 4 MiB.
const PASSIVE_PAGES: i64 = 1_024;
/// Pages in the log above which it is emptied: readers that keep it long must not let it grow without bound. 64 MiB.
const TRUNCATE_PAGES: i64 = 16_384;

/// Decides when to checkpoint. SQLite would do it inside a commit, before anybody is answered.
#[derive(Debug)]
pub(crate) struct Checkpointer {
    next_at: i64,
}

impl Default for Checkpointer {
    fn default() -> Self {
        Self { next_at: PASSIVE_PAGES }
    }
}

impl Checkpointer {
    /// The batch is answered: moves the log if it has grown enough.
    pub(crate) fn after_batch(&mut self, conn: &Connection) {
        let Ok(state) = run(conn, "PRAGMA wal_checkpoint(NOOP)") else { return };
        if state.log_pages < PASSIVE_PAGES {
            self.next_at = PASSIVE_PAGES;
        }
        if state.log_pages < self.next_at {
            return;
        }
        let sql = if state.log_pages >= TRUNCATE_PAGES {
            "PRAGMA wal_checkpoint(TRUNCATE)"
        } else {
            "PRAGMA wal_checkpoint(PASSIVE)"
        };
        match run(conn, sql) {
            Ok(state) => {
                metrics::counter!("everturn_sqlite_checkpoints_total").increment(1);
                // A reader may hold part of the log; trying again after every batch would only cost.
                self.next_at = state.log_pages.max(0).saturating_add(PASSIVE_PAGES);
            }
            Err(error) => {
                tracing::warn!(target: "everturn::providers::sqlite", %error, "checkpoint failed");
                self.next_at = state.log_pages.saturating_add(PASSIVE_PAGES);
            }
        }
    }
}

/// Moves the whole log into the database file and empties it.
pub(crate) fn truncate(conn: &Connection) -> Result<(), SqliteError> {
    let state = run(conn, "PRAGMA wal_checkpoint(TRUNCATE)")
        .map_err(|error| SqliteError::sqlite("moving the log into the database file", error))?;
    if state.blocked {
        return Err(SqliteError::database("moving the log into the database file: a reader is in the way"));
    }
    Ok(())
}

struct LogState {
    blocked: bool,
    log_pages: i64,
}

fn run(conn: &Connection, sql: &str) -> Result<LogState, rusqlite::Error> {
    conn.prepare_cached(sql)?
        .query_row([], |row| Ok(LogState { blocked: row.get(0)?, log_pages: row.get(1)? }))
}
