//! Shutdown: grace period, abort, abandoned locks, and no reference to the store left.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use everturn::providers::{Provider, ProviderError, TagFilter};
use everturn::runtime::Runtime;
use everturn::runtime::registry::{ActivityRegistry, OrchestrationRegistry};
use everturn::{ActivityContext, OrchestrationContext, OrchestrationStatus, RuntimeOptions};
use everturn_provider::MemoryProvider;
use everturn_provider::testing::TableAccess as _;
use tokio::sync::{Notify, Semaphore};

use crate::node_under_test::{NodeUnderTest, PATIENCE, echo, memory, quick, until};
use crate::recording_store::RecordingStore;
use crate::stores::{TestStore, on_every_store};
use crate::tampering_store::TamperingStore;

on_every_store!(abandons_are_awaited, shutdown_returns_with_nothing_left_holding_the_provider);

/// An activity that waits for a signal and records how it ended.
#[derive(Clone)]
struct GatedActivity {
    started: Arc<Semaphore>,
    go: Arc<Notify>,
    dropped: Arc<AtomicUsize>,
    cancelled: Arc<AtomicBool>,
}

struct CountDrop(Arc<AtomicUsize>);

impl Drop for CountDrop {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl GatedActivity {
    fn new() -> Self {
        Self {
            started: Arc::new(Semaphore::new(0)),
            go: Arc::default(),
            dropped: Arc::default(),
            cancelled: Arc::default(),
        }
    }

    fn activities(&self) -> ActivityRegistry {
        let gate = self.clone();
        ActivityRegistry::builder()
            .register("Wait", move |ctx: ActivityContext, _: String| {
                let gate = gate.clone();
                async move {
                    let _dropped = CountDrop(Arc::clone(&gate.dropped));
                    gate.started.add_permits(1);
                    tokio::select! {
                        () = gate.go.notified() => {}
                        () = ctx.cancelled() => gate.cancelled.store(true, Ordering::SeqCst),
                    }
                    Ok("done".to_owned())
                }
            })
            .build()
    }

    async fn wait_started(&self) {
        self.started.acquire().await.unwrap().forget();
    }
}

fn one_activity() -> OrchestrationRegistry {
    OrchestrationRegistry::builder()
        .register("One", |ctx: OrchestrationContext, _: String| async move {
            ctx.schedule_activity("Wait", "").await
        })
        .build()
}

async fn busy_node(store: &Arc<MemoryProvider>, gate: &GatedActivity) -> NodeUnderTest {
    let node = NodeUnderTest::start(store.clone(), gate.activities(), one_activity(), quick()).await;
    node.client.start_orchestration("i", "One", "").await.unwrap();
    gate.wait_started().await;
    node
}

#[tokio::test]
async fn an_idle_runtime_stops_at_once_and_releases_the_store() {
    let store = memory();
    let handles_before = Arc::strong_count(&store);
    let runtime = Runtime::start_with_options(
        store.clone(),
        ActivityRegistry::default(),
        OrchestrationRegistry::default(),
        RuntimeOptions { dispatcher_long_poll_timeout: Duration::from_secs(600), ..Default::default() },
    )
    .await;
    assert!(Arc::strong_count(&store) > handles_before);
    let kept = Arc::clone(&runtime);
    let began = Instant::now();
    runtime.shutdown(Some(60_000)).await;
    assert!(began.elapsed() < Duration::from_secs(30));
    assert_eq!(Arc::strong_count(&store), handles_before);
    assert_eq!(kept.get_orchestration_descriptor("i").await, None);
    assert!(kept.metrics_snapshot().is_some());
}

#[tokio::test]
async fn warm_instances_are_gone_after_shutdown() {
    let store = memory();
    let handles_before = Arc::strong_count(&store);
    let held = Arc::new(());
    let captured = Arc::clone(&held);
    let warm = RuntimeOptions { warm_instances_max: 1_000, ..quick() };
    let orchestrations = OrchestrationRegistry::builder()
        .register("Waits", move |ctx: OrchestrationContext, _: String| {
            let captured = Arc::clone(&captured);
            async move {
                let answer = ctx.schedule_wait("never").await;
                drop(captured);
                Ok(answer)
            }
        })
        .build();
    let node = NodeUnderTest::start(store.clone(), ActivityRegistry::default(), orchestrations, warm).await;
    node.client.start_orchestration("i", "Waits", "").await.unwrap();
    until("the instance waits", async || Arc::strong_count(&held) == 3).await;
    node.committed("i").await;
    node.runtime.shutdown(None).await;
    drop(node.client);
    assert_eq!(Arc::strong_count(&held), 1);
    assert_eq!(Arc::strong_count(&store), handles_before);
}

#[tokio::test]
async fn running_work_finishes_within_the_grace() {
    let (store, gate) = (memory(), GatedActivity::new());
    let node = busy_node(&store, &gate).await;
    let stopping = tokio::spawn(node.runtime.shutdown(Some(60_000)));
    tokio::task::yield_now().await;
    gate.go.notify_one();
    stopping.await.unwrap();
    // The completion is stored; the next node only runs the turn.
    let next =
        NodeUnderTest::start(store.clone(), ActivityRegistry::default(), one_activity(), quick()).await;
    assert_eq!(next.output_of("i").await, "done");
    assert!(!gate.cancelled.load(Ordering::SeqCst));
    next.runtime.shutdown(None).await;
}

#[tokio::test]
async fn work_beyond_the_grace_is_aborted_without_a_signal_and_returns_to_the_queue_uncounted() {
    let (store, gate) = (memory(), GatedActivity::new());
    let node = busy_node(&store, &gate).await;
    node.runtime.shutdown(Some(10)).await;
    drop(node.client);
    assert_eq!(gate.dropped.load(Ordering::SeqCst), 1, "the activity is dropped when shutdown returns");
    assert!(!gate.cancelled.load(Ordering::SeqCst));
    assert_eq!(Arc::strong_count(&store), 1);
    assert_eq!(store.work_item_attempts("i"), [0]);
    let lock = Duration::from_secs(5);
    let fetched = store.fetch_work_item(lock, Duration::ZERO, None, &TagFilter::default()).await.unwrap();
    assert_eq!(fetched.expect("nothing is left locked").2, 1);
}

#[tokio::test]
async fn a_shorter_grace_wins_and_every_caller_waits() {
    let (store, gate) = (memory(), GatedActivity::new());
    let node = busy_node(&store, &gate).await;
    let patient = tokio::spawn(Arc::clone(&node.runtime).shutdown(Some(600_000)));
    tokio::task::yield_now().await;
    Arc::clone(&node.runtime).shutdown(Some(0)).await;
    assert_eq!(gate.dropped.load(Ordering::SeqCst), 1);
    patient.await.unwrap();
    node.runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_dropped_shutdown_is_resumed_by_the_next() {
    let (store, gate) = (memory(), GatedActivity::new());
    let node = busy_node(&store, &gate).await;
    let first = Arc::clone(&node.runtime).shutdown(Some(600_000));
    assert!(tokio::time::timeout(Duration::from_millis(5), first).await.is_err());
    node.client.start_orchestration("later", "One", "").await.unwrap();
    node.runtime.shutdown(Some(0)).await;
    assert_eq!(gate.dropped.load(Ordering::SeqCst), 1);
    let status = node.client.get_orchestration_status("later").await.unwrap();
    assert_eq!(status, OrchestrationStatus::NotFound, "fetching stopped with the first call");
}

/// Polls a future on this thread, outside any async runtime.
fn block_on_outside<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut std::task::Context::from_waker(&waker)) {
            std::task::Poll::Ready(value) => return value,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn shutdown_with_zero_works_outside_the_async_runtime() {
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (store, gate) = (memory(), GatedActivity::new());
    let node = tokio.block_on(busy_node(&store, &gate));
    drop(node.client);
    block_on_outside(node.runtime.shutdown(Some(0)));
    assert_eq!(gate.dropped.load(Ordering::SeqCst), 1);
    assert_eq!(Arc::strong_count(&store), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_waits_for_code_that_does_not_yield() {
    let store = memory();
    let (started, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let flags = (Arc::clone(&started), Arc::clone(&ended));
    let activities = ActivityRegistry::builder()
        .register("Wait", move |_ctx: ActivityContext, _: String| {
            let (started, ended) = flags.clone();
            async move {
                started.store(true, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(100));
                ended.store(true, Ordering::SeqCst);
                Ok(String::new())
            }
        })
        .build();
    let node = NodeUnderTest::start(store.clone(), activities, one_activity(), quick()).await;
    node.client.start_orchestration("i", "One", "").await.unwrap();
    until("the activity blocks", async || started.load(Ordering::SeqCst)).await;
    node.runtime.shutdown(Some(0)).await;
    assert!(ended.load(Ordering::SeqCst));
}

#[tokio::test]
async fn work_that_was_fetched_but_not_started_is_abandoned_uncounted() {
    let store = memory();
    let gate = GatedActivity::new();
    let counted = TamperingStore::new(store.clone(), |_| None);
    let node = NodeUnderTest::start(counted.clone(), gate.activities(), one_activity(), quick()).await;
    let slots = (quick().orchestration_concurrency, quick().worker_concurrency);
    until("every slot waits", async || (counted.count("fetch_turns"), counted.count("fetch_work")) == slots)
        .await;
    // On one thread no other task runs between these two calls, so the fetch returns after the shutdown has begun.
    node.client.start_orchestration("i", "One", "").await.unwrap();
    node.runtime.shutdown(Some(60_000)).await;
    assert_eq!(store.message_attempts("i"), [0]);
    let fetched = store.fetch_orchestration_item(Duration::from_secs(5), Duration::ZERO, None).await.unwrap();
    assert_eq!(fetched.expect("nothing is left locked").2, 1);
}

#[tokio::test]
async fn an_unanswered_query_does_not_hold_the_store() {
    let store = Arc::new(RecordingStore { hangs: true, ..RecordingStore::default() });
    let node = NodeUnderTest::start(store.clone(), echo(), one_activity(), quick()).await;
    let NodeUnderTest { client, runtime } = node;
    drop(client);
    let asking = Arc::clone(&runtime);
    let question = tokio::spawn(async move { asking.get_orchestration_descriptor("i").await });
    tokio::task::yield_now().await;
    runtime.shutdown(None).await;
    assert_eq!(Arc::strong_count(&store), 1);
    assert_eq!(question.await.unwrap(), None);
}

async fn abandons_are_awaited(store: TestStore) {
    let failures_left = AtomicUsize::new(3);
    let tampering = TamperingStore::new(store.provider(), move |operation| {
        let fails = operation == "abandon_turn"
            && failures_left
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
                .is_ok();
        fails.then(|| ProviderError::retryable(operation, "busy"))
    });
    // Only an abandon frees the instance before the test times out.
    let options = RuntimeOptions { orchestrator_lock_timeout: 2 * PATIENCE, ..quick() };
    let nothing = OrchestrationRegistry::default();
    let node = NodeUnderTest::start(tampering.clone(), echo(), nothing, options).await;
    node.client.start_orchestration("i", "Unregistered", "").await.unwrap();
    let abandons = || tampering.count("abandon_turn");
    until("the instance is being abandoned", async || abandons() >= 1).await;
    node.runtime.shutdown(Some(30_000)).await;
    assert!(abandons() >= 4, "shutdown did not wait for it: {}", abandons());
    let lock = Duration::from_secs(5);
    let fetched = store.provider().fetch_orchestration_item(lock, PATIENCE, None).await.unwrap();
    assert_eq!(fetched.expect("the instance is free").0.instance, "i");
}

async fn shutdown_returns_with_nothing_left_holding_the_provider(store: TestStore) {
    let orchestrations = OrchestrationRegistry::builder()
        .register("Test", |ctx: OrchestrationContext, _: String| async move {
            ctx.set_custom_status("waiting");
            let wait = ctx.schedule_wait("never");
            ctx.select2(wait, ctx.schedule_activity("Stays", "")).await;
            Ok(String::new())
        })
        .build();
    let activities = ActivityRegistry::builder()
        .register("Stays", |ctx: ActivityContext, _: String| async move {
            // Holds a client, and through it the store, until it is aborted.
            let _client = ctx.get_client();
            std::future::pending::<Result<String, String>>().await
        })
        .build();
    let node =
        NodeUnderTest::start(store.provider(), activities, orchestrations, RuntimeOptions::default()).await;
    for number in 0..10 {
        node.client.start_orchestration(format!("i-{number}"), "Test", "").await.unwrap();
        node.until_status(&format!("i-{number}"), "waiting").await;
    }
    drop(node.client);
    node.runtime.shutdown(None).await;
    assert_eq!(store.other_handles(), 0);
}
