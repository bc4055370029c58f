//! Parked fetches, in paused time.

use std::sync::Arc;
use std::time::Duration;

use everturn_provider::store::{Stamp, Store};
use everturn_provider::testing::TableAccess as _;
use everturn_provider::{MemoryProvider, Provider, TagFilter};
use tokio::time::Instant;

use crate::tokio_clock::TokioClock;
use crate::turns::{LOCK, activity, create, fetch, signal, start};

const POLL: Duration = Duration::from_secs(30);

fn provider() -> Arc<MemoryProvider> {
    Arc::new(MemoryProvider::with_clock(Arc::new(TokioClock::new())))
}

async fn fetched_after(provider: &MemoryProvider, lock: Duration) -> Option<(String, u32, Duration)> {
    let begun = Instant::now();
    let fetched = provider.fetch_orchestration_item(lock, POLL, None).await.unwrap();
    fetched.map(|(_, token, attempts)| (token, attempts, begun.elapsed()))
}

#[tokio::test(start_paused = true)]
async fn a_delay_that_ends_wakes_a_parked_fetch_to_the_millisecond() {
    let provider = provider();
    provider.enqueue_for_orchestrator(start("a"), Some(Duration::from_millis(12_345))).await.unwrap();
    let (_, _, waited) = fetched_after(&provider, LOCK).await.unwrap();
    assert!(waited >= Duration::from_millis(12_345) && waited <= Duration::from_millis(12_347), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_short_lock_taken_while_others_wait_wakes_them_when_it_ends() {
    let provider = provider();
    let short = Duration::from_millis(300);
    let waiters = [0, 1].map(|_| {
        let provider = Arc::clone(&provider);
        tokio::spawn(async move { fetched_after(&provider, short).await.unwrap() })
    });
    tokio::time::sleep(Duration::from_millis(500)).await;
    provider.enqueue_for_orchestrator(start("a"), None).await.unwrap();
    let mut waited = Vec::new();
    for waiter in waiters {
        waited.push(waiter.await.unwrap());
    }
    waited.sort_by_key(|(_, _, waited)| *waited);
    assert!(waited[1].2 >= Duration::from_millis(800), "{waited:?}");
    assert!(waited[1].2 <= Duration::from_millis(802), "{waited:?}");
    assert_eq!((waited[0].1, waited[1].1), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn an_empty_fetch_ends_with_its_poll_timeout() {
    let provider = provider();
    let begun = Instant::now();
    let work = provider.fetch_work_item(LOCK, Duration::from_millis(2_500), None, &TagFilter::Any).await;
    assert!(work.unwrap().is_none());
    let waited = begun.elapsed();
    assert!(waited >= Duration::from_millis(2_500) && waited <= Duration::from_millis(2_502), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_message_without_a_start_does_not_keep_a_parked_fetch_busy() {
    let provider = provider();
    provider.enqueue_for_orchestrator(signal("never-started"), None).await.unwrap();
    assert!(fetched_after(&provider, LOCK).await.is_none());
    assert_eq!(provider.message_attempts("never-started"), [0]);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_fetch_holds_nothing() {
    let provider = provider();
    let waiting = provider.fetch_work_item(LOCK, POLL, None, &TagFilter::Any);
    assert!(tokio::time::timeout(Duration::from_millis(10), waiting).await.is_err());
    provider.enqueue_for_worker(activity("a", 2)).await.unwrap();
    let (_, _, attempts) =
        provider.fetch_work_item(LOCK, Duration::ZERO, None, &TagFilter::Any).await.unwrap().unwrap();
    assert_eq!(attempts, 1);
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_with_the_next_commit() {
    let provider = provider();
    create(&*provider, "a", Stamp(1)).await;
    let mut watch = provider.watch("a");
    provider.enqueue_for_orchestrator(signal("a"), None).await.unwrap();
    let token = fetch(&*provider).await;
    let committing = Arc::clone(&provider);
    let begun = Instant::now();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(70)).await;
        let nothing = everturn_provider::ExecutionMetadata::default();
        committing.ack_orchestration_item(&token, 1, vec![], vec![], vec![], nothing, vec![]).await.unwrap();
    });
    watch.changed(Duration::from_secs(10)).await;
    assert!(begun.elapsed() <= Duration::from_millis(72), "{:?}", begun.elapsed());
}
