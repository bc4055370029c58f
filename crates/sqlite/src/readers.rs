//! Connections that only read.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use everturn_provider::{Clock, ProviderError};
use rusqlite::Connection;
use tokio::sync::Semaphore;

use crate::command_queue::CommandQueue;
use crate::error::SqliteError;
use crate::frozen_file::ReadConnection;
use crate::operation::storage_error;
use crate::options::SqliteOptions;
use crate::provider::closed;
use crate::reader_gate::ReaderPass;
use crate::testing::Environment;
use crate::url::OpenMode;
use crate::writer::WriterShared;
use crate::{open_file, schema};

/// How many long reads are under way at most.
const LONG_MAX: usize = 2;

/// A small pool of read-only connections, opened as they are needed.
pub(crate) struct Readers {
    path: PathBuf,
    vfs: Option<String>,
    mode: OpenMode,
    /// Whether there are threads for long reads.
    threads: bool,
    permits: Semaphore,
    /// For reads that may take long: they do not delay the short ones.
    long_permits: Arc<Semaphore>,
    idle: Mutex<Vec<Connection>>,
    /// Says whether the file is still the one that was opened, and holds readers while the log is to be emptied.
    shared: Arc<WriterShared>,
    /// To wake the writer that holds readers.
    commands: Arc<CommandQueue>,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for Readers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Readers").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Readers {
    pub(crate) fn new(
        path: PathBuf,
        mode: OpenMode,
        options: &SqliteOptions,
        environment: &Environment,
        shared: Arc<WriterShared>,
        commands: Arc<CommandQueue>,
    ) -> Self {
        Self {
            path,
            mode,
            vfs: environment.vfs.clone(),
            threads: !environment.writer_in_task,
            permits: Semaphore::new(options.readers_max.max(1)),
            long_permits: Arc::new(Semaphore::new(LONG_MAX)),
            idle: Mutex::new(Vec::new()),
            shared,
            commands,
            clock: Arc::clone(&options.clock),
        }
    }

    /// The database file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs one short read on the calling thread.
    pub(crate) async fn run<T>(
        &self,
        operation: &str,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, ProviderError> {
        let Ok(_permit) = self.permits.acquire().await else { return Err(closed(operation)) };
        let _pass = self.pass_gate(operation).await?;
        self.read(operation, read)
    }

    /// Runs a read that may scan whole tables, on a thread of its own.
    pub(crate) async fn run_at_length<T: Send + 'static>(
        self: &Arc<Self>,
        operation: &'static str,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, ProviderError> {
        if !self.threads {
            return self.run(operation, read).await;
        }
        let permits = Arc::clone(&self.long_permits);
        let Ok(permit) = permits.acquire_owned().await else { return Err(closed(operation)) };
        let pass = self.pass_gate(operation).await?;
        let readers = Arc::clone(self);
        let reading = move || {
            let (_permit, _pass) = (permit, pass);
            readers.read(operation, read)
        };
        on_thread(operation, reading).await?
    }

    /// Computes something that may take long, on a thread of its own.
    pub(crate) async fn compute_at_length<T: Send + 'static>(
        &self,
        operation: &'static str,
        compute: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ProviderError> {
        if self.threads { on_thread(operation, compute).await } else { Ok(compute()) }
    }

    /// Waits while readers are held. The read is under way until the pass is dropped.
    async fn pass_gate(&self, operation: &str) -> Result<ReaderPass, ProviderError> {
        let pass = self.shared.readers.enter(&self.commands).await;
        if self.is_closed() { Err(closed(operation)) } else { Ok(pass) }
    }

    /// Runs a read in one transaction, so that all its statements see the same commit.
    fn read<T>(
        &self,
        operation: &str,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, ProviderError> {
        self.check().map_err(|reason| ProviderError::permanent(operation, reason))?;
        let pooled = self.idle().pop();
        let ReadConnection { conn, frozen } = match pooled {
            Some(conn) => ReadConnection { conn, frozen: None },
            None => self
                .open()
                .map_err(|error| ProviderError::retryable(operation, error.to_string()).with_source(error))?,
        };
        let begun = conn.prepare_cached("BEGIN").and_then(|mut begin| begin.execute([]));
        let checked = begun.and_then(|_| self.check_schema(&conn));
        let outcome = checked.and_then(|()| read(&conn));
        let ended = conn.prepare_cached("ROLLBACK").and_then(|mut end| end.execute([]));
        if let Some(frozen) = frozen {
            // Used for one read.
            if frozen.has_changed() {
                return Err(ProviderError::retryable(operation, "the database changed while it was read"));
            }
        } else if ended.is_ok() && !self.permits.is_closed() {
            self.idle().push(conn);
        }
        if let Some(reason) = self.shared.guard.refusal() {
            return Err(ProviderError::permanent(operation, reason));
        }
        outcome.map_err(|error| storage_error(operation, error))
    }

    /// A connection that only reads.
    pub(crate) fn open(&self) -> Result<ReadConnection, SqliteError> {
        open_file::connect_reader(&self.path, self.vfs.as_deref(), self.mode)
    }

    /// Looks whether the file was migrated to a newer version: a writer without commands and fetches does not look.
    fn check_schema(&self, conn: &Connection) -> rusqlite::Result<()> {
        if let Some(newer) = schema::newer_version(conn)? {
            self.shared.guard.refuse(newer);
        }
        Ok(())
    }

    /// Fails if the file must not be read any more.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), String> {
        match self.shared.guard.refusal_within_a_second(self.clock.monotonic()) {
            Some(reason) => Err(reason.to_owned()),
            None => Ok(()),
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.permits.is_closed()
    }

    /// Refuses further reads and closes the connections.
    pub(crate) fn close(&self) {
        self.permits.close();
        self.long_permits.close();
        self.idle().clear();
    }
}

/// Runs something on a thread of its own.
async fn on_thread<T: Send + 'static>(
    operation: &'static str,
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ProviderError> {
    let running = tokio::task::spawn_blocking(run).await;
    running.map_err(|error| ProviderError::retryable(operation, format!("the read ended early: {error}")))
}
