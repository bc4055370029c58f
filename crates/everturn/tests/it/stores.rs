//! The stores every engine test runs on: the specification in memory, and a real SQLite file.

use std::sync::Arc;

use everturn::providers::memory::MemoryProvider;
#[cfg(feature = "sqlite")]
use everturn::providers::sqlite::SqliteOptions;
use everturn::providers::{Clock, ManualClock, Provider, SystemClock};
#[cfg(feature = "sqlite")]
use everturn_proof::is_cruel;
#[cfg(feature = "sqlite")]
use everturn_sqlite::testing::{self, Environment};
use tempfile::TempDir;

use crate::tokio_clock::TokioClock;

/// A store and whatever must outlive it.
pub(crate) struct Store {
    provider: Arc<dyn Provider>,
    settings: Settings,
    /// Where the database file lies; none for a store in memory.
    #[cfg_attr(not(feature = "sqlite"), expect(dead_code, reason = "a store in memory has no file"))]
    folder: Option<TempDir>,
}

#[derive(Clone)]
struct Settings {
    clock: Arc<dyn Clock>,
    payload_bytes_max: usize,
    /// Whether everything the store does happens on the test's own thread.
    #[cfg_attr(not(feature = "sqlite"), expect(dead_code, reason = "a store in memory has no thread"))]
    on_one_thread: bool,
}

impl Default for Settings {
    fn default() -> Self {
        let clock = Arc::new(SystemClock::new());
        Self { clock, payload_bytes_max: 8 * 1024 * 1024, on_one_thread: false }
    }
}

impl Settings {
    /// A store whose time is tokio's, which tests pause.
    fn in_paused_time() -> Self {
        Self { clock: Arc::new(TokioClock::new()), on_one_thread: true, ..Self::default() }
    }
}

impl Store {
    pub(crate) fn memory() -> Self {
        let settings = Settings::default();
        Self { provider: in_memory(&settings), settings, folder: None }
    }

    #[cfg(feature = "sqlite")]
    pub(crate) async fn sqlite() -> Self {
        let (folder, settings) = (tempfile::tempdir().unwrap(), Settings::default());
        Self { provider: in_file(&folder, &settings).await, settings, folder: Some(folder) }
    }

    /// A store for a test that pauses time.
    pub(crate) fn memory_in_paused_time() -> Self {
        let settings = Settings::in_paused_time();
        Self { provider: in_memory(&settings), settings, folder: None }
    }

    /// A store for a test that pauses time, or listens to everything its thread says.
    #[cfg(feature = "sqlite")]
    pub(crate) async fn sqlite_in_paused_time() -> Self {
        let (folder, settings) = (tempfile::tempdir().unwrap(), Settings::in_paused_time());
        Self { provider: in_file(&folder, &settings).await, settings, folder: Some(folder) }
    }

    /// An empty store of the same kind that goes by a clock moved by hand.
    pub(crate) async fn with_manual_clock(self) -> (Self, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::new(1_000_000));
        let settings = Settings { clock: clock.clone(), ..self.settings.clone() };
        (self.made_anew(settings).await, clock)
    }

    /// An empty store of the same kind with another limit on payloads.
    pub(crate) async fn with_payload_bytes_max(self, payload_bytes_max: usize) -> Self {
        let settings = Settings { payload_bytes_max, ..self.settings.clone() };
        self.made_anew(settings).await
    }

    async fn made_anew(self, settings: Settings) -> Self {
        #[cfg(feature = "sqlite")]
        if self.folder.is_some() {
            let folder = tempfile::tempdir().unwrap();
            return Self { provider: in_file(&folder, &settings).await, settings, folder: Some(folder) };
        }
        Self { provider: in_memory(&settings), settings, folder: None }
    }

    /// The store as the next process finds it. Nobody else may hold it now.
    pub(crate) async fn reopened(self) -> Self {
        assert_eq!(self.other_handles(), 0, "the process before has ended");
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

    /// How many handles of the provider there are beside this one.
    pub(crate) fn other_handles(&self) -> usize {
        Arc::strong_count(&self.provider) - 1
    }
}

fn in_memory(settings: &Settings) -> Arc<dyn Provider> {
    let provider = MemoryProvider::with_clock(Arc::clone(&settings.clock));
    Arc::new(provider.with_payload_bytes_max(settings.payload_bytes_max))
}

#[cfg(feature = "sqlite")]
async fn in_file(folder: &TempDir, settings: &Settings) -> Arc<dyn Provider> {
    let url = format!("sqlite:{}", folder.path().join("store.db").display());
    let options = SqliteOptions {
        clock: Arc::clone(&settings.clock),
        payload_bytes_max: settings.payload_bytes_max,
        batch_operations_max: if is_cruel() { 1 } else { SqliteOptions::default().batch_operations_max },
        ..SqliteOptions::default()
    };
    let environment = Environment { writer_in_task: settings.on_one_thread, ..Environment::default() };
    Arc::new(testing::open(&url, options, environment).await.unwrap())
}

/// Makes one test per store of each `async fn name(store: Store)`.
macro_rules! on_every_store {
    ($($name:ident),* $(,)?) => {
        mod on_memory {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() { super::$name(crate::stores::Store::memory()).await; })*
        }
        #[cfg(feature = "sqlite")]
        mod on_sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() { super::$name(crate::stores::Store::sqlite().await).await; })*
        }
    };
}
pub(crate) use on_every_store;

/// The same in paused time: waiting costs none, and a busy machine changes nothing.
macro_rules! on_every_store_in_paused_time {
    ($($name:ident),* $(,)?) => {
        mod on_memory_in_paused_time {
            $(#[tokio::test(start_paused = true)]
            async fn $name() { super::$name(crate::stores::Store::memory_in_paused_time()).await; })*
        }
        #[cfg(feature = "sqlite")]
        mod on_sqlite_in_paused_time {
            $(#[tokio::test(start_paused = true)]
            async fn $name() { super::$name(crate::stores::Store::sqlite_in_paused_time().await).await; })*
        }
    };
}
pub(crate) use on_every_store_in_paused_time;
