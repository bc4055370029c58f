//! Moving the write-ahead log into the database file.

use rusqlite::Connection;

use crate::error::SqliteError;

/// Pages in the log above which they are moved without waiting for readers: 4 MiB.
const PASSIVE_PAGES: i64 = 1_024;
/// Pages in the log above which it is emptied, waiting for readers, so that it cannot grow without bound: 64 MiB.
const TRUNCATE_PAGES: i64 = 16_384;

/// Pages in the log above which it is emptied while room is short: 256 KiB.
const SHORT_PAGES: i64 = 64;
/// For how many batches after a lost one room counts as short.
const SHORT_BATCHES: u32 = 1_000;

/// Decides when to checkpoint. SQLite would do it inside a commit, before any caller is answered.
#[derive(Debug)]
pub(crate) struct Checkpointer {
    next_at: i64,
    /// For how many more batches the log is kept short.
    short_batches: u32,
}

impl Default for Checkpointer {
    fn default() -> Self {
        Self { next_at: PASSIVE_PAGES, short_batches: 0 }
    }
}

impl Checkpointer {
    /// The batch is answered: moves the log if it has grown enough.
    pub(crate) fn after_batch(&mut self, conn: &Connection) {
        self.short_batches = self.short_batches.saturating_sub(1);
        let Ok(state) = run(conn, "PRAGMA wal_checkpoint(NOOP)") else { return };
        let bound = self.bound();
        if state.log_pages < bound {
            self.next_at = bound;
        }
        if state.log_pages < self.next_at {
            return;
        }
        let sql = if self.short_batches > 0 || state.log_pages >= TRUNCATE_PAGES {
            "PRAGMA wal_checkpoint(TRUNCATE)"
        } else {
            "PRAGMA wal_checkpoint(PASSIVE)"
        };
        self.move_log(conn, sql, state.log_pages);
    }

    /// A batch was lost, perhaps because the disk is full: empties the log and keeps it short for a while. On a disk with
    /// less room than the log may take, it would never grow to the size at which it is moved, and no write could succeed.
    pub(crate) fn after_loss(&mut self, conn: &Connection) {
        self.short_batches = SHORT_BATCHES;
        match run(conn, "PRAGMA wal_checkpoint(NOOP)") {
            Ok(state) if state.log_pages > 0 => {
                self.move_log(conn, "PRAGMA wal_checkpoint(TRUNCATE)", state.log_pages);
            }
            _ => {}
        }
    }

    fn bound(&self) -> i64 {
        if self.short_batches > 0 { SHORT_PAGES } else { PASSIVE_PAGES }
    }

    fn move_log(&mut self, conn: &Connection, sql: &str, log_pages: i64) {
        let left = match run(conn, sql) {
            Ok(state) => {
                metrics::counter!("everturn_sqlite_checkpoints_total").increment(1);
                state.log_pages.max(0)
            }
            Err(error) => {
                tracing::warn!(target: "everturn::providers::sqlite", %error, "moving the write-ahead log into the database file failed; it is tried again when the log has grown");
                log_pages
            }
        };
        // A reader may hold part of the log; a new attempt after every batch would only cost time.
        self.next_at = left.saturating_add(self.bound());
    }
}

/// Moves the whole log into the database file and empties it.
pub(crate) fn truncate(conn: &Connection) -> Result<(), SqliteError> {
    let state = run(conn, "PRAGMA wal_checkpoint(TRUNCATE)")
        .map_err(|error| SqliteError::sqlite("moving the log into the database file", error))?;
    if state.blocked {
        return Err(SqliteError::database(
            "moving the log into the database file: a reader holds part of it",
        ));
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
