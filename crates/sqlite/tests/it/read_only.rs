//! Clients that only read: `mode=ro`.

use std::time::Duration;

use everturn_provider::Provider;
use everturn_provider::store::Store as _;
use everturn_sqlite::SqliteProvider;

use crate::store::{LOCK, Store, activity, begin, signal, start};

fn url(store: &Store) -> String {
    format!("{}?mode=ro", store.url())
}

#[tokio::test]
async fn it_reads_and_changes_nothing() {
    let store = Store::new();
    let provider = store.open().await;
    begin(&provider, "a", vec![activity("a", 2)]).await;
    let history = provider.read("a").await.unwrap();
    provider.close().await;
    let before = std::fs::read(store.path()).unwrap();

    let reader = SqliteProvider::new(&url(&store), None).await.unwrap();
    assert_eq!(reader.read("a").await.unwrap(), history);
    let admin = reader.as_management_capability().unwrap();
    assert_eq!(admin.get_queue_depths().await.unwrap().worker_queue, 1);
    reader.close().await;
    assert!(std::fs::read(store.path()).unwrap() == before, "the file was changed");
    assert_eq!(store.log_bytes(), 0, "an empty log may be left, which SQLite makes to share memory");
    assert!(!store.owners().exists(), "it owns no locks");
}

#[tokio::test]
async fn writes_are_refused_with_a_reason() {
    let store = Store::new();
    store.open().await.close().await;
    let reader = SqliteProvider::new(&url(&store), None).await.unwrap();
    let refused = reader.enqueue_for_orchestrator(start("a"), None).await.unwrap_err();
    assert!(!refused.is_retryable() && refused.message.contains("mode=ro"), "{refused}");
    let refused = reader.fetch_orchestration_item(LOCK, Duration::from_secs(20), None).await.unwrap_err();
    assert!(!refused.is_retryable() && refused.message.contains("mode=ro"), "{refused}");
}

#[tokio::test]
async fn it_sees_what_others_commit() {
    let store = Store::new();
    let provider = store.open().await;
    let reader = SqliteProvider::new(&url(&store), None).await.unwrap();
    let mut watch = reader.watch("a");
    begin(&provider, "a", vec![]).await;
    let seen = async {
        while reader.read("a").await.unwrap().is_empty() {
            watch.changed(Duration::from_secs(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), seen).await.expect("the watch fires");
    provider.enqueue_for_orchestrator(signal("a"), None).await.unwrap();
}

#[tokio::test]
async fn it_needs_neither_a_writable_file_nor_a_writer_that_yields() {
    let store = Store::new();
    let provider = store.open().await;
    begin(&provider, "a", vec![]).await;
    let writer = store.sql();
    writer.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut permissions = std::fs::metadata(store.path()).unwrap().permissions();
    permissions.set_readonly(true);
    std::fs::set_permissions(store.path(), permissions).unwrap();
    let reader = SqliteProvider::new(&url(&store), None).await.unwrap();
    assert_eq!(reader.read("a").await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_missing_file_is_not_created() {
    let store = Store::new();
    let refused = SqliteProvider::new(&url(&store), None).await.unwrap_err().to_string();
    assert!(refused.contains("no such file") && refused.contains("store.db"), "{refused}");
    assert!(store.files().is_empty());
    std::fs::write(store.path(), b"").unwrap();
    let refused = SqliteProvider::new(&url(&store), None).await.unwrap_err().to_string();
    assert!(refused.contains("version 0") && refused.contains("mode=ro"), "{refused}");
    assert_eq!(store.files(), ["store.db"]);
}

/// While there is a link of that name, SQLite cannot make the memory that connections share.
#[cfg(unix)]
fn without_shared_memory(store: &Store) -> std::path::PathBuf {
    let place = store.path().with_file_name("store.db-shm");
    std::os::unix::fs::symlink("missing", &place).unwrap();
    place
}

#[cfg(unix)]
#[tokio::test]
async fn opened_where_nothing_can_be_written_it_sees_what_a_writer_commits_later() {
    let store = Store::new();
    let provider = store.open().await;
    begin(&provider, "a", vec![]).await;
    provider.close().await;
    let place = without_shared_memory(&store);
    let reader = SqliteProvider::new(&url(&store), None).await.unwrap();
    assert_eq!(reader.read("a").await.unwrap().len(), 1, "a database without a log is read as it is");
    assert!(reader.read("b").await.unwrap().is_empty());
    let mut watch = reader.watch("b");
    std::fs::remove_file(&place).unwrap();

    let provider = store.open().await;
    begin(&provider, "b", vec![]).await;
    assert_eq!(reader.read("b").await.unwrap().len(), 1, "what is in the log is read");
    let changed = watch.changed(Duration::MAX);
    tokio::time::timeout(Duration::from_secs(10), changed).await.expect("the watch fires");
    provider.close().await;
    assert_eq!(reader.read("b").await.unwrap().len(), 1, "and what is in the file");
}
