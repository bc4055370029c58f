//! Parked fetches, on the real clock.

use std::sync::Arc;
use std::time::{Duration, Instant};

use everturn_provider::{Provider, TagFilter};
use everturn_sqlite::SqliteProvider;

use crate::store::{LOCK, Store, activity, begin, fetch, fetch_work, signal, start};

const PATIENCE: Duration = Duration::from_secs(20);
/// Shorter than the second after which the writer looks at everything anyway.
const WOKEN: Duration = Duration::from_millis(800);

#[tokio::test]
async fn new_work_wakes_the_parked_fetch() {
    let store = Store::new();
    let provider = Arc::new(store.open().await);
    let mut quickest = PATIENCE;
    // A fetch that is not woken is served by the look that comes every second; only the first round may meet it by luck.
    for round in 0..4_u64 {
        let waiting = tokio::spawn({
            let provider = Arc::clone(&provider);
            async move { provider.fetch_orchestration_item(LOCK, PATIENCE, None).await }
        });
        tokio::task::yield_now().await;
        // Commands run in order: when this one is answered, the fetch is parked.
        assert!(fetch_work(&provider).await.is_none());
        let began = Instant::now();
        provider.enqueue_for_orchestrator(start(&format!("i{round}")), None).await.unwrap();
        assert!(waiting.await.unwrap().unwrap().is_some());
        if round > 0 {
            quickest = quickest.min(began.elapsed());
        }
    }
    assert!(quickest < WOKEN, "ready work woke no parked fetch for {quickest:?}");
}

#[tokio::test]
async fn a_delay_that_ends_wakes_the_parked_fetch_on_time() {
    let store = Store::new();
    let provider = store.open().await;
    let delay = Duration::from_millis(120);
    // The store's clock rules. It counts whole milliseconds, so an `Instant` may see a fraction of one less.
    let (began, began_ms) = (Instant::now(), provider.now_ms());
    provider.enqueue_for_orchestrator(start("a"), Some(delay)).await.unwrap();
    let fetched = provider.fetch_orchestration_item(LOCK, PATIENCE, None).await.unwrap();
    let took = Duration::from_millis(provider.now_ms() - began_ms);
    assert!(fetched.is_some());
    assert!(took >= delay, "not before {delay:?}, but after {took:?}");
    assert!(began.elapsed() < WOKEN, "it took {:?}", began.elapsed());
}

#[tokio::test]
async fn a_lock_that_expires_wakes_the_parked_fetch() {
    let provider = SqliteProvider::new_in_memory().await.unwrap();
    let short = Duration::from_millis(200);
    begin(&provider, "a", vec![activity("a", 2)]).await;
    provider.enqueue_for_orchestrator(signal("a"), None).await.unwrap();
    assert!(provider.fetch_orchestration_item(short, Duration::ZERO, None).await.unwrap().is_some());
    assert!(provider.fetch_work_item(short, Duration::ZERO, None, &TagFilter::Any).await.unwrap().is_some());
    let began = Instant::now();
    assert!(provider.fetch_orchestration_item(LOCK, PATIENCE, None).await.unwrap().is_some());
    assert!(provider.fetch_work_item(LOCK, PATIENCE, None, &TagFilter::Any).await.unwrap().is_some());
    assert!(began.elapsed() < WOKEN, "it took {:?}", began.elapsed());
}

#[tokio::test]
async fn work_whose_answer_was_not_read_returns_to_the_queue() {
    let store = Store::new();
    let provider = Arc::new(store.open().await);
    for round in 0..50_u64 {
        let instance = format!("i{round}");
        let waiting = tokio::spawn({
            let provider = Arc::clone(&provider);
            async move { provider.fetch_orchestration_item(LOCK, PATIENCE, None).await }
        });
        tokio::task::yield_now().await;
        // The answer is sent while its receiver is dropped.
        let enqueued = provider.enqueue_for_orchestrator(start(&instance), None);
        waiting.abort();
        enqueued.await.unwrap();
        drop(waiting.await);
        let fetched = provider.fetch_orchestration_item(LOCK, PATIENCE, None).await.unwrap();
        let (item, _, attempts) = fetched.expect("it returned to the queue");
        assert_eq!((item.instance, attempts), (instance, 1));
    }
}

#[tokio::test]
async fn a_time_out_leaves_no_parked_fetch_behind() {
    let store = Store::new();
    let provider = store.open().await;
    let short = Duration::from_millis(5);
    for _ in 0..20 {
        assert!(provider.fetch_orchestration_item(LOCK, short, None).await.unwrap().is_none());
        assert!(provider.fetch_work_item(LOCK, short, None, &TagFilter::Any).await.unwrap().is_none());
    }
    begin(&provider, "a", vec![activity("a", 2)]).await;
    let (_, _, attempts) = fetch_work(&provider).await.expect("it was not assigned");
    assert_eq!(attempts, 1);
    assert!(fetch(&provider).await.is_none());
}

#[tokio::test]
async fn closing_the_provider_answers_parked_fetches() {
    let store = Store::new();
    let provider = Arc::new(store.open().await);
    let waiting = tokio::spawn({
        let provider = Arc::clone(&provider);
        async move { provider.fetch_orchestration_item(LOCK, PATIENCE, None).await }
    });
    tokio::task::yield_now().await;
    assert!(fetch(&provider).await.is_none());
    provider.close().await;
    assert!(waiting.await.unwrap().unwrap().is_none());
}
