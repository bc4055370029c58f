//! The calls to the disk, how they are counted, and which of them fail.

use rusqlite::ffi;

use super::Code;

/// One call to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// A file is opened, or made.
    Open,
    /// A file is removed.
    Delete,
    /// A name is looked up.
    Access,
    /// Bytes are read.
    Read,
    /// Bytes are written.
    Write,
    /// A file is cut.
    Truncate,
    /// What was written must be on the disk.
    Sync,
    /// The length of a file is asked for.
    Size,
    /// Memory is shared.
    Map,
}

/// Kinds of calls that fail together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Bytes are read.
    Read,
    /// Bytes are written, or a file is cut.
    Write,
    /// What was written must be on the disk.
    Sync,
    /// Everything else.
    Other,
}

impl Call {
    pub(super) fn class(self) -> Class {
        match self {
            Self::Read => Class::Read,
            Self::Write | Self::Truncate => Class::Write,
            Self::Sync => Class::Sync,
            Self::Open | Self::Delete | Self::Access | Self::Size | Self::Map => Class::Other,
        }
    }

    /// What SQLite calls it when this call fails.
    pub(super) fn error_code(self) -> Code {
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

/// How many calls there were.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Calls {
    read: u64,
    write: u64,
    sync: u64,
    other: u64,
}

impl Calls {
    /// All of them.
    pub fn total(self) -> u64 {
        self.read + self.write + self.sync + self.other
    }

    /// Those of one kind.
    pub fn of(self, class: Class) -> u64 {
        match class {
            Class::Read => self.read,
            Class::Write => self.write,
            Class::Sync => self.sync,
            Class::Other => self.other,
        }
    }

    /// Counts a call; returns how many there were before.
    pub(super) fn count(&mut self, class: Class) -> u64 {
        let before = self.total();
        match class {
            Class::Read => self.read += 1,
            Class::Write => self.write += 1,
            Class::Sync => self.sync += 1,
            Class::Other => self.other += 1,
        }
        before
    }
}

/// Which calls fail, and how.
#[derive(Debug, Clone, Copy)]
pub struct Fault {
    /// Which kind of call.
    pub class: Class,
    /// Which of them, counted from the injection; 0 is the next.
    pub at: u64,
    /// Whether every later one of its kind fails too.
    pub lasting: bool,
    /// Whether a write fails because the disk is full.
    pub full: bool,
}

impl Fault {
    /// The same, counted from the beginning of the disk.
    pub(super) fn from(self, calls: Calls) -> Self {
        Self { at: self.at + calls.of(self.class), ..self }
    }

    /// The error of a call that was just counted, if it fails.
    pub(super) fn strikes(&mut self, call: Call, calls: Calls) -> Option<Code> {
        if call.class() != self.class {
            return None;
        }
        let number = calls.of(self.class) - 1;
        let strikes = if self.lasting { number >= self.at } else { number == self.at };
        strikes.then(|| if self.full && call == Call::Write { ffi::SQLITE_FULL } else { call.error_code() })
    }
}
