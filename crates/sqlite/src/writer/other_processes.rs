//! The watch on other processes, and on other providers of this process, that share the database file.

use std::time::Duration;

use everturn_provider::Clock;
use rusqlite::Connection;

use crate::frozen_file::FrozenFile;
use crate::open_file;
use crate::owners::{OwnerFile, OwnerFolder, OwnerId};
use crate::schema;
use crate::store_guard::StoreGuard;
use crate::url::OpenMode;
use crate::writer::connection::{BUSY_PAUSE, WriteConnection};
use crate::writer::schedule::CLOCK_LOOK;
use crate::writers_of_process::ProcessWriters;

/// How often the writer looks for other processes' commits while they have the file open and a fetch is parked here or a
/// client watches an instance. A look costs microseconds.
const SHARED_LOOK: Duration = Duration::from_millis(5);
/// The same while no other process has the file open: how long the first commit of one that opens it goes unnoticed.
const ALONE_LOOK: Duration = Duration::from_millis(100);
/// For how long the file counts as shared after another process was last seen: a tool that is called again and again.
const SHARED_FOR: Duration = Duration::from_secs(10);
/// How often the writer looks which processes have the file open, and whether one of them no longer runs.
const OWNERS_LOOK: Duration = Duration::from_millis(200);
/// How often in a row a writer finds the file locked before it asks the others for a gap.
const BUSY_ROUNDS_BEFORE_ASKING: u32 = 2;
/// How long after another process's commit the writer leaves gaps between its batches.
const FOREIGN_PRESENCE: Duration = Duration::from_secs(1);

/// No data version of SQLite: the next look counts as the first after a commit.
const UNKNOWN_VERSION: i64 = i64::MIN;

/// The providers that have a file open.
pub(crate) struct FileUsers {
    pub(crate) folder: OwnerFolder,
    /// The owner of the locks that this provider takes; `None` if it takes none, or the operating system cannot tell who
    /// runs.
    pub(crate) own: Option<OwnerFile>,
    pub(crate) process_writers: ProcessWriters,
    /// Whether this provider only reads, and so releases no locks.
    pub(crate) read_only: bool,
    /// What the writer's connection shows, if it cannot follow changes of the file.
    pub(crate) frozen: Option<FrozenFile>,
}

/// What the writer knows of other processes.
pub(crate) struct OtherProcesses {
    /// `None` for a database in memory: there are no others.
    users: Option<FileUsers>,
    /// Changes when another connection commits.
    data_version: i64,
    /// When another connection's commit was last noticed.
    committed_at: Option<Duration>,
    /// When a provider of another process was last seen.
    seen_at: Option<Duration>,
    /// When the writer last looked who runs.
    looked_at: Option<Duration>,
    /// The other providers that ran at that look, in this process too.
    running: Vec<OwnerId>,
    /// How often in a row another process had the file locked.
    busy_rounds: u32,
}

impl OtherProcesses {
    pub(crate) fn new(conn: &Connection, users: Option<FileUsers>) -> Result<Self, rusqlite::Error> {
        Ok(Self {
            users,
            data_version: data_version(conn)?,
            committed_at: None,
            seen_at: None,
            looked_at: None,
            running: Vec::new(),
            busy_rounds: 0,
        })
    }

    /// Whether others may share the database.
    pub(crate) fn are_possible(&self) -> bool {
        self.users.is_some()
    }

    /// The owner of the locks that are taken here.
    pub(crate) fn own_id(&self) -> Option<OwnerId> {
        self.users.as_ref()?.own.as_ref().map(|own| own.id)
    }

    /// How long the writer may sleep before it looks again.
    pub(crate) fn look_interval(&self, now: Duration) -> Duration {
        match (&self.users, self.seen_at) {
            (None, _) => CLOCK_LOOK,
            (Some(_), Some(seen_at)) if now.saturating_sub(seen_at) < SHARED_FOR => SHARED_LOOK,
            (Some(_), _) => ALONE_LOOK,
        }
    }

    /// A new connection, if the one in use shows a file as it was once, and the file has changed.
    pub(crate) fn reopened(&mut self) -> Option<Connection> {
        let users = self.users.as_mut()?;
        let frozen = users.frozen.as_ref()?;
        if !frozen.has_changed() {
            return None;
        }
        match open_file::connect_reader(frozen.path(), None, OpenMode::ReadOnly) {
            Ok(reader) => {
                users.frozen = reader.frozen;
                self.data_version = UNKNOWN_VERSION;
                Some(reader.conn)
            }
            Err(error) => {
                tracing::debug!(target: "everturn::providers::sqlite", %error,
                    "the file has changed and cannot be opened again; the next look tries it");
                None
            }
        }
    }

    /// Whether another connection has committed since the last look. If it has changed the schema, the store refuses all
    /// further calls.
    pub(crate) fn have_committed(
        &mut self,
        db: &WriteConnection,
        guard: &StoreGuard,
    ) -> Result<bool, rusqlite::Error> {
        let Some(users) = &self.users else { return Ok(false) };
        users.process_writers.note_look();
        let version = data_version(&db.conn)?;
        if version == self.data_version {
            return Ok(false);
        }
        let now = db.clock.monotonic();
        self.committed_at = Some(now);
        if users.process_writers.is_only_one() {
            self.seen_at = Some(now);
        }
        if let Some(newer) = schema::newer_version(&db.conn)? {
            guard.refuse(newer);
        }
        // Last: after a failed look the next one finds the commit again.
        self.data_version = version;
        Ok(true)
    }

    /// The writer has committed: other providers of this process look at once.
    pub(crate) fn note_own_commit(&self) {
        if let Some(users) = &self.users {
            users.process_writers.wake_others();
        }
    }

    /// Looks from time to time which processes have the file open. Returns the owners that no longer run.
    pub(crate) fn find_dead(&mut self, now: Duration) -> Vec<OwnerFile> {
        let Some(users) = &self.users else { return Vec::new() };
        if self.looked_at.is_some_and(|at| now.saturating_sub(at) < OWNERS_LOOK) {
            return Vec::new();
        }
        self.looked_at = Some(now);
        if users.read_only {
            if users.folder.is_in_use() {
                self.seen_at = Some(now);
            }
            return Vec::new();
        }
        let ours = users.process_writers.owners();
        match users.folder.look(&ours) {
            Ok(found) => {
                if !found.running.is_empty() {
                    self.seen_at = Some(now);
                }
                self.running = found.running;
                let own = users.own.as_ref().map(|own| own.id);
                self.running.extend(ours.into_iter().filter(|id| Some(*id) != own));
                found.dead
            }
            Err(error) => {
                tracing::debug!(target: "everturn::providers::sqlite", %error,
                    "cannot tell which processes have the file open; locks of those that no longer run expire");
                Vec::new()
            }
        }
    }

    /// The file is about to be closed, and no row bears this owner any more.
    pub(crate) fn leave(&mut self) {
        if let Some(own) = self.users.as_mut().and_then(|users| users.own.take()) {
            own.remove();
        }
    }

    /// Whether another process waits for the file, or committed lately: the writer pauses between batches, so that it gets
    /// the file.
    pub(crate) fn need_gaps(&self, clock: &dyn Clock) -> bool {
        self.committed_at.is_some_and(|at| clock.monotonic().saturating_sub(at) < FOREIGN_PRESENCE)
            || self.users.as_ref().is_some_and(|users| users.folder.is_any_waiting(&self.running))
    }

    /// The writer has the file.
    pub(crate) fn note_not_busy(&mut self) {
        self.busy_rounds = 0;
        self.ask_for_gaps(false);
    }

    fn ask_for_gaps(&mut self, asks: bool) {
        if let Some(own) = self.users.as_mut().and_then(|users| users.own.as_mut()) {
            own.set_waiting(asks);
        }
    }

    /// Another process has the file. Returns whether callers have waited for it long enough.
    pub(crate) fn note_busy(&mut self, busy_timeout: Duration) -> bool {
        self.busy_rounds = self.busy_rounds.saturating_add(1);
        let timed_out = BUSY_PAUSE.saturating_mul(self.busy_rounds) >= busy_timeout;
        // Callers that have given up need no gap.
        self.ask_for_gaps(!timed_out && self.busy_rounds >= BUSY_ROUNDS_BEFORE_ASKING);
        if timed_out {
            self.busy_rounds = 0;
        }
        timed_out
    }
}

#[inline(always)]
fn data_version(conn: &Connection) -> Result<i64, rusqlite::Error> {
    conn.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))
}

#[cfg(test)]
mod tests;
