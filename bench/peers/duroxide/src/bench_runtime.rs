//! duroxide at work on a database in a folder.

use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::sqlite::SqliteProvider;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::runtime::{Runtime, RuntimeOptions};
use duroxide::{Client, OrchestrationRegistry};
use everturn_bench_protocol::{BenchResult, MeasureRequest};

/// A runtime at work on a database and a client of it.
pub(crate) struct BenchRuntime {
    pub(crate) client: Client,
    runtime: Arc<Runtime>,
}

impl BenchRuntime {
    /// Opens the database in the folder of the request, a new one if there is none.
    pub(crate) async fn start(
        request: &MeasureRequest,
        activities: ActivityRegistry,
        orchestrations: OrchestrationRegistry,
    ) -> BenchResult<Self> {
        let path = request.folder.join("engine.db");
        // It opens only files that exist.
        std::fs::OpenOptions::new().create(true).append(true).open(&path)?;
        let url = format!("sqlite:{}", path.display());
        let store = Arc::new(SqliteProvider::new(&url, None).await?);
        let options = match request.variant.as_str() {
            "default" => RuntimeOptions::default(),
            "tuned" => RuntimeOptions {
                orchestration_concurrency: 2,
                worker_concurrency: 4,
                dispatcher_min_poll_interval: Duration::from_millis(2),
                ..RuntimeOptions::default()
            },
            other => return Err(format!("no variant '{other}' of duroxide: default or tuned").into()),
        };
        let runtime = Runtime::start_with_options(store.clone(), activities, orchestrations, options).await;
        Ok(Self { client: Client::new(store), runtime })
    }

    /// It does not count its commits.
    pub(crate) fn commit_count(&self) -> Option<u64> {
        None
    }

    /// It keeps no instances in memory.
    pub(crate) fn warm_instances(&self) -> Option<u64> {
        None
    }

    /// Its log is not kept.
    pub(crate) fn keep_log(&self, _wanted: bool) -> BenchResult<Option<KeptLog>> {
        Ok(None)
    }

    pub(crate) async fn stop(self) {
        self.runtime.shutdown(None).await;
    }
}

/// There is none.
pub(crate) enum KeptLog {}

impl KeptLog {
    pub(crate) fn bytes(&self) -> BenchResult<f64> {
        match *self {}
    }
}
