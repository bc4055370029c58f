//! The only connection that writes, and its transaction.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use everturn_provider::Clock;
use rusqlite::{Connection, ErrorCode};

use crate::clock_reading::ClockReading;
use crate::locks::{OwnLocks, RenewedLocks};
use crate::operation::{Effects, Scope};
use crate::owners::OwnerId;
use crate::unreadable::{RowPlace, RowReads, UnreadableRows, is_unreadable};

/// Pause before the file is tried again while another process has it locked.
pub(crate) const BUSY_PAUSE: Duration = Duration::from_micros(500);
/// If a commit is cheaper than this, a batch does not wait for more commands.
const CHEAP_COMMIT: Duration = Duration::from_micros(50);
/// Bounds of the wait for the commits of turns that began early.
const WINDOW_MIN: Duration = Duration::from_micros(100);
const WINDOW_MAX: Duration = Duration::from_micros(300);
/// Longest wait for the next command of a burst.
const BURST_GAP_MAX: Duration = Duration::from_micros(100);

/// Why a batch was lost.
#[derive(Debug)]
pub(crate) enum BatchLoss {
    /// The store failed.
    Storage(String),
    /// Something could not be read. It may be the fault of one row, which is not known or belongs to a caller's operation.
    Unreadable(String),
    /// This row could not be read.
    UnreadableRow(RowPlace, String),
    /// An operation was refused after it had written, without a savepoint to return to.
    RefusedLate,
    /// The store refuses all calls.
    FailedClosed,
}

impl From<rusqlite::Error> for BatchLoss {
    fn from(error: rusqlite::Error) -> Self {
        if is_unreadable(&error) {
            Self::Unreadable(error.to_string())
        } else {
            Self::Storage(error.to_string())
        }
    }
}

/// The writing connection with at most one open transaction.
pub(crate) struct WriteConnection {
    pub(crate) conn: Connection,
    pub(crate) clock: Arc<dyn Clock>,
    /// The locks that this process holds.
    pub(crate) own_locks: OwnLocks,
    /// Those that were renewed in the open transaction.
    pub(crate) renewed: RenewedLocks,
    /// The owner of the locks that are taken with this connection.
    pub(crate) owner: Option<OwnerId>,
    /// Rows that could not be read.
    pub(crate) unreadable: UnreadableRows,
    /// The row that is read or changed now, if no caller asked for that.
    current_row: Cell<Option<RowPlace>>,
    /// Whether the batch reads rows one by one.
    one_by_one: bool,
    /// How long callers wait for another process that has the file locked.
    busy_timeout: Duration,
    /// What a commit takes, as a moving average.
    commit_time: Duration,
}

impl WriteConnection {
    pub(crate) fn new(conn: Connection, clock: Arc<dyn Clock>, busy_timeout: Duration) -> Self {
        let (own_locks, commit_time) = (OwnLocks::default(), Duration::ZERO);
        Self {
            conn,
            clock,
            own_locks,
            renewed: RenewedLocks::default(),
            owner: None,
            unreadable: UnreadableRows::default(),
            current_row: Cell::new(None),
            one_by_one: false,
            busy_timeout,
            commit_time,
        }
    }

    pub(crate) fn now(&self) -> ClockReading {
        ClockReading::of(&*self.clock)
    }

    /// A batch begins. If a row may be unreadable, rows are read one by one, so that the error shows which. Returns whether
    /// rows were forgotten that the operator was told of.
    pub(crate) fn batch_begins(&mut self, is_careful: bool) -> bool {
        let logged_before = self.unreadable.logged_count();
        self.unreadable.forget_old(self.clock.monotonic());
        self.one_by_one = is_careful || !self.unreadable.is_empty();
        self.unreadable.logged_count() != logged_before
    }

    /// How the statements of this batch read rows.
    pub(crate) fn rows(&self) -> RowReads<'_> {
        RowReads::new(&self.unreadable, &self.current_row, self.clock.monotonic(), self.one_by_one)
    }

    /// The loss of a batch by this error.
    pub(crate) fn loss(&self, error: rusqlite::Error) -> BatchLoss {
        match self.current_row.take() {
            Some(place) if is_unreadable(&error) => BatchLoss::UnreadableRow(place, error.to_string()),
            _ => error.into(),
        }
    }

    pub(crate) fn busy_timeout(&self) -> Duration {
        self.busy_timeout
    }

    /// How long a batch waits for the commits of turns that began early.
    pub(crate) fn window(&self) -> Duration {
        if self.commit_time < CHEAP_COMMIT {
            Duration::ZERO
        } else {
            self.commit_time.clamp(WINDOW_MIN, WINDOW_MAX)
        }
    }

    /// How long a batch waits for the next command of a burst.
    pub(crate) fn burst_gap(&self) -> Duration {
        if self.commit_time < CHEAP_COMMIT {
            Duration::ZERO
        } else {
            (self.commit_time / 4).min(BURST_GAP_MAX)
        }
    }

    /// Begins a transaction. Returns `false` if another process has the file locked.
    pub(crate) fn begin(&self) -> Result<bool, rusqlite::Error> {
        match self.conn.prepare_cached("BEGIN IMMEDIATE")?.execute([]) {
            Ok(_) => Ok(true),
            Err(error) if is_busy(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Begins a transaction; waits until `deadline` for another process that has the file locked.
    pub(crate) fn begin_before(&self, deadline: Duration) -> Result<(), rusqlite::Error> {
        loop {
            match self.conn.prepare_cached("BEGIN IMMEDIATE")?.execute([]) {
                Ok(_) => return Ok(()),
                Err(error) if is_busy(&error) && self.clock.monotonic() < deadline => {
                    std::thread::sleep(BUSY_PAUSE);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Runs something that happens completely or not at all, and is kept if `run` returns `true`.
    ///
    /// With a savepoint it can be undone. Most operations need none, because they check before they write; the pages that a
    /// savepoint copies are a quarter of a step's cost. If an operation without a savepoint is refused after it wrote, its
    /// row is damaged: the batch runs again, and for a while every operation gets its savepoint.
    pub(crate) fn run_whole(
        &self,
        undoable: bool,
        run: impl FnOnce(&mut Scope<'_>) -> Result<bool, rusqlite::Error>,
    ) -> Result<(bool, Effects), BatchLoss> {
        if self.conn.is_autocommit() {
            // A savepoint would begin a transaction of its own, and be committed when it is released.
            return Err(BatchLoss::Storage("the transaction was rolled back by an error".to_owned()));
        }
        if undoable {
            self.execute("SAVEPOINT operation")?;
        }
        let changes_before = self.conn.total_changes();
        let mut scope = self.scope();
        scope.rows.done();
        let ran = run(&mut scope);
        let effects = scope.effects;
        let kept = ran.map_err(|error| self.loss(error))?;
        self.current_row.set(None);
        if self.conn.is_autocommit() {
            // The error ended the whole transaction; nothing more may run in this batch.
            return Err(BatchLoss::Storage("the transaction was rolled back by an error in it".to_owned()));
        }
        match (kept, undoable) {
            (true, true) => self.execute("RELEASE operation")?,
            (false, true) => {
                self.execute("ROLLBACK TO operation")?;
                self.execute("RELEASE operation")?;
            }
            (false, false) if self.conn.total_changes() != changes_before => {
                return Err(BatchLoss::RefusedLate);
            }
            _ => {}
        }
        Ok((kept, effects))
    }

    /// The open transaction as operations see it.
    pub(crate) fn scope(&self) -> Scope<'_> {
        Scope {
            conn: &self.conn,
            clock: &*self.clock,
            now: self.now(),
            own_locks: &self.own_locks,
            renewed: &self.renewed,
            owner: self.owner,
            rows: self.rows(),
            effects: Effects::default(),
        }
    }

    /// Commits the transaction. Returns whether it wrote anything since `changes_before`.
    pub(crate) fn commit(&mut self, changes_before: u64) -> Result<bool, BatchLoss> {
        if self.conn.total_changes() == changes_before {
            // Nothing was written, so that no sync is needed.
            self.execute("ROLLBACK")?;
            return Ok(false);
        }
        let began = self.clock.monotonic();
        let mut rounds = 0_u32;
        loop {
            match self.conn.prepare_cached("COMMIT")?.execute([]) {
                Ok(_) => break,
                Err(error)
                    if is_busy(&error)
                        && !self.conn.is_autocommit()
                        && BUSY_PAUSE.saturating_mul(rounds) < self.busy_timeout =>
                {
                    rounds = rounds.saturating_add(1);
                    std::thread::sleep(BUSY_PAUSE);
                }
                Err(error) => return Err(error.into()),
            }
        }
        let took = self.clock.monotonic().saturating_sub(began);
        self.commit_time = (self.commit_time * 7 + took) / 8;
        Ok(true)
    }

    /// Rolls the transaction back, unless an error has ended it.
    pub(crate) fn roll_back(&self) -> Result<(), rusqlite::Error> {
        if self.conn.is_autocommit() { Ok(()) } else { self.execute("ROLLBACK") }
    }

    fn execute(&self, sql: &str) -> Result<(), rusqlite::Error> {
        self.conn.prepare_cached(sql)?.execute([]).map(|_| ())
    }

    #[cfg(test)]
    pub(crate) fn set_commit_time(&mut self, commit_time: Duration) {
        self.commit_time = commit_time;
    }
}

/// Whether another process has the file locked.
fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

#[cfg(test)]
mod tests;
