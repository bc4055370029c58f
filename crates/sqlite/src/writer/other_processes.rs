//! The watch on other processes that share the database file.

use std::time::Duration;

use everturn_provider::Clock;
use rusqlite::Connection;

use crate::writer::connection::{BUSY_PAUSE, WriteConnection};

/// How often the writer looks for other processes' commits while a fetch is parked or a client watches an instance.
pub(crate) const FOREIGN_LOOK: Duration = Duration::from_millis(250);
/// How long after another process's commit the writer leaves gaps between its batches.
const FOREIGN_PRESENCE: Duration = Duration::from_secs(1);

/// What the writer knows of other processes.
#[derive(Debug)]
pub(crate) struct OtherProcesses {
    /// Whether there can be others: not for a database in memory.
    in_file: bool,
    /// Changes when another connection commits.
    data_version: i64,
    /// When another process's commit was last noticed.
    seen: Option<Duration>,
    /// How often in a row another process had the file locked.
    busy_rounds: u32,
}

impl OtherProcesses {
    pub(crate) fn new(conn: &Connection, in_file: bool) -> Result<Self, rusqlite::Error> {
        Ok(Self { in_file, data_version: data_version(conn)?, seen: None, busy_rounds: 0 })
    }

    /// Whether other processes may share the database.
    pub(crate) fn are_possible(&self) -> bool {
        self.in_file
    }

    /// Whether another process has committed since the last look.
    pub(crate) fn have_committed(&mut self, db: &WriteConnection) -> Result<bool, rusqlite::Error> {
        if !self.in_file {
            return Ok(false);
        }
        let version = data_version(&db.conn)?;
        let changed = version != self.data_version;
        if changed {
            self.data_version = version;
            self.seen = Some(db.clock.monotonic());
        }
        Ok(changed)
    }

    /// Whether another process committed lately: the writer pauses between batches, so that it gets the file.
    pub(crate) fn need_gaps(&self, clock: &dyn Clock) -> bool {
        self.seen.is_some_and(|seen| clock.monotonic().saturating_sub(seen) < FOREIGN_PRESENCE)
    }

    /// The writer has the file.
    pub(crate) fn note_not_busy(&mut self) {
        self.busy_rounds = 0;
    }

    /// Another process has the file. Returns whether callers have waited for it long enough.
    pub(crate) fn note_busy(&mut self, busy_timeout: Duration) -> bool {
        self.busy_rounds = self.busy_rounds.saturating_add(1);
        let timed_out = BUSY_PAUSE.saturating_mul(self.busy_rounds) >= busy_timeout;
        if timed_out {
            self.busy_rounds = 0;
        }
        timed_out
    }
}

fn data_version(conn: &Connection) -> Result<i64, rusqlite::Error> {
    conn.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))
}
