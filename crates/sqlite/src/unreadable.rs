//! Rows that cannot be read: they are passed over for a while, so that everything else goes on.
//!
//! A bad sector fails every read of its page. Such an error ends the transaction, whatever else is in it. The writer notes
//! which row was the reason, runs the batch again without it, and tries the row again after a pause that grows. Nothing of
//! this is stored: another process, or the next one, finds out for itself.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;

use everturn_provider::ProviderError;
use rusqlite::{ErrorCode, ffi};

/// The first pause: as long as the pause of an outage, because it may be one.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause while nothing shows that other rows can be read: in an outage every row fails.
const UNPROVED_PAUSE_MAX: Duration = Duration::from_secs(1);
/// The longest pause: a repaired row is noticed within it.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// So many rows are remembered at most. With more of them the disk is broken, and each is tried as often as in an outage.
const ROWS_MAX: usize = 4_096;

/// What an operation reads or changes, so that an error names the right row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RowPlace {
    /// An instance, by its key: its row, its messages or its history.
    Instance(i64),
    /// A message, by its row.
    Message(i64),
    /// An activity, by its row.
    Activity(i64),
    /// The index of ready instances, behind the one with this oldest message.
    ReadyBehind(i64),
    /// The leases of all sessions, where the writer looks at them by itself.
    Leases,
    /// What is left of a deleted instance, by its key, or of its executions.
    Garbage(i64),
    /// The garbage list itself.
    GarbageList,
}

/// Whether the database could not read what it needed: a bad sector, or a page that makes no sense. SQLite reports some
/// failed reads as damage of the file.
pub(crate) fn is_unreadable(error: &rusqlite::Error) -> bool {
    let rusqlite::Error::SqliteFailure(failure, _) = error else { return false };
    match failure.code {
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => true,
        ErrorCode::SystemIoFailure => matches!(
            failure.extended_code,
            ffi::SQLITE_IOERR_READ
                | ffi::SQLITE_IOERR_SHORT_READ
                | ffi::SQLITE_IOERR_DATA
                | ffi::SQLITE_IOERR_CORRUPTFS
        ),
        _ => false,
    }
}

/// Whether that is why a call failed.
pub(crate) fn is_cause_of(error: &ProviderError) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<rusqlite::Error>());
    source.is_some_and(is_unreadable)
}

/// How long to leave alone what could not be read so many times.
pub(crate) fn pause_after(failures: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1))).min(PAUSE_MAX)
}

/// A row that could not be read.
#[derive(Debug)]
struct UnreadableRow {
    failures: u32,
    /// It is passed over until then, by the monotonic clock.
    until: Duration,
    /// How many batches had been committed when it last failed.
    commits: u64,
    /// Its pause is over, and the writer looks at everything again.
    is_due: bool,
    /// A log line named it.
    logged: bool,
    /// Where the index can be read again, if it is the index.
    beyond: Option<i64>,
}

/// What becomes of a row that could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PassedOver {
    pub(crate) pause: Duration,
    /// It is logged now: others can be read, and it was not logged before.
    pub(crate) must_log: bool,
}

/// The rows that could not be read.
#[derive(Debug, Default)]
pub(crate) struct UnreadableRows {
    rows: BTreeMap<RowPlace, UnreadableRow>,
}

impl UnreadableRows {
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// How many rows were logged and cannot be read yet.
    pub(crate) fn logged_count(&self) -> usize {
        self.rows.values().filter(|row| row.logged).count()
    }

    /// Whether garbage is among them.
    pub(crate) fn has_garbage(&self) -> bool {
        self.rows.keys().any(|place| matches!(place, RowPlace::Garbage(_) | RowPlace::GarbageList))
    }

    pub(crate) fn is_passed_over(&self, place: RowPlace, now: Duration) -> bool {
        self.rows.get(&place).is_some_and(|row| now < row.until)
    }

    /// A row could not be read; `commits` batches were committed so far. The pause grows beyond a second only if others
    /// were committed since the last failure. `None` if too many rows are remembered.
    pub(crate) fn note(&mut self, place: RowPlace, now: Duration, commits: u64) -> Option<PassedOver> {
        self.forget_old(now);
        if self.rows.len() >= ROWS_MAX && !self.rows.contains_key(&place) {
            return None;
        }
        let fresh =
            UnreadableRow { failures: 0, until: now, commits, is_due: false, logged: false, beyond: None };
        let row = self.rows.entry(place).or_insert(fresh);
        let others_work = row.failures > 0 && commits > row.commits;
        let grown = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(row.failures));
        let pause_max = if others_work { PAUSE_MAX } else { UNPROVED_PAUSE_MAX };
        let pause = grown.min(pause_max);
        if grown <= pause_max {
            row.failures += 1;
        }
        let must_log = others_work && !row.logged;
        row.logged |= must_log;
        (row.until, row.commits, row.is_due) = (now.saturating_add(pause), commits, false);
        Some(PassedOver { pause, must_log })
    }

    /// The row was read. Returns true if it was logged as unreadable.
    pub(crate) fn note_read(&mut self, place: RowPlace) -> bool {
        self.rows.remove(&place).is_some_and(|row| row.logged)
    }

    /// Notes where the index can be read again.
    pub(crate) fn note_beyond(&mut self, place: RowPlace, beyond: i64) {
        if let Some(row) = self.rows.get_mut(&place) {
            row.beyond = Some(beyond);
        }
    }

    /// Where the index can be read again that cannot be read behind this place.
    fn beyond(&self, place: RowPlace, now: Duration) -> Option<i64> {
        self.rows.get(&place).filter(|row| now < row.until)?.beyond
    }

    /// How long until a row is tried again.
    pub(crate) fn until_next(&self, now: Duration) -> Option<Duration> {
        self.rows.values().filter(|row| !row.is_due).map(|row| row.until.saturating_sub(now)).min()
    }

    /// Whether the pause of a row is over that was not before.
    pub(crate) fn take_due(&mut self, now: Duration) -> bool {
        let due = self.rows.values_mut().filter(|row| !row.is_due && row.until <= now);
        due.map(|row| row.is_due = true).count() > 0
    }

    /// Forgets rows that did not fail again for a long time: they were repaired or deleted.
    pub(crate) fn forget_old(&mut self, now: Duration) {
        self.rows.retain(|_, row| now < row.until.saturating_add(PAUSE_MAX));
    }
}

/// How the statements of a batch read rows.
#[derive(Clone, Copy)]
pub(crate) struct RowReads<'a> {
    unreadable: &'a UnreadableRows,
    /// The row that is read or changed now.
    current: &'a Cell<Option<RowPlace>>,
    now: Duration,
    /// Whether rows are read one by one, because one of them may be unreadable.
    pub(crate) one_by_one: bool,
}

impl<'a> RowReads<'a> {
    pub(crate) fn new(
        unreadable: &'a UnreadableRows,
        current: &'a Cell<Option<RowPlace>>,
        now: Duration,
        one_by_one: bool,
    ) -> Self {
        Self { unreadable, current, now, one_by_one }
    }

    /// Whether a row is left alone for now.
    pub(crate) fn passes_over(&self, place: RowPlace) -> bool {
        !self.unreadable.is_empty() && self.unreadable.is_passed_over(place, self.now)
    }

    /// Where the index of ready instances goes on, if it cannot be read behind this one.
    pub(crate) fn beyond(&self, ready_seq: i64) -> Option<i64> {
        self.unreadable.beyond(RowPlace::ReadyBehind(ready_seq), self.now)
    }

    /// From now on this row is the reason of an error.
    pub(crate) fn at(&self, place: RowPlace) {
        self.current.set(Some(place));
    }

    /// No row is the reason of an error.
    pub(crate) fn done(&self) {
        self.current.set(None);
    }
}

#[cfg(test)]
mod tests;
