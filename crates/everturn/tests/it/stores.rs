//! The stores every engine test runs on: the specification in memory, and a real SQLite file.

use std::sync::Arc;

use everturn::providers::Provider;
use everturn::providers::memory::MemoryProvider;
#[cfg(feature = "sqlite")]
use everturn::providers::sqlite::{SqliteOptions, SqliteProvider};
use tempfile::TempDir;

/// A store and whatever must outlive it.
pub(crate) struct Store {
    provider: Arc<dyn Provider>,
    _folder: Option<TempDir>,
}

impl Store {
    pub(crate) fn memory() -> Self {
        Self { provider: Arc::new(MemoryProvider::new()), _folder: None }
    }

    #[cfg(feature = "sqlite")]
    pub(crate) async fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("store.db").display());
        let provider = SqliteProvider::new(&url, Some(SqliteOptions::default())).await.unwrap();
        Self { provider: Arc::new(provider), _folder: Some(folder) }
    }

    pub(crate) fn provider(&self) -> Arc<dyn Provider> {
        Arc::clone(&self.provider)
    }

    /// How many handles of the provider there are beside this one.
    pub(crate) fn other_handles(&self) -> usize {
        Arc::strong_count(&self.provider) - 1
    }
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
