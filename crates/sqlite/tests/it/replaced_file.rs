//! A database file that is deleted or replaced while it is open.

use std::sync::Arc;
use std::time::Duration;

use everturn_provider::store::Store as _;
use everturn_provider::{Provider, ProviderError};

use crate::store::{LOCK, Store, activity, begin, fetch, start};

/// Longer than any look takes.
const PATIENCE: Duration = Duration::from_secs(20);

fn delete(store: &Store) {
    for suffix in ["", "-wal", "-shm"] {
        std::fs::remove_file(format!("{}{suffix}", store.path().display())).unwrap();
    }
}

/// Puts another database of the same kind in its place.
async fn replace(store: &Store) {
    let other = Store::new();
    let provider = other.open().await;
    begin(&provider, "other", vec![]).await;
    provider.close().await;
    std::fs::rename(other.path(), store.path()).unwrap();
}

fn assert_clear(refused: &ProviderError) {
    assert!(!refused.is_retryable(), "{refused}");
    for part in ["store.db", "deleted or replaced", "restart"] {
        assert!(refused.message.contains(part), "{refused}");
    }
}

#[tokio::test]
async fn nothing_is_accepted_after_the_file_was_deleted() {
    let store = Store::new();
    let provider = store.open().await;
    begin(&provider, "a", vec![]).await;
    delete(&store);
    for instance in ["b", "c"] {
        let refused = provider.enqueue_for_orchestrator(start(instance), None).await;
        assert_clear(&refused.expect_err("a start that would be lost is accepted"));
    }
    assert_clear(&provider.read_status("a").await.unwrap_err());
    provider.close().await;
    assert_eq!(store.files(), ["store.db-lock", "store.db-owners"], "closing makes no new database");
}

#[tokio::test]
async fn nothing_is_accepted_or_read_after_the_file_was_replaced() {
    let store = Store::new();
    let provider = store.open().await;
    begin(&provider, "a", vec![]).await;
    replace(&store).await;
    let refused = provider.enqueue_for_orchestrator(start("b"), None).await;
    assert_clear(&refused.expect_err("a start that would be lost is accepted"));
    assert_clear(&provider.read_status("other").await.unwrap_err());
    provider.close().await;

    for suffix in ["-wal", "-shm"] {
        std::fs::remove_file(format!("{}{suffix}", store.path().display())).unwrap();
    }
    let provider = store.open().await;
    assert_eq!(provider.read("other").await.unwrap().len(), 1, "the file in its place is intact");
}

#[tokio::test]
async fn a_client_that_only_reads_notices_within_a_second() {
    let store = Store::new();
    let provider = store.open().await;
    begin(&provider, "a", vec![]).await;
    replace(&store).await;
    let refused = async {
        loop {
            if let Err(refused) = provider.read_status("a").await {
                return refused;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert_clear(&tokio::time::timeout(PATIENCE, refused).await.expect("a read notices"));
}

#[tokio::test]
async fn a_parked_fetch_gets_the_error() {
    let store = Store::new();
    let provider = Arc::new(store.open().await);
    begin(&provider, "a", vec![activity("a", 2)]).await;
    let waiting = tokio::spawn({
        let provider = Arc::clone(&provider);
        async move { provider.fetch_orchestration_item(LOCK, PATIENCE, None).await }
    });
    tokio::task::yield_now().await;
    assert!(fetch(&provider).await.is_none());
    delete(&store);
    assert_clear(&waiting.await.unwrap().unwrap_err());
}

#[tokio::test]
async fn the_watch_of_a_waiting_client_fires() {
    let store = Store::new();
    let provider = store.open().await;
    begin(&provider, "a", vec![]).await;
    let mut watch = provider.watch("a");
    delete(&store);
    tokio::time::timeout(PATIENCE, watch.changed(Duration::MAX)).await.expect("the watch ends");
    assert_clear(&provider.read_status("a").await.unwrap_err());
    let mut later = provider.watch("a");
    tokio::time::timeout(PATIENCE, later.changed(Duration::MAX)).await.expect("a later watch polls");
}
