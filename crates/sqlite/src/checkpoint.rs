//! Moving the write-ahead log into the database file, and emptying it.
//!
//! The log starts anew only when all of it was moved and no reader needs it. Readers that overlap leave no such moment by
//! themselves: above a bound, new readers of this provider are held until those under way are over. The writer goes on
//! meanwhile. Readers of other processes, and copies of the database, cannot be held: the log grows until they leave a gap.

use std::time::Duration;

use rusqlite::Connection;

use crate::error::SqliteError;
use crate::reader_gate::ReaderGate;

/// Pages in the log above which they are moved without waiting for readers: 4 MiB.
const PASSIVE_PAGES: i64 = 1_024;
/// Pages in the log above which readers are held, so that it can be emptied: 32 MiB.
const HOLD_PAGES: i64 = 8_192;
/// By how many pages the log grows at most before readers are held again, if it could not be emptied: 64 MiB.
const HOLD_AGAIN_PAGES: i64 = 16_384;

/// How long the writer waits for short reads of other processes before it goes on with a log that is not empty.
const OTHERS_WAIT: Duration = Duration::from_millis(50);
/// Pause before the next attempt meanwhile.
const OTHERS_PAUSE: Duration = Duration::from_millis(1);

/// Pages in the log above which it is emptied while room is short: 256 KiB.
const SHORT_PAGES: i64 = 64;
/// For how many batches after a lost one room counts as short.
const SHORT_BATCHES: u32 = 1_000;

/// Decides when to checkpoint. SQLite would do it inside a commit, before any caller is answered.
#[derive(Debug)]
pub(crate) struct Checkpointer {
    next_at: i64,
    /// Pages in the log above which readers are held next.
    hold_at: i64,
    /// For how many more batches the log is kept short.
    short_batches: u32,
    /// Whether a thread of its own drives the writer, which can wait for other processes.
    may_wait: bool,
    /// The operator was told that the log cannot be emptied.
    has_warned: bool,
}

impl Default for Checkpointer {
    fn default() -> Self {
        Self {
            next_at: PASSIVE_PAGES,
            hold_at: HOLD_PAGES,
            short_batches: 0,
            may_wait: true,
            has_warned: false,
        }
    }
}

impl Checkpointer {
    /// Never waits: the task that drives the writer shares its thread with all readers.
    pub(crate) fn never_wait(&mut self) {
        self.may_wait = false;
    }

    /// The batch is answered: moves the log if it has grown enough.
    pub(crate) fn after_batch(&mut self, conn: &Connection, readers: &ReaderGate) {
        self.short_batches = self.short_batches.saturating_sub(1);
        let Ok(state) = run(conn, "PRAGMA wal_checkpoint(NOOP)") else { return };
        self.note_size(state.log_pages);
        if readers.was_given_up() {
            self.warn(state.log_pages);
            self.postpone(state.log_pages);
        }
        let is_due = state.log_pages >= self.next_at.min(self.hold_at);
        if is_due && (self.short_batches > 0 || state.log_pages >= self.hold_at) {
            readers.hold();
            self.empty_unread(conn, readers);
            return;
        }
        // The log may have been emptied by another process.
        readers.open();
        if is_due {
            self.move_log(conn, "PRAGMA wal_checkpoint(PASSIVE)", state.log_pages);
        }
    }

    /// Empties the log if readers are held for it and those under way are over.
    pub(crate) fn empty_unread(&mut self, conn: &Connection, readers: &ReaderGate) {
        if !readers.is_clear() {
            // The last reader to leave wakes the writer.
            return;
        }
        let Ok(before) = run(conn, "PRAGMA wal_checkpoint(NOOP)") else { return readers.open() };
        let mut waited = Duration::ZERO;
        loop {
            match self.move_log(conn, "PRAGMA wal_checkpoint(TRUNCATE)", before.log_pages) {
                MovedLog::Whole => self.note_size(0),
                MovedLog::Failed => self.postpone(before.log_pages),
                MovedLog::Part if self.may_wait && self.short_batches == 0 && waited < OTHERS_WAIT => {
                    // When all of the log was moved and nothing is written, new readers need nothing of it.
                    std::thread::sleep(OTHERS_PAUSE);
                    waited += OTHERS_PAUSE;
                    continue;
                }
                MovedLog::Part => {
                    self.warn(before.log_pages);
                    self.postpone(before.log_pages);
                }
            }
            break;
        }
        readers.open();
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

    /// Notes that the log was emptied, if it was.
    fn note_size(&mut self, log_pages: i64) {
        if log_pages < self.bound() {
            self.next_at = self.bound();
        }
        if log_pages < HOLD_PAGES {
            self.hold_at = HOLD_PAGES;
            self.has_warned = false;
        }
    }

    /// The log could not be emptied: readers are held again when it has grown by as much as it has, or by 64 MiB.
    fn postpone(&mut self, log_pages: i64) {
        self.hold_at = log_pages.saturating_add(log_pages.clamp(HOLD_PAGES, HOLD_AGAIN_PAGES));
        self.next_at = log_pages.saturating_add(self.bound());
    }

    /// Tells the operator once, until the log was emptied.
    fn warn(&mut self, log_pages: i64) {
        if log_pages >= HOLD_PAGES && !std::mem::replace(&mut self.has_warned, true) {
            tracing::warn!(target: "everturn::providers::sqlite", log_mib = log_pages / 256,
                "the write-ahead log cannot be emptied: another process, a backup or a long read uses a part of it; \
                 it grows until there is a moment without such a reader");
        }
    }

    /// Moves what can be moved.
    fn move_log(&mut self, conn: &Connection, sql: &str, log_pages: i64) -> MovedLog {
        let (left, moved) = match run(conn, sql) {
            Ok(state) => {
                metrics::counter!("everturn_sqlite_checkpoints_total").increment(1);
                let moved = if state.blocked { MovedLog::Part } else { MovedLog::Whole };
                (state.log_pages.max(0), moved)
            }
            Err(error) => {
                tracing::warn!(target: "everturn::providers::sqlite", %error, "moving the write-ahead log into the database file failed; it is tried again when the log has grown");
                (log_pages, MovedLog::Failed)
            }
        };
        // A reader may hold part of the log; a new attempt after every batch would only cost time.
        self.next_at = left.saturating_add(self.bound());
        moved
    }
}

/// What became of an attempt to move the log.
enum MovedLog {
    Whole,
    /// A reader or another process needs the rest.
    Part,
    Failed,
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

#[cfg(test)]
mod tests;
