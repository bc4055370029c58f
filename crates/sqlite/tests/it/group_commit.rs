//! Many operations, few commits.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use everturn_core::WorkItem;
use everturn_provider::{Clock, Provider, SystemClock, TagFilter};
use everturn_sqlite::{SqliteOptions, SqliteProvider};

use crate::store::{LOCK, Store, activity, begin, fetch, fetch_work, signal, start};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operations_that_are_pending_together_share_a_commit() {
    let store = Store::new();
    let provider = Arc::new(store.open_with_batches().await);
    let before = provider.commit_count();
    let tasks: Vec<_> = (0..2_000)
        .map(|id| {
            let provider = Arc::clone(&provider);
            tokio::spawn(async move { provider.enqueue_for_worker(activity("a", id + 1)).await.unwrap() })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let commits = provider.commit_count() - before;
    assert!(commits < 1_000, "2000 operations took {commits} commits");
    let admin = provider.as_management_capability().unwrap();
    assert_eq!(admin.get_queue_depths().await.unwrap().worker_queue, 2_000);
}

/// A clock on which every look takes 100 µs. A call arrives during each look, until enough have arrived.
#[derive(Default)]
struct ArrivalClock {
    ticks: AtomicU32,
    arrive: Mutex<Option<Box<dyn FnMut() -> bool + Send>>>,
}

impl fmt::Debug for ArrivalClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArrivalClock").finish_non_exhaustive()
    }
}

impl Clock for ArrivalClock {
    fn wall_ms(&self) -> u64 {
        SystemClock::new().wall_ms()
    }

    fn monotonic(&self) -> Duration {
        // Taken out meanwhile: a call that looks at the clock brings no further call.
        let arrive = self.arrive.lock().unwrap().take();
        if let Some(mut arrive) = arrive
            && arrive()
        {
            *self.arrive.lock().unwrap() = Some(arrive);
        }
        Duration::from_micros(100) * self.ticks.fetch_add(1, Ordering::SeqCst)
    }

    fn random_u128(&self) -> u128 {
        SystemClock::new().random_u128()
    }

    fn moved(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn a_call_is_answered_while_others_keep_coming() {
    const CALLS: u64 = 1_000;
    let (store, clock) = (Store::new(), Arc::<ArrivalClock>::default());
    let options = SqliteOptions {
        batch_operations_max: usize::MAX,
        batch_payload_bytes_max: usize::MAX,
        clock: Arc::clone(&clock) as Arc<dyn Clock>,
        ..SqliteOptions::default()
    };
    let provider = Arc::new(SqliteProvider::new(&store.url(), Some(options)).await.unwrap());
    let before = provider.commit_count();
    let call = {
        let provider = Arc::clone(&provider);
        move |id: u64| {
            let provider = Arc::clone(&provider);
            Box::pin(async move { provider.enqueue_for_worker(activity("a", id)).await.unwrap() })
        }
    };
    let first = call(1);
    let (sender, calls) = std::sync::mpsc::channel();
    let mut next = 2;
    *clock.arrive.lock().unwrap() = Some(Box::new(move || {
        let mut call = call(next);
        // The first poll sends it to the writer.
        assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        sender.send(call).unwrap();
        next += 1;
        next <= CALLS
    }));
    first.await;
    // The sender is dropped with the last call.
    for call in calls.iter().take(CALLS as usize - 1) {
        call.await;
    }
    let commits = provider.commit_count() - before;
    // Every operation looks at the clock, so that each batch brings many calls for the next.
    assert!(commits > 1, "{CALLS} calls came into one batch, although a batch is open for 2 ms only");
}

#[tokio::test]
async fn one_operation_per_commit_on_request() {
    let store = Store::new();
    let options = SqliteOptions { batch_operations_max: 1, ..SqliteOptions::default() };
    let provider = Arc::new(SqliteProvider::new(&store.url(), Some(options)).await.unwrap());
    let before = provider.commit_count();
    let tasks: Vec<_> = (0..50)
        .map(|id| {
            let provider = Arc::clone(&provider);
            tokio::spawn(async move { provider.enqueue_for_worker(activity("a", id + 1)).await.unwrap() })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(provider.commit_count() - before, 50);
}

#[tokio::test]
async fn a_fetch_that_finds_nothing_commits_nothing() {
    let store = Store::new();
    let provider = store.open().await;
    begin(&provider, "a", vec![]).await;
    let before = provider.commit_count();
    for _ in 0..10 {
        assert!(fetch(&provider).await.is_none());
        assert!(fetch_work(&provider).await.is_none());
    }
    let wait = Duration::from_millis(20);
    assert!(provider.fetch_orchestration_item(LOCK, wait, None).await.unwrap().is_none());
    assert!(provider.fetch_work_item(LOCK, wait, None, &TagFilter::Any).await.unwrap().is_none());
    assert_eq!(provider.commit_count(), before);
}

#[tokio::test]
async fn a_refused_operation_affects_no_other_in_its_batch() {
    let store = Store::new();
    let provider = Arc::new(store.open().await);
    let tasks: Vec<_> = (0..200_u64)
        .map(|id| {
            let provider = Arc::clone(&provider);
            tokio::spawn(async move {
                if id % 2 == 0 {
                    provider.enqueue_for_orchestrator(signal("a"), None).await.unwrap();
                } else {
                    provider.ack_work_item("1-00", None).await.unwrap_err();
                    provider.append_with_execution("b", 1, vec![]).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let admin = provider.as_management_capability().unwrap();
    assert_eq!(admin.get_queue_depths().await.unwrap().orchestrator_queue, 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parked_fetches_are_served_under_a_stream_of_operations() {
    for batch_operations_max in [1, 512] {
        let store = Store::new();
        let options = SqliteOptions { batch_operations_max, ..SqliteOptions::default() };
        let provider = Arc::new(SqliteProvider::new(&store.url(), Some(options)).await.unwrap());
        let streaming: Vec<_> = (0..8)
            .map(|lane| {
                let provider = Arc::clone(&provider);
                tokio::spawn(async move {
                    for id in 1_u64.. {
                        let instance = format!("lane-{lane}");
                        provider.enqueue_for_worker(activity(&instance, id)).await.unwrap();
                    }
                })
            })
            .collect();
        for _ in 0..50 {
            let fetched =
                provider.fetch_work_item(LOCK, Duration::from_secs(20), None, &TagFilter::Any).await;
            let (_, token, _) = fetched.unwrap().expect("there is plenty");
            provider.ack_work_item(&token, None).await.unwrap();
        }
        for task in streaming {
            task.abort();
        }
    }
}

/// How many activities end at the same time, and how large their results are: eight batches.
const LARGE_RESULTS: usize = 64;
const RESULT_BYTES: usize = 1024 * 1024;

#[tokio::test]
async fn a_start_does_not_wait_behind_many_large_results() {
    let store = Store::new();
    let provider = Arc::new(store.open_with_batches().await);
    begin(&provider, "a", (1..).take(LARGE_RESULTS).map(|id| activity("a", id)).collect()).await;
    let mut fetched = Vec::new();
    for _ in 0..LARGE_RESULTS {
        fetched.push(fetch_work(&provider).await.expect("an activity"));
    }
    // All calls are made before the first batch begins.
    let other = store.sql();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (called, stored) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    for (item, token, _) in fetched {
        let (provider, called, stored) = (Arc::clone(&provider), Arc::clone(&called), Arc::clone(&stored));
        let WorkItem::ActivityExecute { instance, execution_id, id, .. } = item else { unreachable!() };
        let result = "x".repeat(RESULT_BYTES);
        let completion = WorkItem::ActivityCompleted { instance, execution_id, id, result };
        tokio::spawn(async move {
            called.fetch_add(1, Ordering::SeqCst);
            provider.ack_work_item(&token, Some(completion)).await.unwrap();
            stored.fetch_add(1, Ordering::SeqCst);
        });
    }
    let started = tokio::spawn({
        let (provider, called, stored) = (Arc::clone(&provider), Arc::clone(&called), Arc::clone(&stored));
        async move {
            called.fetch_add(1, Ordering::SeqCst);
            provider.enqueue_for_orchestrator(start("b"), None).await.unwrap();
            // One thread runs all tasks, in the order in which they are answered.
            stored.load(Ordering::SeqCst)
        }
    });
    while called.load(Ordering::SeqCst) <= LARGE_RESULTS {
        tokio::task::yield_now().await;
    }
    other.execute_batch("COMMIT").unwrap();
    let before = started.await.unwrap();
    assert!(before <= 16, "the start waited behind the large results: {before} were stored before it");
}
