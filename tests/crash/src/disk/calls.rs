//! Calls to the disk: how they are counted, and which of them fail.

use rusqlite::ffi;

use super::SqliteCode;

/// One call to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskCall {
    /// A file is opened or created.
    Open,
    /// A file is removed.
    Delete,
    /// A name is looked up.
    Access,
    /// Bytes are read.
    Read,
    /// Bytes are written.
    Write,
    /// A file is truncated.
    Truncate,
    /// What was written must be on the disk.
    Sync,
    /// The length of a file is read.
    Size,
    /// Shared memory is mapped.
    Map,
}

/// Kinds of calls that fail together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallClass {
    /// Bytes are read.
    Read,
    /// Bytes are written, or a file is truncated.
    Write,
    /// What was written must be on the disk.
    Sync,
    /// Everything else.
    Other,
}

impl DiskCall {
    pub(super) fn class(self) -> CallClass {
        match self {
            Self::Read => CallClass::Read,
            Self::Write | Self::Truncate => CallClass::Write,
            Self::Sync => CallClass::Sync,
            Self::Open | Self::Delete | Self::Access | Self::Size | Self::Map => CallClass::Other,
        }
    }

    /// The result code of SQLite when this call fails.
    pub(super) fn error_code(self) -> SqliteCode {
        match self {
            Self::Open => ffi::SQLITE_CANTOPEN,
            Self::Delete => ffi::SQLITE_IOERR_DELETE,
            Self::Access => ffi::SQLITE_IOERR_ACCESS,
            Self::Read => ffi::SQLITE_IOERR_READ,
            Self::Write => ffi::SQLITE_IOERR_WRITE,
            Self::Truncate => ffi::SQLITE_IOERR_TRUNCATE,
            Self::Sync => ffi::SQLITE_IOERR_FSYNC,
            Self::Size => ffi::SQLITE_IOERR_FSTAT,
            Self::Map => ffi::SQLITE_IOERR_SHMMAP,
        }
    }
}

/// How many calls there were, by class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallCounts {
    read: u64,
    write: u64,
    sync: u64,
    other: u64,
}

impl CallCounts {
    /// All of them.
    pub fn total(self) -> u64 {
        self.read + self.write + self.sync + self.other
    }

    /// Those of one class.
    pub fn of(self, class: CallClass) -> u64 {
        match class {
            CallClass::Read => self.read,
            CallClass::Write => self.write,
            CallClass::Sync => self.sync,
            CallClass::Other => self.other,
        }
    }

    /// Counts a call; returns how many there were before.
    pub(super) fn count(&mut self, class: CallClass) -> u64 {
        let before = self.total();
        match class {
            CallClass::Read => self.read += 1,
            CallClass::Write => self.write += 1,
            CallClass::Sync => self.sync += 1,
            CallClass::Other => self.other += 1,
        }
        before
    }
}

/// Which calls fail, and how.
#[derive(Debug, Clone, Copy)]
pub struct DiskFault {
    /// The class of calls that fails.
    pub class: CallClass,
    /// The number of the first that fails, counted from the injection; 0 is the next.
    pub at: u64,
    /// Whether every later call of the class fails too.
    pub lasting: bool,
    /// Whether a write fails because the disk is full.
    pub full: bool,
}

impl DiskFault {
    /// The same, counted from the beginning of the disk.
    pub(super) fn from(self, calls: CallCounts) -> Self {
        Self { at: self.at + calls.of(self.class), ..self }
    }

    /// The error of a call that was just counted, if it fails.
    pub(super) fn strikes(&mut self, call: DiskCall, calls: CallCounts) -> Option<SqliteCode> {
        if call.class() != self.class {
            return None;
        }
        let number = calls.of(self.class) - 1;
        let strikes = if self.lasting { number >= self.at } else { number == self.at };
        strikes
            .then(|| if self.full && call == DiskCall::Write { ffi::SQLITE_FULL } else { call.error_code() })
    }
}
