//! Reading an instance's key-value store from a client.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use everturn::providers::memory::MemoryProvider;
use everturn::{Client, ClientError};
use tokio::time::Instant;

use crate::turn_by_hand::{commit, completed, kv_set};

const MINUTE: Duration = Duration::from_secs(60);

/// A client on a store with a running instance `i` that set `total` to `7` and `name` to `Ada`.
async fn counter() -> (Arc<MemoryProvider>, Client) {
    let store = Arc::new(MemoryProvider::new());
    let client = Client::new(store.clone());
    client.start_orchestration("i", "count", "").await.unwrap();
    commit(&*store, vec![kv_set("total", "7"), kv_set("name", "Ada")]).await;
    (store, client)
}

#[tokio::test]
async fn values_are_readable_while_running_and_after() {
    let (store, client) = counter().await;
    assert_eq!(client.get_kv_value("i", "total").await.unwrap(), Some("7".into()));
    client.raise_event("i", "go", "").await.unwrap();
    commit(&*store, completed("")).await;
    let all = HashMap::from([("total".into(), "7".into()), ("name".into(), "Ada".into())]);
    assert_eq!(client.get_kv_all_values("i").await.unwrap(), all);
}

#[tokio::test]
async fn an_unknown_instance_or_key_reads_as_none() {
    let (_store, client) = counter().await;
    assert_eq!(client.get_kv_value("i", "other").await.unwrap(), None);
    assert_eq!(client.get_kv_value("unknown", "total").await.unwrap(), None);
    assert_eq!(client.get_kv_value_typed::<u8>("unknown", "total").await.unwrap(), None);
    assert!(client.get_kv_all_values("unknown").await.unwrap().is_empty());
}

#[tokio::test]
async fn typed_values_are_plain_json() {
    let (_store, client) = counter().await;
    assert_eq!(client.get_kv_value_typed::<u8>("i", "total").await.unwrap(), Some(7));
    let error = client.get_kv_value_typed::<String>("i", "name").await.unwrap_err();
    assert!(error.to_string().starts_with("Invalid input: KV deserialization error: "), "{error}");
}

#[tokio::test(start_paused = true)]
async fn waiting_ends_with_the_commit_that_sets_the_key() {
    let (store, client) = counter().await;
    client.raise_event("i", "go", "").await.unwrap();
    let began = Instant::now();
    let (value, ()) = tokio::join!(
        client.wait_for_kv_value("i", "late", MINUTE),
        commit(&*store, vec![kv_set("late", "9")])
    );
    assert_eq!(value.unwrap(), "9");
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_eq!(client.wait_for_kv_value_typed::<u8>("i", "late", MINUTE).await.unwrap(), 9);
}

#[tokio::test(start_paused = true)]
async fn waiting_for_an_absent_key_times_out() {
    let (_store, client) = counter().await;
    let result = client.wait_for_kv_value("i", "never", MINUTE).await;
    assert!(matches!(result, Err(ClientError::Timeout)), "{result:?}");
}
