//! Opening a database: pragmas, schema, the locks of the dead, and the writer's thread.

use std::path::Path;
use std::sync::Arc;

use rusqlite::{Connection, OpenFlags};
use tokio::sync::{oneshot, watch};
use tokio::task::AbortHandle;

use crate::error::SqliteError;
use crate::mailbox::Mailbox;
use crate::operation::Failure;
use crate::options::SqliteOptions;
use crate::process_lock::{self, OpeningLock, ProcessLock};
use crate::shared::Shared;
use crate::url::Location;
use crate::writer::{Bounds, Writer};
use crate::{checkpoint, inbox, pragmas, schema, writer_task, writer_thread};

/// The oldest SQLite that can be trusted with a log that several connections write and move: older ones can lose pages.
const SQLITE_VERSION_MIN: i32 = 3_051_003;

/// A connection to the file, through the file system of that name.
pub(crate) fn connect(path: &Path, flags: OpenFlags, vfs: Option<&str>) -> rusqlite::Result<Connection> {
    match vfs {
        None => Connection::open_with_flags(path, flags),
        Some(vfs) => Connection::open_with_flags_and_vfs(path, flags, vfs),
    }
}

/// A writer at work.
pub(crate) struct Started {
    /// Becomes true when the writer has ended.
    pub(crate) ended: watch::Receiver<bool>,
    /// The writer, if it is a task.
    pub(crate) task: Option<AbortHandle>,
}

/// Opens the database and starts its writer.
pub(crate) async fn start(
    location: Location,
    options: SqliteOptions,
    mailbox: Arc<Mailbox>,
    shared: Arc<Shared>,
) -> Result<Started, SqliteError> {
    if options.writer_in_task {
        return start_task(location, &options, mailbox, shared);
    }
    let (opened, is_open) = oneshot::channel();
    let (end, ended) = watch::channel(false);
    let thread = move || {
        let _end = End { mailbox: Arc::clone(&mailbox), location: location.clone(), end };
        match open(&location, &options, Arc::clone(&mailbox), shared) {
            Ok((writer, lock)) => {
                let unattended = Unattended(Some((Arc::clone(&mailbox), location)));
                // If nobody waits for it any more the mailbox is closed at once, and the writer ends.
                drop(opened.send(Ok(unattended)));
                writer_thread::run(writer, &mailbox);
                drop(lock);
            }
            // A caller that no longer listens need not know.
            Err(error) => drop(opened.send(Err(error))),
        }
    };
    std::thread::Builder::new()
        .name("everturn-sqlite".to_owned())
        .spawn(thread)
        .map_err(|error| SqliteError::io("starting the writer's thread", error))?;
    match is_open.await {
        Ok(Ok(mut unattended)) => {
            unattended.0 = None;
            Ok(Started { ended, task: None })
        }
        Ok(Err(error)) => Err(error),
        Err(_) => Err(SqliteError::closed("opening: the writer's thread ended")),
    }
}

/// Opens the database here and now, and starts its writer as a task.
fn start_task(
    location: Location,
    options: &SqliteOptions,
    mailbox: Arc<Mailbox>,
    shared: Arc<Shared>,
) -> Result<Started, SqliteError> {
    let (end, ended) = watch::channel(false);
    let (writer, lock) = open(&location, options, Arc::clone(&mailbox), shared)?;
    let end = End { mailbox: Arc::clone(&mailbox), location, end };
    // Aborted or not, everything of it goes in this order: the writer with its connection, the lock, the word of its end.
    let owned = (writer, lock, end);
    // It ends when the mailbox is closed, and `ended` is how that is waited for.
    let task = tokio::spawn(async move {
        let (writer, lock, end) = owned;
        let _end = end;
        let _lock = lock;
        writer_task::run(writer, &mailbox).await;
    });
    Ok(Started { ended, task: Some(task.abort_handle()) })
}

/// Ends the writer if whoever opened the database left before it had it.
struct Unattended(Option<(Arc<Mailbox>, Location)>);

impl Drop for Unattended {
    fn drop(&mut self) {
        if let Some((mailbox, location)) = self.0.take() {
            mailbox.close(|| {
                if let Location::File { path, .. } = &location {
                    process_lock::begin_closing(path);
                }
            });
        }
    }
}

/// Says that the thread has ended, even by a panic.
struct End {
    mailbox: Arc<Mailbox>,
    location: Location,
    end: watch::Sender<bool>,
}

impl Drop for End {
    fn drop(&mut self) {
        if self.mailbox.abandon()
            && let Location::File { path, .. } = &self.location
        {
            process_lock::end_closing(path);
        }
        self.end.send_replace(true);
    }
}

fn open(
    location: &Location,
    options: &SqliteOptions,
    mailbox: Arc<Mailbox>,
    shared: Arc<Shared>,
) -> Result<(Writer, Option<ProcessLock>), SqliteError> {
    check_version(rusqlite::version_number())?;
    let bounds = Bounds {
        operations_max: options.batch_operations_max.max(1),
        payload_bytes_max: options.batch_payload_bytes_max.max(1),
        busy_timeout: options.busy_timeout,
    };
    let (conn, lock) = match location {
        Location::Memory => (open_memory(options)?, None),
        Location::File { path, create } => {
            let (conn, lock) = open_file(path, *create, options)?;
            (conn, Some(lock))
        }
    };
    let in_file = lock.is_some();
    let clock = Arc::clone(&options.clock);
    let writer = Writer::new(conn, in_file, clock, mailbox, shared, bounds)
        .map_err(|error| SqliteError::sqlite("starting the writer", error))?;
    Ok((writer, lock))
}

fn check_version(version: i32) -> Result<(), SqliteError> {
    if version >= SQLITE_VERSION_MIN {
        Ok(())
    } else {
        Err(SqliteError::database(format!(
            "SQLite {version} can corrupt a database that several connections use; {SQLITE_VERSION_MIN} is needed"
        )))
    }
}

fn open_memory(options: &SqliteOptions) -> Result<Connection, SqliteError> {
    let mut conn = Connection::open_in_memory()
        .map_err(|error| SqliteError::sqlite("opening a database in memory", error))?;
    pragmas::set_up_writer(&conn, false, options.synchronous)?;
    schema::migrate(&mut conn)?;
    Ok(conn)
}

fn open_file(
    path: &Path,
    create: bool,
    options: &SqliteOptions,
) -> Result<(Connection, ProcessLock), SqliteError> {
    let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    if create {
        flags |= OpenFlags::SQLITE_OPEN_CREATE;
    } else if !path.exists() {
        return Err(SqliteError::database(format!("opening {}: there is no such file", path.display())));
    }
    process_lock::wait_for_closing(path);
    let lock = OpeningLock::take(path)?;
    let mut conn = connect(path, flags, options.vfs.as_deref())
        .map_err(|error| SqliteError::sqlite(format_args!("opening {}", path.display()), error))?;
    // Others may be opening the file, or recovering it.
    conn.busy_timeout(std::time::Duration::from_secs(10))
        .map_err(|error| SqliteError::sqlite("setting the busy timeout", error))?;
    pragmas::set(&conn, "journal_mode", "WAL", "wal")?;
    schema::migrate(&mut conn)?;
    pragmas::set_up_writer(&conn, true, options.synchronous)?;
    if lock.is_alone() {
        // What a crash left in the log goes into the file before anything relies on it.
        if let Err(error) = checkpoint::truncate(&conn) {
            // Somebody reads the file without our lock, a backup say. The log stays; it is as good as the file.
            tracing::warn!(target: "everturn::providers::sqlite", %error, "the log was not emptied at opening");
        }
        free_locks_of_the_dead(&mut conn)?;
    }
    Ok((conn, lock.share()?))
}

// A lock that had expired when its holder died needs no help: its row is up for the taking.
const LOCKED_INSTANCES: &str = "SELECT instance_key FROM instances WHERE lock_token IS NOT NULL AND ready_seq IS NULL AND locked_until_ms >= 0";
const FREE_MESSAGES: &str = "UPDATE orchestrator_queue SET tagged = 0 \
     WHERE instance_key = ?1 AND visible_at_ms = 0 AND tagged = 1";
const FREE_INSTANCE: &str = "UPDATE instances SET lock_token = NULL, locked_until_ms = NULL, lock_ms = NULL \
     WHERE instance_key = ?1";
const LOCKED_ACTIVITIES: &str =
    "SELECT seq FROM worker_queue WHERE lock_token IS NOT NULL AND ready = 0 AND locked_until_ms >= 0";
const FREE_ACTIVITY: &str = "UPDATE worker_queue SET lock_token = NULL, locked_until_ms = NULL, lock_ms = NULL, \
     ready = visible_at_ms = 0 WHERE seq = ?1";
const FREE_SESSIONS: &str = "DELETE FROM sessions";

/// Nobody else has the file open, so nobody holds anything in it. The attempts stay counted.
fn free_locks_of_the_dead(conn: &mut Connection) -> Result<(), SqliteError> {
    let failed = |error| SqliteError::sqlite("freeing the locks of the dead", error);
    let transaction = conn.transaction().map_err(failed)?;
    free_all(&transaction).map_err(failed)?;
    transaction.commit().map_err(failed)
}

fn free_all(conn: &Connection) -> rusqlite::Result<()> {
    for key in row_ids(conn, LOCKED_INSTANCES)? {
        unless_damaged(conn, || {
            conn.prepare_cached(FREE_MESSAGES)?.execute([key])?;
            conn.prepare_cached(FREE_INSTANCE)?.execute([key])?;
            conn.prepare_cached(inbox::REFRESH)?.query_row([key], |_row| Ok(()))
        })?;
    }
    for seq in row_ids(conn, LOCKED_ACTIVITIES)? {
        unless_damaged(conn, || conn.prepare_cached(FREE_ACTIVITY)?.execute([seq]).map(|_| ()))?;
    }
    conn.execute(FREE_SESSIONS, [])?;
    Ok(())
}

fn row_ids(conn: &Connection, select: &str) -> rusqlite::Result<Vec<i64>> {
    conn.prepare(select)?.query_map([], |row| row.get(0))?.collect()
}

/// Frees one row whole or not at all. A damaged one keeps its lock, and does not keep the file from being opened.
fn unless_damaged(conn: &Connection, free: impl FnOnce() -> rusqlite::Result<()>) -> rusqlite::Result<()> {
    conn.execute_batch("SAVEPOINT one")?;
    match free().map_err(Failure::from) {
        Ok(()) => {}
        Err(Failure::Refused(error)) => {
            tracing::error!(target: "everturn::providers::sqlite", %error, "the lock of a damaged row stays");
            conn.execute_batch("ROLLBACK TO one")?;
        }
        Err(Failure::Storage(error)) => return Err(error),
    }
    conn.execute_batch("RELEASE one")
}
