//! Who else has the file open: an operating-system lock beside it.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};

use crate::error::SqliteError;

/// A shared lock on `<db>-lock`, held as long as the database is open.
#[derive(Debug)]
pub(crate) struct ProcessLock {
    // Closing the file releases the lock.
    _file: File,
}

/// The lock while the database is being opened.
#[derive(Debug)]
pub(crate) struct OpeningLock {
    file: File,
    path: PathBuf,
    alone: bool,
}

impl OpeningLock {
    /// Takes the lock for itself if nobody has it, else beside the others.
    pub(crate) fn take(database: &Path) -> Result<Self, SqliteError> {
        let mut name = OsString::from(database.as_os_str());
        name.push("-lock");
        let path = PathBuf::from(name);
        let failed = |error| SqliteError::io(format_args!("locking {}", path.display()), error);
        let file =
            OpenOptions::new().create(true).read(true).write(true).truncate(false).open(&path).map_err(failed)?;
        let alone = match file.try_lock() {
            Ok(()) => true,
            Err(TryLockError::WouldBlock) => {
                file.lock_shared().map_err(failed)?;
                false
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        };
        Ok(Self { file, path, alone })
    }

    /// Whether nobody else has the database open: every lock in it is that of somebody dead.
    pub(crate) fn is_alone(&self) -> bool {
        self.alone
    }

    /// The database is open: others may come.
    ///
    /// Between the two locks somebody else may find itself alone; it frees nothing of ours, because nothing was given
    /// out yet.
    pub(crate) fn share(self) -> Result<ProcessLock, SqliteError> {
        if self.alone {
            let failed = |error| SqliteError::io(format_args!("sharing {}", self.path.display()), error);
            self.file.unlock().map_err(failed)?;
            self.file.lock_shared().map_err(failed)?;
        }
        Ok(ProcessLock { _file: self.file })
    }
}
