//! A copy of the database while it is at work.

use std::fs::File;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::command_queue::Command;
use crate::error::SqliteError;
use crate::frozen_file::{FrozenFile, ReadConnection};
use crate::pragmas;
use crate::provider::SqliteProvider;

impl SqliteProvider {
    /// Copies the database into a new file, as of one moment, while it is at work.
    ///
    /// Copying the file of a database that is open with other tools gives a damaged copy. This one opens and carries on
    /// where the original was: work that is locked at that moment is free in the copy, and runs again there. Calls are
    /// served meanwhile, and the write-ahead log grows by what they write; for a database in memory they wait.
    ///
    /// While it runs, the write-ahead log cannot be reset: under load the log grows by what is written meanwhile, and is
    /// cut when the copy is made.
    ///
    /// The file appears under its name when it is complete and on the disk. Fails if there is a file of that name, or a
    /// `-wal` or `-journal` file that belongs to that name, or it cannot be written. A process that ends in the middle
    /// leaves a file with `-partial-` in its name, which can be removed.
    ///
    /// ```
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use everturn_sqlite::SqliteProvider;
    ///
    /// let folder = tempfile::tempdir()?;
    /// let provider = SqliteProvider::new_in_memory().await?;
    /// provider.backup(folder.path().join("monday.db")).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn backup(&self, path: impl AsRef<Path>) -> Result<(), SqliteError> {
        let path = path.as_ref().to_owned();
        let closed = || SqliteError::closed("copying the database: the provider is closed");
        let Some(readers) = self.readers() else {
            let (reply, answer) = oneshot::channel();
            // A caller that left wants no answer.
            let copy = move |conn: &Connection| drop(reply.send(copy(conn, None, &path)));
            self.send(Command::Read(Box::new(copy))).map_err(|_closed| closed())?;
            return answer.await.unwrap_or_else(|_| Err(closed()));
        };
        if readers.is_closed() {
            return Err(closed());
        }
        let readers = readers.clone();
        let copying = tokio::task::spawn_blocking(move || {
            readers.check().map_err(SqliteError::database)?;
            let ReadConnection { conn, frozen } = readers.open()?;
            // What is written is another file: the connection itself was opened for reading only.
            pragmas::set(&conn, "query_only", "OFF", "0")?;
            copy(&conn, frozen.as_ref(), &path)
        });
        copying.await.unwrap_or_else(|error| {
            Err(SqliteError::database(format!("copying the database ended early: {error}")))
        })
    }
}

/// Copies what the connection sees into a new file.
fn copy(reader: &Connection, frozen: Option<&FrozenFile>, path: &Path) -> Result<(), SqliteError> {
    check_place(path)?;
    let partial = beside(path, &format!("-partial-{:016x}", random_number()));
    let copied = write(reader, &partial, path).and_then(|()| match frozen {
        Some(frozen) if frozen.has_changed() => {
            Err(SqliteError::database(format!("{}: it changed meanwhile; try again", doing(path))))
        }
        _ => give_name(&partial, path),
    });
    // After a failure the error that counts is the first one; there may be no file.
    drop(std::fs::remove_file(&partial));
    copied?;
    sync_folder(path).map_err(|error| SqliteError::io(doing(path), error))
}

/// Refuses a name that is taken, and one whose log SQLite would apply to the copy.
fn check_place(path: &Path) -> Result<(), SqliteError> {
    if path.exists() {
        return Err(exists(path));
    }
    for suffix in ["-wal", "-journal"] {
        let leftover = beside(path, suffix);
        if leftover.exists() {
            return Err(SqliteError::database(format!(
                "{}: {} was left by another database and would be applied to the copy; remove it",
                doing(path),
                leftover.display()
            )));
        }
    }
    Ok(())
}

fn write(conn: &Connection, partial: &Path, path: &Path) -> Result<(), SqliteError> {
    let Some(name) = partial.to_str() else {
        return Err(SqliteError::database(format!("{}: the path is not UTF-8", doing(path))));
    };
    conn.execute("VACUUM INTO ?1", [name]).map_err(|error| SqliteError::sqlite(doing(path), error))?;
    let written = File::open(partial).and_then(|file| file.sync_all());
    written.map_err(|error| SqliteError::io(doing(path), error))
}

/// Gives the complete copy its name, unless a file has it. The copy still has its old name.
fn give_name(partial: &Path, path: &Path) -> Result<(), SqliteError> {
    match std::fs::hard_link(partial, path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(exists(path)),
        // Not every file system has a second name for a file.
        Err(_) if !path.exists() => {
            std::fs::rename(partial, path).map_err(|error| SqliteError::io(doing(path), error))
        }
        Err(error) => Err(SqliteError::io(doing(path), error)),
    }
}

fn exists(path: &Path) -> SqliteError {
    SqliteError::database(format!("{}: the file exists", doing(path)))
}

/// The path with something at its end.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Two copies to one name have different unfinished files.
fn random_number() -> u64 {
    // Its keys are random.
    RandomState::new().build_hasher().finish()
}

/// Makes the new name durable.
#[cfg(unix)]
fn sync_folder(path: &Path) -> io::Result<()> {
    match path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        Some(folder) => File::open(folder)?.sync_all(),
        None => File::open(".")?.sync_all(),
    }
}

/// Elsewhere a folder cannot be synced.
#[cfg(not(unix))]
fn sync_folder(_path: &Path) -> io::Result<()> {
    Ok(())
}

fn doing(path: &Path) -> String {
    format!("copying the database to {}", path.display())
}
