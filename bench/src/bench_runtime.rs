//! Everturn at work on a database in a folder.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use everturn::providers::sqlite::{SqliteOptions, SqliteProvider, Synchronous};
use everturn::runtime::Runtime;
use everturn::runtime::registry::ActivityRegistry;
use everturn::{Client, OrchestrationRegistry, RuntimeOptions};
use everturn_bench_protocol::{BenchResult, MeasureRequest};
use rusqlite::Connection;

/// A runtime at work on a database and a client of it.
pub(crate) struct BenchRuntime {
    pub(crate) client: Client,
    store: Arc<SqliteProvider>,
    folder: PathBuf,
    runtime: Arc<Runtime>,
}

impl BenchRuntime {
    /// Opens the database in the folder of the request, a new one if there is none.
    pub(crate) async fn start(
        request: &MeasureRequest,
        activities: ActivityRegistry,
        orchestrations: OrchestrationRegistry,
    ) -> BenchResult<Self> {
        Self::start_with(request, activities, orchestrations, RuntimeOptions::default()).await
    }

    pub(crate) async fn start_with(
        request: &MeasureRequest,
        activities: ActivityRegistry,
        orchestrations: OrchestrationRegistry,
        options: RuntimeOptions,
    ) -> BenchResult<Self> {
        let store = Arc::new(open(&request.folder, synchronous(&request.variant)?).await?);
        let runtime = Runtime::start_with_options(store.clone(), activities, orchestrations, options).await;
        let folder = request.folder.clone();
        Ok(Self { client: Client::new(store.clone()), store, folder, runtime })
    }

    /// Commits of the store so far.
    pub(crate) fn commit_count(&self) -> Option<u64> {
        Some(self.store.commit_count())
    }

    /// Instances in memory.
    pub(crate) fn warm_instances(&self) -> Option<u64> {
        Some(self.runtime.warm_instances() as u64)
    }

    /// Keeps all of the log from now on, if that is wanted.
    pub(crate) fn keep_log(&self, wanted: bool) -> BenchResult<Option<KeptLog>> {
        wanted.then(|| KeptLog::of(&self.folder.join("engine.db"))).transpose()
    }

    pub(crate) async fn stop(self) {
        self.runtime.shutdown(None).await;
        self.store.close().await;
    }
}

/// A reader that lets no part of the log be written over.
pub(crate) struct KeptLog {
    log: PathBuf,
    bytes_before: u64,
    _reader: Connection,
}

impl KeptLog {
    fn of(database: &Path) -> BenchResult<Self> {
        let reader = Connection::open(database)?;
        reader.execute_batch("BEGIN")?;
        reader.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
        let log = PathBuf::from(format!("{}-wal", database.display()));
        let bytes_before = log.metadata()?.len();
        Ok(Self { log, bytes_before, _reader: reader })
    }

    /// Bytes of the log since then.
    pub(crate) fn bytes(&self) -> BenchResult<f64> {
        Ok(self.log.metadata()?.len().saturating_sub(self.bytes_before) as f64)
    }
}

/// Opens the database of a folder.
pub(crate) async fn open(folder: &Path, synchronous: Synchronous) -> BenchResult<SqliteProvider> {
    let url = format!("sqlite:{}", folder.join("engine.db").display());
    let options = SqliteOptions { synchronous, ..SqliteOptions::default() };
    Ok(SqliteProvider::new(&url, Some(options)).await?)
}

/// What the variant of a request says about durability.
pub(crate) fn synchronous(variant: &str) -> BenchResult<Synchronous> {
    match variant {
        "full" => Ok(Synchronous::Full),
        "normal" => Ok(Synchronous::Normal),
        other => Err(format!("no variant '{other}' of Everturn: full or normal").into()),
    }
}
