//! A database file that is read as it is.
//!
//! Reading a write-ahead log takes memory that is shared through a file beside the database. Where that file cannot be made,
//! because the folder is read-only or the disk is full, a database without a log is opened as a file that does not change.
//! Such a connection never sees a change: it is used for one read, or until the file has changed.

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rusqlite::Connection;

use crate::open_file;

/// A connection that only reads.
pub(crate) struct ReadConnection {
    pub(crate) conn: Connection,
    /// What it shows, if it cannot follow changes of the file.
    pub(crate) frozen: Option<FrozenFile>,
}

/// A file as it was at one moment.
#[derive(Debug)]
pub(crate) struct FrozenFile {
    path: PathBuf,
    state: FrozenState,
}

#[derive(Debug, PartialEq, Eq)]
struct FrozenState {
    bytes: u64,
    modified: Option<SystemTime>,
    has_log: bool,
}

impl FrozenFile {
    /// The file as it is now.
    pub(crate) fn now(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), state: FrozenState::of(path)? })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file was written since, or a log was made beside it. Counts as changed if it cannot be told.
    pub(crate) fn has_changed(&self) -> bool {
        FrozenState::of(&self.path).map_or(true, |state| state != self.state)
    }
}

impl FrozenState {
    fn of(path: &Path) -> io::Result<Self> {
        let has_log = open_file::has_log(path);
        let file = std::fs::metadata(path)?;
        Ok(Self { bytes: file.len(), modified: file.modified().ok(), has_log })
    }
}
