//! Opening a database: pragmas, schema, locks of processes that no longer run, and the writer's thread.

use std::path::Path;
use std::sync::Arc;

use rusqlite::{Connection, OpenFlags};
use tokio::sync::{oneshot, watch};
use tokio::task::AbortHandle;

use crate::command_queue::CommandQueue;
use crate::error::SqliteError;
use crate::operation::VerbFailure;
use crate::options::SqliteOptions;
use crate::process_lock::{self, OpeningLock, ProcessLock};
use crate::testing::Environment;
use crate::url::Location;
use crate::writer::{self, BatchLimits, Writer, WriterShared};
use crate::{checkpoint, orchestrator_queue, pragmas, schema};

/// The oldest usable SQLite: older ones can lose pages of a write-ahead log that several connections write and checkpoint.
const SQLITE_VERSION_MIN: i32 = 3_051_003;

/// A connection to the file, through the file system of that name.
pub(crate) fn connect(path: &Path, flags: OpenFlags, vfs: Option<&str>) -> rusqlite::Result<Connection> {
    match vfs {
        None => Connection::open_with_flags(path, flags),
        Some(vfs) => Connection::open_with_flags_and_vfs(path, flags, vfs),
    }
}

/// A running writer.
pub(crate) struct StartedWriter {
    /// Becomes true when the writer has ended.
    pub(crate) ended: watch::Receiver<bool>,
    /// The writer, if it is a task.
    pub(crate) task: Option<AbortHandle>,
}

/// Opens the database and starts its writer.
pub(crate) async fn start(
    location: Location,
    options: SqliteOptions,
    environment: Environment,
    commands: Arc<CommandQueue>,
    shared: Arc<WriterShared>,
) -> Result<StartedWriter, SqliteError> {
    if environment.writer_in_task {
        return start_task(location, &options, &environment, commands, shared);
    }
    let (opened, is_open) = oneshot::channel();
    let (end, ended) = watch::channel(false);
    let thread = move || {
        let _end = WriterEnd { commands: Arc::clone(&commands), location: location.clone(), end };
        match open(&location, &options, &environment, Arc::clone(&commands), shared) {
            Ok((writer, lock)) => {
                let unclaimed = UnclaimedWriter(Some((Arc::clone(&commands), location)));
                // If the caller no longer waits, dropping this closes the queue, and the writer ends.
                drop(opened.send(Ok(unclaimed)));
                writer::thread::run(writer, &commands);
                drop(lock);
            }
            // A caller that no longer waits gets no answer.
            Err(error) => drop(opened.send(Err(error))),
        }
    };
    std::thread::Builder::new()
        .name("everturn-sqlite".to_owned())
        .spawn(thread)
        .map_err(|error| SqliteError::io("starting the writer's thread", error))?;
    match is_open.await {
        Ok(Ok(mut unclaimed)) => {
            unclaimed.0 = None;
            Ok(StartedWriter { ended, task: None })
        }
        Ok(Err(error)) => Err(error),
        Err(_) => Err(SqliteError::closed("opening: the writer's thread ended")),
    }
}

/// Opens the database on the calling thread, and starts its writer as a task.
fn start_task(
    location: Location,
    options: &SqliteOptions,
    environment: &Environment,
    commands: Arc<CommandQueue>,
    shared: Arc<WriterShared>,
) -> Result<StartedWriter, SqliteError> {
    let (end, ended) = watch::channel(false);
    let (writer, lock) = open(&location, options, environment, Arc::clone(&commands), shared)?;
    let end = WriterEnd { commands: Arc::clone(&commands), location, end };
    // Aborted or not, they are dropped in this order: the writer with its connection, the lock, the notice of its end.
    let owned = (writer, lock, end);
    // The task ends when the queue is closed; `ended` becomes true then.
    let task = tokio::spawn(async move {
        let (writer, lock, end) = owned;
        let _end = end;
        let _lock = lock;
        writer::task::run(writer, &commands).await;
    });
    Ok(StartedWriter { ended, task: Some(task.abort_handle()) })
}

/// Ends the writer if the caller that opened the database was dropped before it had the provider.
struct UnclaimedWriter(Option<(Arc<CommandQueue>, Location)>);

impl Drop for UnclaimedWriter {
    fn drop(&mut self) {
        if let Some((commands, location)) = self.0.take() {
            commands.close(|| {
                if let Location::File { path, .. } = &location {
                    process_lock::begin_closing(path);
                }
            });
        }
    }
}

/// Announces that the writer has ended, even by a panic.
struct WriterEnd {
    commands: Arc<CommandQueue>,
    location: Location,
    end: watch::Sender<bool>,
}

impl Drop for WriterEnd {
    fn drop(&mut self) {
        if self.commands.writer_ended()
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
    environment: &Environment,
    commands: Arc<CommandQueue>,
    shared: Arc<WriterShared>,
) -> Result<(Writer, Option<ProcessLock>), SqliteError> {
    check_version(rusqlite::version_number())?;
    let limits = BatchLimits {
        operations_max: options.batch_operations_max.max(1),
        payload_bytes_max: options.batch_payload_bytes_max.max(1),
    };
    let (conn, lock) = match location {
        Location::Memory => (open_memory(options)?, None),
        Location::File { path, create } => {
            let (conn, lock) = open_file(path, *create, options, environment.vfs.as_deref())?;
            (conn, Some(lock))
        }
    };
    let in_file = lock.is_some();
    let clock = Arc::clone(&options.clock);
    let writer = Writer::new(conn, in_file, clock, options.busy_timeout, commands, shared, limits)
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
    vfs: Option<&str>,
) -> Result<(Connection, ProcessLock), SqliteError> {
    let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    if create {
        flags |= OpenFlags::SQLITE_OPEN_CREATE;
    } else if !path.exists() {
        return Err(SqliteError::database(format!("opening {}: there is no such file", path.display())));
    }
    process_lock::wait_for_closing(path);
    let lock = OpeningLock::take(path)?;
    let mut conn = connect(path, flags, vfs)
        .map_err(|error| SqliteError::sqlite(format_args!("opening {}", path.display()), error))?;
    // Another process may be opening or recovering the file.
    conn.busy_timeout(std::time::Duration::from_secs(10))
        .map_err(|error| SqliteError::sqlite("setting the busy timeout", error))?;
    pragmas::set(&conn, "journal_mode", "WAL", "wal")?;
    schema::migrate(&mut conn)?;
    pragmas::set_up_writer(&conn, true, options.synchronous)?;
    if lock.is_alone() {
        // What a crash left in the write-ahead log goes into the file first.
        if let Err(error) = checkpoint::truncate(&conn) {
            // Another program reads the file without our lock, for example a backup.
            tracing::warn!(target: "everturn::providers::sqlite", %error,
                "the write-ahead log was not emptied at opening; it stays beside the database file and nothing is lost");
        }
        release_stale_locks(&mut conn)?;
    }
    Ok((conn, lock.share()?))
}

// The row of an expired lock is ready already.
const LOCKED_INSTANCES: &str = "SELECT instance_key FROM instances WHERE lock_token IS NOT NULL AND ready_seq IS NULL AND locked_until_ms >= 0";
const RELEASE_MESSAGES: &str = "UPDATE orchestrator_queue SET tagged = 0 \
     WHERE instance_key = ?1 AND visible_at_ms = 0 AND tagged = 1";
const RELEASE_INSTANCE: &str = "UPDATE instances SET lock_token = NULL, locked_until_ms = NULL, lock_ms = NULL \
     WHERE instance_key = ?1";
const LOCKED_ACTIVITIES: &str =
    "SELECT seq FROM worker_queue WHERE lock_token IS NOT NULL AND ready = 0 AND locked_until_ms >= 0";
const RELEASE_ACTIVITY: &str = "UPDATE worker_queue SET lock_token = NULL, locked_until_ms = NULL, lock_ms = NULL, \
     ready = visible_at_ms = 0 WHERE seq = ?1";
const DELETE_SESSIONS: &str = "DELETE FROM sessions";

/// Releases locks held by processes that no longer run: no other process has the file open. The attempts stay counted.
fn release_stale_locks(conn: &mut Connection) -> Result<(), SqliteError> {
    let failed = |error| SqliteError::sqlite("releasing locks of processes that no longer run", error);
    let transaction = conn.transaction().map_err(failed)?;
    release_all(&transaction).map_err(failed)?;
    transaction.commit().map_err(failed)
}

fn release_all(conn: &Connection) -> rusqlite::Result<()> {
    for key in row_ids(conn, LOCKED_INSTANCES)? {
        unless_damaged(conn, || {
            conn.prepare_cached(RELEASE_MESSAGES)?.execute([key])?;
            conn.prepare_cached(RELEASE_INSTANCE)?.execute([key])?;
            conn.prepare_cached(orchestrator_queue::REFRESH)?.query_row([key], |_row| Ok(()))
        })?;
    }
    for seq in row_ids(conn, LOCKED_ACTIVITIES)? {
        unless_damaged(conn, || conn.prepare_cached(RELEASE_ACTIVITY)?.execute([seq]).map(|_| ()))?;
    }
    conn.execute(DELETE_SESSIONS, [])?;
    Ok(())
}

fn row_ids(conn: &Connection, select: &str) -> rusqlite::Result<Vec<i64>> {
    conn.prepare(select)?.query_map([], |row| row.get(0))?.collect()
}

/// Releases one row completely or not at all. A damaged row keeps its lock and does not prevent the opening.
fn unless_damaged(conn: &Connection, release: impl FnOnce() -> rusqlite::Result<()>) -> rusqlite::Result<()> {
    conn.execute_batch("SAVEPOINT one")?;
    match release().map_err(VerbFailure::from) {
        Ok(()) => {}
        Err(VerbFailure::Refused(error)) => {
            tracing::error!(target: "everturn::providers::sqlite", %error,
                "a damaged row keeps the lock of a process that no longer runs; repair or delete the row");
            conn.execute_batch("ROLLBACK TO one")?;
        }
        Err(VerbFailure::Storage(error)) => return Err(error),
    }
    conn.execute_batch("RELEASE one")
}
