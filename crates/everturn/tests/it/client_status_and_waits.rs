//! Reading the status of an instance, and waiting for it to change.

use std::sync::Arc;
use std::time::Duration;

use everturn::providers::memory::MemoryProvider;
use everturn::providers::{Provider, ProviderError};
use everturn::{Client, ClientError, OrchestrationStatus};
use everturn_provider::testing::TableAccess as _;
use tokio::time::Instant;

use crate::recording_store::RecordingStore;
use crate::turn_by_hand::{commit, completed, continued, custom_status, failed};

const MINUTE: Duration = Duration::from_secs(60);

fn client() -> (Arc<MemoryProvider>, Client) {
    let store = Arc::new(MemoryProvider::new());
    (store.clone(), Client::new(store))
}

/// A client on a store with a running instance `i`.
async fn running() -> (Arc<MemoryProvider>, Client) {
    let (store, client) = client();
    client.start_orchestration("i", "order", "").await.unwrap();
    commit(&*store, vec![]).await;
    (store, client)
}

async fn wake(client: &Client) {
    client.raise_event("i", "go", "").await.unwrap();
}

#[test]
fn waits_can_be_spawned() {
    fn spawnable(_: impl Future + Send + 'static) {}
    let client = || client().1;
    spawnable(async move { client().wait_for_orchestration("i", MINUTE).await });
    spawnable(async move { client().wait_for_orchestration_typed::<String>("i", MINUTE).await });
    spawnable(async move { client().wait_for_status_change("i", 0, MINUTE, MINUTE).await });
    spawnable(async move { client().wait_for_kv_value("i", "k", MINUTE).await });
    spawnable(async move { client().wait_for_kv_value_typed::<String>("i", "k", MINUTE).await });
    spawnable(async move { client().start_orchestration_typed("i", "order", 1).await });
    spawnable(async move { client().delete_instance("i", false).await });
}

#[tokio::test]
async fn status_follows_the_committed_turns() {
    let (store, client) = running().await;
    let status = client.get_orchestration_status("i").await.unwrap();
    assert_eq!(status, OrchestrationStatus::Running { custom_status: None, custom_status_version: 0 });
    wake(&client).await;
    let mut turn = vec![custom_status("half"), custom_status("done")];
    turn.extend(completed("42"));
    commit(&*store, turn).await;
    let expected = OrchestrationStatus::Completed {
        output: "42".into(),
        custom_status: Some("done".into()),
        custom_status_version: 1,
    };
    assert_eq!(client.get_orchestration_status("i").await.unwrap(), expected);
}

#[tokio::test]
async fn between_continue_as_new_and_its_successor_the_instance_is_running() {
    let (store, client) = running().await;
    wake(&client).await;
    commit(&*store, continued("again")).await;
    let status = client.get_orchestration_status("i").await.unwrap();
    assert!(matches!(status, OrchestrationStatus::Running { .. }), "{status:?}");
}

#[tokio::test]
async fn a_damaged_history_is_an_error_that_says_so() {
    let (store, client) = running().await;
    assert!(store.damage_event("i", 1, 1));
    let error = client.get_orchestration_status("i").await.unwrap_err();
    assert!(matches!(error, ClientError::Provider(_)), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn waiting_ends_with_the_commit_and_needs_no_instance() {
    let (store, client) = client();
    let began = Instant::now();
    let (status, ()) = tokio::join!(client.wait_for_orchestration("i", MINUTE), async {
        client.start_orchestration("i", "order", "").await.unwrap();
        commit(&*store, vec![]).await;
        wake(&client).await;
        commit(&*store, failed("no stock")).await;
    });
    let OrchestrationStatus::Failed { details, .. } = status.unwrap() else { panic!("it failed") };
    assert_eq!(details.display_message(), "no stock");
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn waiting_ends_with_the_timeout() {
    let (_store, client) = running().await;
    let began = Instant::now();
    let result = client.wait_for_orchestration("i", MINUTE).await;
    assert!(matches!(result, Err(ClientError::Timeout)), "{result:?}");
    assert_eq!(began.elapsed(), MINUTE);
}

#[tokio::test(start_paused = true)]
async fn a_zero_timeout_still_reads_once() {
    let (store, client) = running().await;
    let result = client.wait_for_orchestration("i", Duration::ZERO).await;
    assert!(matches!(result, Err(ClientError::Timeout)), "{result:?}");
    wake(&client).await;
    commit(&*store, completed("42")).await;
    let status = client.wait_for_orchestration("i", Duration::ZERO).await.unwrap();
    assert!(matches!(status, OrchestrationStatus::Completed { .. }));
}

#[tokio::test]
async fn an_endless_timeout_is_legal() {
    let (store, client) = running().await;
    wake(&client).await;
    let (status, ()) =
        tokio::join!(client.wait_for_orchestration("i", Duration::MAX), commit(&*store, completed("42")));
    assert!(status.unwrap().is_terminal());
}

#[tokio::test(start_paused = true)]
async fn a_store_without_wake_ups_is_polled() {
    let store = Arc::new(RecordingStore::default());
    let client = Client::new(store.clone());
    let result = client.wait_for_orchestration("i", Duration::from_millis(335)).await;
    assert!(matches!(result, Err(ClientError::Timeout)), "{result:?}");
    // The watch comes first, then reads after 0, 5, 15, 35, 75, 155 and 255 ms. The next would be too late.
    let calls = store.take_calls();
    assert_eq!(calls.first(), Some(&"watch"));
    assert_eq!(calls.iter().filter(|method| **method == "read_status").count(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_failing_store_ends_the_wait_at_once() {
    let error = ProviderError::retryable("read_status", "busy");
    let client = Client::new(Arc::new(RecordingStore::failing(error.clone())));
    let result = client.wait_for_orchestration("i", MINUTE).await;
    assert!(matches!(result, Err(ClientError::Provider(reported)) if reported == error));
}

#[tokio::test]
async fn a_typed_wait_decodes_the_output() {
    let (store, client) = running().await;
    wake(&client).await;
    commit(&*store, completed("[1,2]")).await;
    assert_eq!(client.wait_for_orchestration_typed::<Vec<u8>>("i", MINUTE).await.unwrap(), Ok(vec![1, 2]));
    let error = client.wait_for_orchestration_typed::<u8>("i", MINUTE).await.unwrap_err();
    assert!(error.to_string().starts_with("Invalid input: decode failed: "), "{error}");
}

#[tokio::test]
async fn a_typed_wait_returns_the_failure_as_text() {
    let (store, client) = running().await;
    wake(&client).await;
    commit(&*store, failed("no stock")).await;
    let outcome = client.wait_for_orchestration_typed::<u8>("i", MINUTE).await.unwrap();
    assert_eq!(outcome, Err("no stock".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_newer_custom_status_ends_the_wait_for_it() {
    let (store, client) = running().await;
    wake(&client).await;
    let waiting = client.wait_for_status_change("i", 0, MINUTE, MINUTE);
    let (status, ()) = tokio::join!(waiting, commit(&*store, vec![custom_status("half")]));
    let expected =
        OrchestrationStatus::Running { custom_status: Some("half".into()), custom_status_version: 1 };
    assert_eq!(status.unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn the_wait_for_a_custom_status_ends_with_the_instance() {
    let (store, client) = running().await;
    wake(&client).await;
    let waiting = client.wait_for_status_change("i", 9, MINUTE, MINUTE);
    let (status, ()) = tokio::join!(waiting, commit(&*store, completed("42")));
    assert!(status.unwrap().is_terminal());
}

#[tokio::test(start_paused = true)]
async fn the_wait_for_a_custom_status_ends_with_the_timeout() {
    let (_store, client) = running().await;
    let began = Instant::now();
    let result = client.wait_for_status_change("i", 0, Duration::ZERO, Duration::from_millis(50)).await;
    assert!(matches!(result, Err(ClientError::Timeout)), "{result:?}");
    assert_eq!(began.elapsed(), Duration::from_millis(50));
    let store = Arc::new(RecordingStore::default());
    *store.status.lock().unwrap() =
        Some(OrchestrationStatus::Running { custom_status: None, custom_status_version: 7 });
    let result = Client::new(store).wait_for_status_change("i", 0, MINUTE, Duration::ZERO).await;
    assert!(matches!(result, Err(ClientError::Timeout)), "{result:?}");
}

#[tokio::test]
async fn stats_are_those_of_the_current_execution() {
    let (store, client) = running().await;
    assert_eq!(client.get_orchestration_stats("unknown").await.unwrap(), None);
    wake(&client).await;
    commit(&*store, completed("42")).await;
    let stats = client.get_orchestration_stats("i").await.unwrap().unwrap();
    assert_eq!(stats.history_event_count, store.read("i").await.unwrap().len() as u64);
    assert!(stats.history_size_bytes > 0);
}

#[tokio::test(start_paused = true)]
async fn a_store_without_wake_ups_is_polled_at_the_callers_interval() {
    let store = Arc::new(RecordingStore::default());
    let client = Client::new(store.clone());
    let (interval, timeout) = (Duration::from_secs(2), Duration::from_secs(7));
    let result = client.wait_for_status_change("i", 0, interval, timeout).await;
    assert!(matches!(result, Err(ClientError::Timeout)), "{result:?}");
    // After 0, 2, 4 and 6 seconds.
    assert_eq!(store.take_calls().iter().filter(|method| **method == "read_status").count(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_still_times_out() {
    let store = Arc::new(RecordingStore { hangs: true, ..RecordingStore::default() });
    let client = Client::new(store);
    let began = Instant::now();
    let result = client.wait_for_orchestration("i", MINUTE).await;
    assert!(matches!(result, Err(ClientError::Timeout)), "{result:?}");
    assert_eq!(began.elapsed(), MINUTE);
    let result = client.wait_for_kv_value("i", "k", MINUTE).await;
    assert!(matches!(result, Err(ClientError::Timeout)), "{result:?}");
    let result = client.wait_for_status_change("i", 0, MINUTE, MINUTE).await;
    assert!(matches!(result, Err(ClientError::Timeout)), "{result:?}");
    assert_eq!(began.elapsed(), 3 * MINUTE);
    // Even a wait of zero allows a second for its one read.
    let result = client.wait_for_orchestration("i", Duration::ZERO).await;
    assert!(matches!(result, Err(ClientError::Timeout)), "{result:?}");
    assert_eq!(began.elapsed(), 3 * MINUTE + Duration::from_secs(1));
}
