//! Opening a database file: its schema is checked before anything is changed, and migrated if no other process has it open.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::error::SqliteError;
use crate::file_identity::FileIdentity;
use crate::frozen_file::{FrozenFile, ReadConnection};
use crate::options::SqliteOptions;
use crate::process_lock::{self, OpeningLock, ProcessLock};
use crate::stale_locks::StaleLocks;
use crate::url::OpenMode;
use crate::{checkpoint, pragmas, schema};

/// How long opening waits for another process that is opening, recovering or closing the file.
const BUSY: Duration = Duration::from_secs(10);
/// How long opening waits for other processes to close a file that must be migrated: they may be opening it as well.
const ALONE_MAX: Duration = Duration::from_secs(2);
const ALONE_PAUSE: Duration = Duration::from_millis(10);

/// An open database file.
pub(crate) struct OpenedDatabase {
    pub(crate) conn: Connection,
    /// Says that this process has the file open; `None` if it only reads.
    pub(crate) lock: Option<ProcessLock>,
    /// Locks of processes that no longer run.
    pub(crate) stale: StaleLocks,
    /// `None` if the file is not in a file system of the operating system.
    pub(crate) identity: Option<FileIdentity>,
    /// What the connection shows, if it cannot follow changes of the file.
    pub(crate) frozen: Option<FrozenFile>,
}

/// A connection to the file, through the file system of that name.
pub(crate) fn connect(path: &Path, flags: OpenFlags, vfs: Option<&str>) -> rusqlite::Result<Connection> {
    let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    match vfs {
        None => Connection::open_with_flags(path, flags),
        Some(vfs) => Connection::open_with_flags_and_vfs(path, flags, vfs),
    }
}

pub(crate) fn open_memory(options: &SqliteOptions) -> Result<Connection, SqliteError> {
    let mut conn = Connection::open_in_memory()
        .map_err(|error| SqliteError::sqlite("opening a database in memory", error))?;
    // For copies of it in files; the database itself is never shrunk.
    pragmas::set_up_new_file(&conn)?;
    pragmas::set_up_writer(&conn, false, options.synchronous)?;
    schema::migrate(&mut conn)?;
    Ok(conn)
}

/// Opens a file. Nothing is changed, and no file is made beside it, before it is known to be ours or new.
pub(crate) fn open(
    path: &Path,
    mode: OpenMode,
    options: &SqliteOptions,
    vfs: Option<&str>,
) -> Result<OpenedDatabase, SqliteError> {
    if vfs.is_none() {
        check_place(path, mode)?;
    }
    process_lock::wait_for_closing(path);
    match mode {
        OpenMode::ReadOnly => open_to_read(path, vfs),
        OpenMode::Create | OpenMode::Existing => open_to_write(path, mode, options, vfs),
    }
}

/// Says what is missing, which SQLite does not. A missing folder is not created: its name may be a typing mistake.
fn check_place(path: &Path, mode: OpenMode) -> Result<(), SqliteError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder
        && !folder.is_dir()
    {
        return Err(SqliteError::database(format!(
            "opening {}: the folder {} does not exist; create it first",
            path.display(),
            folder.display()
        )));
    }
    if mode != OpenMode::Create && !path.exists() {
        return Err(SqliteError::database(format!("opening {}: there is no such file", path.display())));
    }
    Ok(())
}

fn open_to_write(
    path: &Path,
    mode: OpenMode,
    options: &SqliteOptions,
    vfs: Option<&str>,
) -> Result<OpenedDatabase, SqliteError> {
    let opening = |error| SqliteError::sqlite(format_args!("opening {}", path.display()), error);
    let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
    if mode == OpenMode::Create {
        flags |= OpenFlags::SQLITE_OPEN_CREATE;
    }
    let mut conn = connect(path, flags, vfs).map_err(opening)?;
    conn.busy_timeout(BUSY).map_err(opening)?;
    // Closing a connection to a file that is not ours must not move its log into it.
    set_checkpoint_on_close(&conn, !has_log(path)).map_err(opening)?;
    schema::check(&conn, path)?;
    let lock = lock(&conn, path)?;
    set_checkpoint_on_close(&conn, true).map_err(opening)?;
    let of_this_file = |error: SqliteError| error.while_opening(path);
    if schema::check(&conn, path)? == 0 {
        pragmas::set_up_new_file(&conn).map_err(of_this_file)?;
    }
    if pragmas::read(&conn, "journal_mode").map_err(of_this_file)? != "wal" {
        pragmas::set(&conn, "journal_mode", "WAL", "wal").map_err(of_this_file)?;
    }
    if schema::must_migrate(schema::check(&conn, path)?) {
        schema::migrate(&mut conn).map_err(of_this_file)?;
    }
    pragmas::set_up_writer(&conn, true, options.synchronous).map_err(of_this_file)?;
    let mut stale = StaleLocks::default();
    if lock.is_alone() {
        // What a crash left in the write-ahead log goes into the file first.
        if let Err(error) = checkpoint::truncate(&conn) {
            // Another program reads or writes the file without our lock, for example a backup, or the disk is full.
            tracing::warn!(target: "everturn::providers::sqlite", %error,
                "the write-ahead log was not emptied at opening; it stays beside the database file and nothing is lost");
        }
        stale = StaleLocks::find(&conn, None)
            .map_err(|error| SqliteError::sqlite("reading locks of processes that no longer run", error))?;
    }
    let identity = identity(path, vfs)?;
    let lock = lock.share()?;
    // A newer process that had the file alone meanwhile may have migrated it.
    schema::check(&conn, path)?;
    Ok(OpenedDatabase { conn, lock: Some(lock), stale, identity, frozen: None })
}

/// Takes the lock beside the file. A file that must be migrated is locked only by a process that has it alone: others that
/// have it open do not know the new schema.
fn lock(conn: &Connection, path: &Path) -> Result<OpeningLock, SqliteError> {
    let began = Instant::now();
    loop {
        let lock = OpeningLock::take(path)?;
        let version = schema::check(conn, path)?;
        if lock.is_alone() || !schema::must_migrate(version) {
            return Ok(lock);
        }
        if began.elapsed() >= ALONE_MAX {
            return Err(SqliteError::database(format!(
                "opening {}: its schema has version {version} and must be migrated, and another process has it open; \
                 end that process first",
                path.display()
            )));
        }
        drop(lock);
        std::thread::sleep(ALONE_PAUSE);
    }
}

fn set_checkpoint_on_close(conn: &Connection, on: bool) -> rusqlite::Result<()> {
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, !on).map(|_| ())
}

/// Opens a file for reading: no lock is taken beside it, and nothing is written.
fn open_to_read(path: &Path, vfs: Option<&str>) -> Result<OpenedDatabase, SqliteError> {
    let ReadConnection { conn, frozen } = connect_reader(path, vfs, OpenMode::ReadOnly)?;
    let version = schema::check(&conn, path)?;
    if schema::must_migrate(version) {
        return Err(SqliteError::database(format!(
            "opening {}: its schema has version {version} and must be migrated first; open it once without mode=ro",
            path.display()
        )));
    }
    let (stale, identity) = (StaleLocks::default(), identity(path, vfs)?);
    Ok(OpenedDatabase { conn, lock: None, stale, identity, frozen })
}

/// A connection that only reads, for a provider that was opened in this mode.
pub(crate) fn connect_reader(
    path: &Path,
    vfs: Option<&str>,
    mode: OpenMode,
) -> Result<ReadConnection, SqliteError> {
    let opening = |error| SqliteError::sqlite(format_args!("opening {}", path.display()), error);
    let conn = connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY, vfs).map_err(opening)?;
    pragmas::set_up_reader(&conn)?;
    match pragmas::read_version(&conn) {
        Ok(()) => Ok(ReadConnection { conn, frozen: None }),
        // A provider that writes has the shared memory, and its log is about to be written: the error passes.
        Err(error) if mode == OpenMode::ReadOnly && vfs.is_none() && needs_shared_memory(&error) => {
            // Before the file is opened, so that no change falls in between.
            let frozen = FrozenFile::now(path)
                .map_err(|error| SqliteError::io(format_args!("opening {}", path.display()), error))?;
            if has_log(path) {
                return Err(opening(error));
            }
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
            let conn = connect(Path::new(&immutable(path)), flags, None).map_err(opening)?;
            pragmas::set_up_reader(&conn)?;
            Ok(ReadConnection { conn, frozen: Some(frozen) })
        }
        Err(error) => Err(opening(error)),
    }
}

/// Whether the memory that connections share cannot be made.
fn needs_shared_memory(error: &rusqlite::Error) -> bool {
    use rusqlite::ffi::{SQLITE_IOERR_SHMMAP, SQLITE_IOERR_SHMOPEN, SQLITE_IOERR_SHMSIZE};
    let of_shared_memory = [SQLITE_IOERR_SHMOPEN, SQLITE_IOERR_SHMSIZE, SQLITE_IOERR_SHMMAP];
    error.sqlite_error().is_some_and(|error| {
        matches!(error.code, ErrorCode::CannotOpen | ErrorCode::DiskFull | ErrorCode::ReadOnly)
            || of_shared_memory.contains(&error.extended_code)
    })
}

/// Whether the database has a write-ahead log with something in it.
pub(crate) fn has_log(path: &Path) -> bool {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    match std::fs::metadata(&log) {
        Ok(log) => log.len() > 0,
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

/// The URI of a file that does not change.
fn immutable(path: &Path) -> String {
    let mut uri = "file:".to_owned();
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'/' | b'.' | b'_' | b'-' => {
                uri.push(char::from(*byte))
            }
            other => uri.push_str(&format!("%{other:02X}")),
        }
    }
    uri.push_str("?immutable=1");
    uri
}

/// The file that was opened.
fn identity(path: &Path, vfs: Option<&str>) -> Result<Option<FileIdentity>, SqliteError> {
    if vfs.is_some() {
        return Ok(None);
    }
    FileIdentity::at(path).map_err(|error| SqliteError::io(format_args!("opening {}", path.display()), error))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{OpenMode, connect_reader, immutable};

    #[cfg(unix)]
    #[test]
    fn a_provider_that_writes_reads_no_file_as_if_it_did_not_change() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let writer = rusqlite::Connection::open(&path).unwrap();
        writer.pragma_update(None, "journal_mode", "WAL").unwrap();
        writer.execute_batch("CREATE TABLE t (a)").unwrap();
        drop(writer);
        // SQLite cannot make the memory that connections share.
        std::os::unix::fs::symlink("missing", folder.path().join("store.db-shm")).unwrap();
        let refused = connect_reader(&path, None, OpenMode::Existing);
        assert!(refused.is_err(), "it would show this state for ever");
        let reader = connect_reader(&path, None, OpenMode::ReadOnly).unwrap();
        assert!(reader.frozen.is_some_and(|frozen| !frozen.has_changed()));
    }

    #[test]
    fn a_uri_names_the_file_whatever_its_name() {
        assert_eq!(immutable(Path::new("/a/b-c_1.db")), "file:/a/b-c_1.db?immutable=1");
        assert_eq!(immutable(Path::new("/a b?#%.db")), "file:/a%20b%3F%23%25.db?immutable=1");
    }
}
