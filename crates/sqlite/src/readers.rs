//! Connections that only read.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use everturn_provider::ProviderError;
use rusqlite::{Connection, OpenFlags};
use tokio::sync::Semaphore;

use crate::error::SqliteError;
use crate::operation::storage_error;
use crate::provider::closed;
use crate::testing::Environment;
use crate::{open, pragmas};

/// How many long reads are under way at most.
const LONG_MAX: usize = 2;

/// A small pool of read-only connections, opened as they are needed.
#[derive(Debug)]
pub(crate) struct Readers {
    path: PathBuf,
    vfs: Option<String>,
    /// Whether there are threads for long reads.
    threads: bool,
    permits: Semaphore,
    /// For reads that may take long: they do not delay the short ones.
    long_permits: Arc<Semaphore>,
    idle: Mutex<Vec<Connection>>,
}

impl Readers {
    pub(crate) fn new(path: PathBuf, readers_max: usize, environment: &Environment) -> Self {
        Self {
            path,
            vfs: environment.vfs.clone(),
            threads: !environment.writer_in_task,
            permits: Semaphore::new(readers_max.max(1)),
            long_permits: Arc::new(Semaphore::new(LONG_MAX)),
            idle: Mutex::new(Vec::new()),
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
        let readers = Arc::clone(self);
        let reading = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            readers.read(operation, read)
        });
        reading.await.unwrap_or_else(|error| {
            Err(ProviderError::retryable(operation, format!("the read ended early: {error}")))
        })
    }

    /// Runs a read in one transaction, so that all its statements see the same commit.
    fn read<T>(
        &self,
        operation: &str,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, ProviderError> {
        let pooled = self.idle().pop();
        let conn = match pooled {
            Some(conn) => conn,
            None => self
                .open()
                .map_err(|error| ProviderError::retryable(operation, error.to_string()).with_source(error))?,
        };
        let begun = conn.prepare_cached("BEGIN").and_then(|mut begin| begin.execute([]));
        let outcome = begun.and_then(|_| read(&conn));
        let ended = conn.prepare_cached("ROLLBACK").and_then(|mut end| end.execute([]));
        if ended.is_ok() && !self.permits.is_closed() {
            self.idle().push(conn);
        }
        outcome.map_err(|error| storage_error(operation, error))
    }

    fn open(&self) -> Result<Connection, SqliteError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let conn = open::connect(&self.path, flags, self.vfs.as_deref())
            .map_err(|error| SqliteError::sqlite(format_args!("opening {}", self.path.display()), error))?;
        pragmas::set_up_reader(&conn)?;
        Ok(conn)
    }

    /// Refuses further reads and closes the connections.
    pub(crate) fn close(&self) {
        self.permits.close();
        self.long_permits.close();
        self.idle().clear();
    }
}
