//! Which processes have the file open: an operating-system lock beside it.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::error::SqliteError;
use crate::file_identity::FileIdentity;
use crate::owners::OwnerFolder;

/// How often the lock file is opened again because its name was taken from it meanwhile.
const PLACE_LOOKS_MAX: usize = 16;

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
    exclusive: bool,
    alone: bool,
}

impl OpeningLock {
    /// Takes the lock exclusively if no other process has it, else shares it.
    pub(crate) fn take(database: &Path) -> Result<Self, SqliteError> {
        let mut name = OsString::from(database.as_os_str());
        name.push("-lock");
        let path = PathBuf::from(name);
        let failed = |error| SqliteError::io(format_args!("locking {}", path.display()), error);
        for _ in 0..PLACE_LOOKS_MAX {
            let file = OpenOptions::new()
                .create(true)
                .read(true)
                .write(true)
                .truncate(false)
                .open(&path)
                .map_err(failed)?;
            let exclusive = match file.try_lock() {
                Ok(()) => true,
                Err(TryLockError::WouldBlock) => {
                    file.lock_shared().map_err(failed)?;
                    false
                }
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            };
            let locked = file.metadata().map_err(failed)?;
            if FileIdentity::at(&path).map_err(failed)? == Some(FileIdentity::of(&locked)) {
                // If the file was removed, processes that have the old one locked are seen by their own files.
                let alone = exclusive && !OwnerFolder::beside(database).has_running_owner();
                return Ok(Self { file, path, exclusive, alone });
            }
        }
        Err(SqliteError::database(format!("locking {}: it is removed again and again", path.display())))
    }

    /// Whether no other process has the database open: every lock in it is held by a process that no longer runs.
    pub(crate) fn is_alone(&self) -> bool {
        self.alone
    }

    /// The database is open: other processes may open it too.
    ///
    /// Between the two locks another process may find itself alone; it releases none of our locks, because none was taken
    /// yet, but it may migrate the file.
    pub(crate) fn share(self) -> Result<ProcessLock, SqliteError> {
        if self.exclusive {
            let failed = |error| SqliteError::io(format_args!("sharing {}", self.path.display()), error);
            self.file.unlock().map_err(failed)?;
            self.file.lock_shared().map_err(failed)?;
        }
        Ok(ProcessLock { _file: self.file })
    }
}

/// The files that this process is closing, and how many times.
///
/// A provider that was dropped still writes its last batch. A provider that opens the file again right away would not be
/// alone, and could not release the locks that the dropped one leaves.
static CLOSING: LazyLock<Mutex<HashMap<PathBuf, usize>>> = LazyLock::new(Mutex::default);

/// How long an opening waits for a closing in the same process.
const CLOSING_WAIT_MAX: Duration = Duration::from_secs(5);
const CLOSING_PAUSE: Duration = Duration::from_millis(1);

fn closing() -> MutexGuard<'static, HashMap<PathBuf, usize>> {
    CLOSING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The file is about to be closed.
pub(crate) fn begin_closing(database: &Path) {
    *closing().entry(database.to_owned()).or_default() += 1;
}

/// The file is closed.
pub(crate) fn end_closing(database: &Path) {
    let mut closing = closing();
    if let Some(count) = closing.get_mut(database) {
        *count -= 1;
        if *count == 0 {
            closing.remove(database);
        }
    }
}

/// Waits until every closing of the file in this process has ended.
pub(crate) fn wait_for_closing(database: &Path) {
    let mut waited = Duration::ZERO;
    while closing().contains_key(database) && waited < CLOSING_WAIT_MAX {
        std::thread::sleep(CLOSING_PAUSE);
        waited += CLOSING_PAUSE;
    }
}
