//! The stores that engine tests run on: one in memory, and one in a SQLite file.

use std::sync::Arc;

use everturn::providers::memory::MemoryProvider;
#[cfg(feature = "sqlite")]
use everturn::providers::sqlite::SqliteOptions;
use everturn::providers::{Clock, ManualClock, Provider, SystemClock};
#[cfg(feature = "sqlite")]
use everturn_proof::is_stress_run;
#[cfg(feature = "sqlite")]
use everturn_sqlite::testing::{self, Environment};
use tempfile::TempDir;

use crate::tokio_clock::TokioClock;

/// A store, its settings, and the folder of its database.
pub(crate) struct TestStore {
    provider: Arc<dyn Provider>,
    settings: StoreSettings,
    /// The folder of the database file; none for a store in memory.
    #[cfg_attr(not(feature = "sqlite"), expect(dead_code, reason = "a store in memory has no file"))]
    folder: Option<TempDir>,
}

#[derive(Clone)]
struct StoreSettings {
    clock: Arc<dyn Clock>,
    payload_bytes_max: usize,
    /// Whether the store does all its work on the thread of the test.
    #[cfg_attr(not(feature = "sqlite"), expect(dead_code, reason = "a store in memory has no thread"))]
    on_one_thread: bool,
}

impl Default for StoreSettings {
    fn default() -> Self {
        let clock = Arc::new(SystemClock::new());
        Self { clock, payload_bytes_max: 8 * 1024 * 1024, on_one_thread: false }
    }
}

impl StoreSettings {
    /// A store on tokio's clock, which tests can pause.
    fn in_paused_time() -> Self {
        Self { clock: Arc::new(TokioClock::new()), on_one_thread: true, ..Self::default() }
    }
}

impl TestStore {
    pub(crate) fn memory() -> Self {
        let settings = StoreSettings::default();
        Self { provider: in_memory(&settings), settings, folder: None }
    }

    #[cfg(feature = "sqlite")]
    pub(crate) async fn sqlite() -> Self {
        let (folder, settings) = (tempfile::tempdir().unwrap(), StoreSettings::default());
        Self { provider: in_file(&folder, &settings).await, settings, folder: Some(folder) }
    }

    /// A store for a test that pauses time.
    pub(crate) fn memory_in_paused_time() -> Self {
        let settings = StoreSettings::in_paused_time();
        Self { provider: in_memory(&settings), settings, folder: None }
    }

    /// A store for a test that pauses time, or captures the log lines of its thread.
    #[cfg(feature = "sqlite")]
    pub(crate) async fn sqlite_in_paused_time() -> Self {
        let (folder, settings) = (tempfile::tempdir().unwrap(), StoreSettings::in_paused_time());
        Self { provider: in_file(&folder, &settings).await, settings, folder: Some(folder) }
    }

    /// An empty store of the same kind with a clock that the test moves.
    pub(crate) async fn with_manual_clock(self) -> (Self, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::new(1_000_000));
        let settings = StoreSettings { clock: clock.clone(), ..self.settings.clone() };
        (self.recreated(settings).await, clock)
    }

    /// An empty store of the same kind with another limit on payloads.
    pub(crate) async fn with_payload_bytes_max(self, payload_bytes_max: usize) -> Self {
        let settings = StoreSettings { payload_bytes_max, ..self.settings.clone() };
        self.recreated(settings).await
    }

    async fn recreated(self, settings: StoreSettings) -> Self {
        #[cfg(feature = "sqlite")]
        if self.folder.is_some() {
            let folder = tempfile::tempdir().unwrap();
            return Self { provider: in_file(&folder, &settings).await, settings, folder: Some(folder) };
        }
        Self { provider: in_memory(&settings), settings, folder: None }
    }

    /// Closes and reopens the store. Panics if another handle of the provider exists.
    pub(crate) async fn reopened(self) -> Self {
        assert_eq!(self.other_handles(), 0, "another handle of the provider exists");
        #[cfg(feature = "sqlite")]
        if let Some(folder) = self.folder {
            drop(self.provider);
            let provider = in_file(&folder, &self.settings).await;
            return Self { provider, settings: self.settings, folder: Some(folder) };
        }
        self
    }

    pub(crate) fn provider(&self) -> Arc<dyn Provider> {
        Arc::clone(&self.provider)
    }

    /// The number of other handles of the provider.
    pub(crate) fn other_handles(&self) -> usize {
        Arc::strong_count(&self.provider) - 1
    }
}

fn in_memory(settings: &StoreSettings) -> Arc<dyn Provider> {
    let provider = MemoryProvider::with_clock(Arc::clone(&settings.clock));
    Arc::new(provider.with_payload_bytes_max(settings.payload_bytes_max))
}

#[cfg(feature = "sqlite")]
async fn in_file(folder: &TempDir, settings: &StoreSettings) -> Arc<dyn Provider> {
    let url = format!("sqlite:{}", folder.path().join("store.db").display());
    let options = SqliteOptions {
        clock: Arc::clone(&settings.clock),
        payload_bytes_max: settings.payload_bytes_max,
        batch_operations_max: if is_stress_run() { 1 } else { SqliteOptions::default().batch_operations_max },
        ..SqliteOptions::default()
    };
    let environment = Environment { writer_in_task: settings.on_one_thread, ..Environment::default() };
    Arc::new(testing::open(&url, options, environment).await.unwrap())
}

/// Makes one test per store of each `async fn name(store: TestStore)`.
macro_rules! on_every_store {
    ($($name:ident),* $(,)?) => {
        mod on_memory {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() { super::$name(crate::stores::TestStore::memory()).await; })*
        }
        #[cfg(feature = "sqlite")]
        mod on_sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() { super::$name(crate::stores::TestStore::sqlite().await).await; })*
        }
    };
}
pub(crate) use on_every_store;

/// The same in paused time: waits take no real time, and a busy machine changes nothing.
macro_rules! on_every_store_in_paused_time {
    ($($name:ident),* $(,)?) => {
        mod on_memory_in_paused_time {
            $(#[tokio::test(start_paused = true)]
            async fn $name() { super::$name(crate::stores::TestStore::memory_in_paused_time()).await; })*
        }
        #[cfg(feature = "sqlite")]
        mod on_sqlite_in_paused_time {
            $(#[tokio::test(start_paused = true)]
            async fn $name() { super::$name(crate::stores::TestStore::sqlite_in_paused_time().await).await; })*
        }
    };
}
pub(crate) use on_every_store_in_paused_time;
