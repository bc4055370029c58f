//! A file that a newer version of the library has migrated.

use std::sync::Arc;
use std::time::Duration;

use everturn_provider::store::Store as _;
use everturn_provider::{Provider, ProviderError};
use everturn_sqlite::SqliteProvider;

use crate::store::{LOCK, Store, activity, begin, fetch, start};

/// Longer than any look takes.
const PATIENCE: Duration = Duration::from_secs(20);

fn migrate(store: &Store) {
    store.sql().pragma_update(None, "user_version", 99).unwrap();
}

fn assert_clear(refused: &ProviderError) {
    assert!(!refused.is_retryable(), "{refused}");
    assert!(refused.message.contains("newer") && refused.message.contains("upgrade"), "{refused}");
}

#[tokio::test]
async fn it_is_refused_when_it_is_opened() {
    let store = Store::new();
    store.open().await.close().await;
    migrate(&store);
    for url in [store.url(), format!("{}?mode=ro", store.url())] {
        let refused = SqliteProvider::new(&url, None).await.unwrap_err();
        assert!(refused.is_newer_schema(), "{refused}");
        assert!(refused.to_string().contains("newer"), "{refused}");
    }
}

#[tokio::test]
async fn a_process_that_has_it_open_writes_nothing_more() {
    let store = Store::new();
    let provider = store.open().await;
    begin(&provider, "a", vec![activity("a", 2)]).await;
    migrate(&store);
    let refused = provider.enqueue_for_orchestrator(start("b"), None).await.unwrap_err();
    assert_clear(&refused);
    assert_clear(&provider.enqueue_for_worker(activity("a", 3)).await.unwrap_err());
    assert_clear(&provider.read_status("a").await.unwrap_err());
    let messages: i64 = store
        .sql()
        .query_row("SELECT count(*) FROM everturn_orchestrator_queue", [], |row| row.get(0))
        .unwrap();
    assert_eq!(messages, 0);
}

#[tokio::test]
async fn a_parked_fetch_gets_the_error() {
    let store = Store::new();
    let provider = Arc::new(store.open().await);
    let waiting = tokio::spawn({
        let provider = Arc::clone(&provider);
        async move { provider.fetch_orchestration_item(LOCK, PATIENCE, None).await }
    });
    tokio::task::yield_now().await;
    assert!(fetch(&provider).await.is_none());
    migrate(&store);
    assert_clear(&waiting.await.unwrap().unwrap_err());
}

#[tokio::test]
async fn the_watch_of_a_waiting_client_fires() {
    let store = Store::new();
    let provider = store.open().await;
    begin(&provider, "a", vec![]).await;
    let mut watch = provider.watch("a");
    // The first commit of another process fires it: what the instance was before is not known.
    store.sql().pragma_update(None, "user_version", 1).unwrap();
    tokio::time::timeout(PATIENCE, watch.changed(Duration::MAX)).await.expect("the watch fires");
    migrate(&store);
    tokio::time::timeout(PATIENCE, watch.changed(Duration::MAX)).await.expect("the watch ends");
    assert_clear(&provider.read_status("a").await.unwrap_err());
}

#[tokio::test]
async fn a_read_only_client_gets_the_error() {
    let store = Store::new();
    let provider = store.open().await;
    begin(&provider, "a", vec![]).await;
    let reader = SqliteProvider::new(&format!("{}?mode=ro", store.url()), None).await.unwrap();
    reader.read_status("a").await.unwrap();
    migrate(&store);
    assert_clear(&reader.read_status("a").await.unwrap_err());
    assert_clear(&reader.read("a").await.unwrap_err());
}

#[tokio::test]
async fn a_client_that_writes_nothing_more_is_told() {
    let store = Store::new();
    let provider = store.open().await;
    begin(&provider, "a", vec![]).await;
    provider.read_status("a").await.unwrap();
    migrate(&store);
    assert_clear(&provider.read_status("a").await.unwrap_err());
    assert_clear(&provider.read("a").await.unwrap_err());
}
