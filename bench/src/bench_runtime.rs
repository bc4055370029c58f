//! What every workload uses: a folder on the disk, a database in it, a runtime and a client.

use std::path::Path;
use std::sync::Arc;

use everturn::providers::sqlite::SqliteProvider;
use everturn::runtime::Runtime;
use everturn::runtime::registry::ActivityRegistry;
use everturn::{Client, OrchestrationRegistry, RuntimeOptions};
use tempfile::TempDir;

use crate::Result;

/// A new folder beside the program, in the target folder: on a real disk.
pub(crate) fn fresh_folder() -> Result<TempDir> {
    let program = std::env::current_exe()?;
    let target = program.parent().ok_or("the program is in no folder")?;
    Ok(tempfile::Builder::new().prefix("bench-").tempdir_in(target)?)
}

/// A runtime at work on a new database and a client of it.
pub(crate) struct BenchRuntime {
    pub(crate) client: Client,
    pub(crate) runtime: Arc<Runtime>,
    /// Removes the database when it is dropped.
    _folder: TempDir,
}

impl BenchRuntime {
    pub(crate) async fn start(
        folder: &Path,
        activities: ActivityRegistry,
        orchestrations: OrchestrationRegistry,
    ) -> Result<Self> {
        Self::start_with(folder, activities, orchestrations, RuntimeOptions::default()).await
    }

    pub(crate) async fn start_with(
        folder: &Path,
        activities: ActivityRegistry,
        orchestrations: OrchestrationRegistry,
        options: RuntimeOptions,
    ) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("engine-").tempdir_in(folder)?;
        let url = format!("sqlite:{}", folder.path().join("engine.db").display());
        let store = Arc::new(SqliteProvider::new(&url, None).await?);
        let runtime = Runtime::start_with_options(store.clone(), activities, orchestrations, options).await;
        Ok(Self { client: Client::new(store), runtime, _folder: folder })
    }

    /// Stops the runtime, then removes the database.
    pub(crate) async fn stop(self) {
        self.runtime.shutdown(None).await;
    }
}
