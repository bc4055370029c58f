//! The SQLite provider through the public API.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use everturn::Client;
use everturn::providers::Provider;
use everturn::providers::sqlite::{SqliteError, SqliteOptions, SqliteProvider, Synchronous};
use tempfile::TempDir;

use crate::turn_by_hand::commit;

fn place() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    (folder, path)
}

fn url(path: &Path) -> String {
    format!("sqlite:{}", path.display())
}

async fn open(path: &Path) -> Arc<SqliteProvider> {
    Arc::new(SqliteProvider::new(&url(path), None).await.unwrap())
}

async fn start(store: &Arc<SqliteProvider>, instance: &str) -> Client {
    let client = Client::new(store.clone());
    client.start_orchestration(instance, "order", "").await.unwrap();
    client
}

#[tokio::test]
async fn a_missing_file_is_created_with_and_without_a_mode() {
    for mode in ["", "?mode=rwc"] {
        let (_folder, path) = place();
        let store = SqliteProvider::new(&format!("{}{mode}", url(&path)), None).await.unwrap();
        assert!(path.exists(), "{mode}");
        store.close().await;
    }
}

#[tokio::test]
async fn every_database_in_memory_is_its_own() {
    let stores = [
        SqliteProvider::new("sqlite::memory:", None).await.unwrap(),
        SqliteProvider::new_in_memory().await.unwrap(),
        SqliteProvider::new_in_memory_with_options(None).await.unwrap(),
    ]
    .map(Arc::new);
    for (number, store) in stores.iter().enumerate() {
        let client = start(store, &format!("i{number}")).await;
        commit(&**store, vec![]).await;
        assert_eq!(client.list_all_instances().await.unwrap(), [format!("i{number}")]);
    }
}

#[tokio::test]
async fn options_are_safe_by_default_and_reach_the_client() {
    let options = SqliteOptions::default();
    assert_eq!((options.synchronous, options.payload_bytes_max), (Synchronous::Full, 8 * 1024 * 1024));
    let options = SqliteOptions { synchronous: Synchronous::Normal, payload_bytes_max: 3, ..options };
    let store = SqliteProvider::new_in_memory_with_options(Some(options)).await.unwrap();
    let client = Client::new(Arc::new(store));
    client.start_orchestration("i", "order", "abc").await.unwrap();
    client.start_orchestration("i", "order", "abcd").await.unwrap_err();
}

#[tokio::test]
async fn name_and_version_are_reported() {
    let store = SqliteProvider::new_in_memory().await.unwrap();
    assert_eq!((store.name(), store.version()), ("sqlite", env!("CARGO_PKG_VERSION")));
}

#[tokio::test]
async fn a_checkpoint_puts_everything_into_the_one_file() {
    let (folder, path) = place();
    let store = open(&path).await;
    start(&store, "i").await;
    commit(&*store, vec![]).await;
    store.checkpoint().await.unwrap();
    // Only the database file, without its write-ahead log.
    let copy = folder.path().join("copy.db");
    std::fs::copy(&path, &copy).unwrap();
    let client = Client::new(open(&copy).await);
    assert_eq!(client.list_all_instances().await.unwrap(), ["i"]);
}

#[tokio::test]
async fn opening_the_file_alone_releases_the_locks_of_closed_handles() {
    let (_folder, path) = place();
    let long = Duration::from_secs(3_600);
    let stopped = open(&path).await;
    start(&stopped, "i").await;
    assert!(stopped.fetch_orchestration_item(long, Duration::ZERO, None).await.unwrap().is_some());
    let beside = open(&path).await;
    assert!(beside.fetch_orchestration_item(long, Duration::ZERO, None).await.unwrap().is_none());
    beside.close().await;
    stopped.close().await;
    let alone = open(&path).await;
    assert!(alone.fetch_orchestration_item(long, Duration::ZERO, None).await.unwrap().is_some());
}

#[tokio::test]
async fn a_file_of_a_newer_schema_is_refused_with_a_clear_error() {
    fn is_an_error<E: std::error::Error + Send + Sync + 'static>(_: &E) {}
    let (_folder, path) = place();
    open(&path).await.close().await;
    rusqlite::Connection::open(&path).unwrap().pragma_update(None, "user_version", 1_000).unwrap();
    let refused: SqliteError = SqliteProvider::new(&url(&path), None).await.unwrap_err();
    is_an_error(&refused);
    assert!(refused.to_string().contains("newer"), "{refused}");
}
