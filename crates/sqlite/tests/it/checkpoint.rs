//! The write-ahead log.

use everturn_core::WorkItem;
use everturn_provider::Provider;

use crate::store::{Store, activity, begin};

fn bulky(instance: &str, id: u64) -> WorkItem {
    let WorkItem::ActivityExecute { .. } = activity(instance, id) else { unreachable!() };
    WorkItem::ActivityExecute {
        instance: instance.to_owned(),
        execution_id: 1,
        id,
        name: "pay".to_owned(),
        input: "x".repeat(256 * 1024),
        session_id: None,
        tag: None,
    }
}

#[tokio::test]
async fn a_checkpoint_empties_the_log() {
    let store = Store::new();
    let provider = store.open().await;
    begin(&provider, "a", vec![]).await;
    assert!(store.log_bytes() > 0);
    provider.checkpoint().await.unwrap();
    assert_eq!(store.log_bytes(), 0);
}

#[tokio::test]
async fn the_log_does_not_grow_with_what_is_written() {
    let store = Store::new();
    let provider = store.open().await;
    for id in 1..=128 {
        provider.enqueue_for_worker(bulky("a", id)).await.unwrap();
    }
    let written = std::fs::metadata(store.path()).unwrap().len();
    assert!(written > 24 * 1024 * 1024, "{written} bytes are in the database file");
    assert!(store.log_bytes() < 12 * 1024 * 1024, "the log has {} bytes", store.log_bytes());
}

#[tokio::test]
async fn a_reader_that_stays_open_stops_no_writes() {
    let store = Store::new();
    let provider = store.open().await;
    begin(&provider, "a", vec![]).await;
    let sql = store.sql();
    sql.execute_batch("BEGIN; SELECT count(*) FROM everturn_history").unwrap();
    for id in 1..=32 {
        provider.enqueue_for_worker(bulky("a", id)).await.unwrap();
    }
    assert!(provider.checkpoint().await.is_err(), "the reader keeps its part of the log");
    sql.execute_batch("COMMIT").unwrap();
    provider.checkpoint().await.unwrap();
}
