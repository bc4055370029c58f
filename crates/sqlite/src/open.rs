//! Opening a database and starting its writer.

use std::sync::Arc;

use tokio::sync::{oneshot, watch};
use tokio::task::AbortHandle;

use crate::command_queue::CommandQueue;
use crate::error::SqliteError;
use crate::open_file::{self, OpenedDatabase};
use crate::options::SqliteOptions;
use crate::owners::OwnerFolder;
use crate::process_lock::{self, ProcessLock};
use crate::testing::Environment;
use crate::url::{Location, OpenMode};
use crate::writer::other_processes::FileUsers;
use crate::writer::{self, BatchLimits, Writer, WriterShared};
use crate::writers_of_process::ProcessWriters;

/// The oldest usable SQLite: older ones can lose pages of a write-ahead log that several connections write and checkpoint.
const SQLITE_VERSION_MIN: i32 = 3_051_003;

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
        let _end = WriterEnd {
            commands: Arc::clone(&commands),
            shared: Arc::clone(&shared),
            location: location.clone(),
            end,
        };
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
    let (writer, lock) = open(&location, options, environment, Arc::clone(&commands), Arc::clone(&shared))?;
    let end = WriterEnd { commands: Arc::clone(&commands), shared, location, end };
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
    shared: Arc<WriterShared>,
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
        self.shared.watches.close();
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
    let (clock, busy_timeout) = (Arc::clone(&options.clock), options.busy_timeout);
    let started = |writer: rusqlite::Result<Writer>| {
        writer.map_err(|error| SqliteError::sqlite("starting the writer", error))
    };
    let Location::File { path, mode } = location else {
        let conn = open_file::open_memory(options)?;
        let writer = Writer::new(conn, None, clock, busy_timeout, commands, shared, limits);
        return Ok((started(writer)?, None));
    };
    let OpenedDatabase { conn, lock, stale, identity, frozen } =
        open_file::open(path, *mode, options, environment.vfs.as_deref())?;
    if let Some(identity) = identity {
        shared.guard.watch(path.clone(), identity);
    }
    let folder = OwnerFolder::beside(path);
    let read_only = *mode == OpenMode::ReadOnly;
    let own = if read_only { None } else { folder.join(&*clock) };
    let owner = own.as_ref().map(|own| own.id);
    let wakes = !environment.writer_in_task;
    let process_writers =
        ProcessWriters::join(path, Arc::clone(&commands), Arc::clone(&shared), owner, wakes);
    let users = FileUsers { folder, own, process_writers, read_only, frozen };
    let mut writer = started(Writer::new(conn, Some(users), clock, busy_timeout, commands, shared, limits))?;
    if read_only {
        writer.only_read(format!("{} was opened with mode=ro, for reading only", path.display()));
    }
    if environment.writer_in_task {
        writer.never_wait();
    }
    writer.release_stale(stale);
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
