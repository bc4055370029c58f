//! A runtime's loops: start-up order, back-off after fetch errors, gauges, background tasks.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use everturn::providers::management::{QueueDepths, SystemMetrics};
use everturn::providers::store::{Store, StoreLayer};
use everturn::providers::{ProviderAdmin, ProviderError, WorkItem, store_of};
use everturn::runtime::observability::ObservabilityConfig;
use everturn::runtime::registry::{ActivityRegistry, OrchestrationRegistry};
use everturn::{ActivityContext, Client, OrchestrationContext, RuntimeOptions};
use everturn_conformance::{AdminLayer, LayeredAdmin};
use tokio::time::Instant;
use tracing::Level;

use crate::log_lines::LogLines;
use crate::node_under_test::{NodeUnderTest, echo, memory, quick, until};
use crate::recording_store::RecordingStore;
use crate::stores::{TestStore, on_every_store};
use crate::tampering_store::TamperingStore;

on_every_store!(
    an_item_that_is_no_activity_is_removed_from_the_worker_queue,
    a_loop_continues_after_errors,
    gauges_are_set_from_the_store_when_a_runtime_starts,
    the_first_activity_does_not_wait_for_the_gauges,
);

fn orchestrations() -> OrchestrationRegistry {
    OrchestrationRegistry::builder()
        .register("Echo", |ctx: OrchestrationContext, input: String| async move {
            ctx.schedule_activity("Echo", input).await
        })
        .register("FanOut", |ctx: OrchestrationContext, _: String| async move {
            let calls = (0..20).map(|_| ctx.schedule_activity("WorkerId", "")).collect();
            let workers: Result<Vec<String>, String> = ctx.join(calls).await.into_iter().collect();
            Ok(workers?.join(" "))
        })
        .build()
}

/// Fails an operation the given number of times and records when it was called.
fn failing(
    operation: &'static str,
    times: usize,
    error: ProviderError,
) -> (Arc<TamperingStore>, Arc<Mutex<Vec<Instant>>>) {
    let asked: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let noted = Arc::clone(&asked);
    let store = TamperingStore::new(memory(), move |asked_for| {
        if asked_for != operation {
            return None;
        }
        let mut noted = noted.lock().unwrap();
        noted.push(Instant::now());
        (noted.len() <= times).then(|| error.clone())
    });
    (store, asked)
}

/// The waits between the first calls of an operation that fails three times.
async fn waits_between(operation: &'static str, error: ProviderError) -> Vec<u64> {
    let (store, asked) = failing(operation, 3, error);
    let options = RuntimeOptions { orchestration_concurrency: 1, worker_concurrency: 1, ..quick() };
    let node = NodeUnderTest::start(store, echo(), orchestrations(), options).await;
    until("it was called a fourth time", async || asked.lock().unwrap().len() >= 4).await;
    node.runtime.shutdown(Some(0)).await;
    let asked = asked.lock().unwrap();
    asked.windows(2).take(3).map(|pair| pair[1].duration_since(pair[0]).as_millis() as u64).collect()
}

fn is_about(waits: &[u64], expected: &[u64]) -> bool {
    waits.len() == expected.len()
        && waits.iter().zip(expected).all(|(wait, expected)| (*expected..=expected + 5).contains(wait))
}

#[tokio::test(start_paused = true)]
async fn retryable_fetch_errors_back_off_longer_each_time() {
    for operation in ["fetch_turns", "fetch_work"] {
        let waits = waits_between(operation, ProviderError::retryable(operation, "busy")).await;
        assert!(is_about(&waits, &[200, 400, 800]), "{operation}: {waits:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn permanent_fetch_errors_wait_a_tenth_of_a_second() {
    for operation in ["fetch_turns", "fetch_work"] {
        let waits = waits_between(operation, ProviderError::permanent(operation, "broken")).await;
        assert!(is_about(&waits, &[100, 100, 100]), "{operation}: {waits:?}");
    }
}

async fn a_loop_continues_after_errors(store: TestStore) {
    let failures = AtomicUsize::new(0);
    let store = TamperingStore::new(store.provider(), move |operation| {
        let fails = operation.starts_with("fetch_") && failures.fetch_add(1, Ordering::SeqCst) < 6;
        fails.then(|| ProviderError::permanent("fetch", "broken"))
    });
    let node = NodeUnderTest::start(store, echo(), orchestrations(), quick()).await;
    node.client.start_orchestration("i", "Echo", "x").await.unwrap();
    assert_eq!(node.output_of("i").await, "x");
    node.runtime.shutdown(None).await;
}

fn stray() -> WorkItem {
    WorkItem::CancelInstance { instance: "i".into(), reason: "in the wrong queue".into() }
}

async fn an_item_that_is_no_activity_is_removed_from_the_worker_queue(store: TestStore) {
    let store = TamperingStore::with_stray(store.provider(), stray());
    let options = RuntimeOptions { worker_concurrency: 1, ..quick() };
    let node = NodeUnderTest::start(store.clone(), echo(), orchestrations(), options).await;
    // The only slot keeps running and takes the next item.
    node.client.start_orchestration("i", "Echo", "x").await.unwrap();
    assert_eq!(node.output_of("i").await, "x");
    assert_eq!(store.count("settle_stray"), 1);
    node.runtime.shutdown(None).await;
}

#[tokio::test]
async fn an_item_that_is_no_activity_is_logged_as_an_error() {
    let (lines, _guard) = LogLines::capture();
    let store = TamperingStore::with_stray(memory(), stray());
    let node = NodeUnderTest::start(store, echo(), orchestrations(), quick()).await;
    until("the error is logged", async || !lines.containing("not an activity").is_empty()).await;
    assert_eq!(lines.containing("not an activity")[0].level, Level::ERROR);
    node.runtime.shutdown(None).await;
}

#[tokio::test]
async fn slots_are_named_by_their_number_and_their_node() {
    let (lines, _guard) = LogLines::capture();
    let activities = ActivityRegistry::builder()
        .register("WorkerId", |ctx: ActivityContext, _: String| async move { Ok(ctx.worker_id().to_owned()) })
        .build();
    let node = NodeUnderTest::start(memory(), activities, orchestrations(), quick()).await;
    node.client.start_orchestration("i", "FanOut", "").await.unwrap();
    let output = node.output_of("i").await;
    let runtime_id = lines.containing("replaying executions")[0].field("runtime_id").to_owned();
    assert!(runtime_id.len() == 4 && runtime_id.chars().all(|c| c.is_ascii_hexdigit()), "{runtime_id}");
    for worker in output.split(' ') {
        let slot = worker.strip_prefix("work-").and_then(|rest| rest.strip_suffix(&format!("-{runtime_id}")));
        let slot: usize = slot.unwrap_or_else(|| panic!("{worker}")).parse().unwrap();
        assert!(slot < 4, "{worker}");
    }
    let dispatcher = lines.only("Orchestration started").field("worker_id").to_owned();
    let slots = [format!("orch-0-{runtime_id}"), format!("orch-1-{runtime_id}")];
    assert!(slots.contains(&dispatcher), "{dispatcher}");
    node.runtime.shutdown(None).await;
}

async fn gauges_are_set_from_the_store_when_a_runtime_starts(store: TestStore) {
    let client = Client::new(store.provider());
    for number in 0..3 {
        client.start_orchestration(format!("i{number}"), "Unregistered", "").await.unwrap();
    }
    let idle = RuntimeOptions { orchestration_concurrency: 0, worker_concurrency: 0, ..quick() };
    let node = NodeUnderTest::start(store.provider(), echo(), orchestrations(), idle).await;
    let metrics = Arc::clone(node.runtime.observability_handle().unwrap().metrics_provider());
    until("the gauges are set", async || metrics.get_queue_depths() == (3, 0)).await;
    assert_eq!(metrics.get_active_orchestrations(), 0);
    node.runtime.shutdown(None).await;
}

/// A store whose management side never says how much there is.
struct CountsForEver {
    inner: Arc<dyn Store>,
    admin: LayeredAdmin<EndlessCount>,
}

struct EndlessCount(Arc<dyn Store>);

impl StoreLayer for CountsForEver {
    fn inner(&self) -> &dyn Store {
        self.inner.as_ref()
    }

    fn admin(&self) -> Option<&dyn ProviderAdmin> {
        Some(&self.admin)
    }
}

#[async_trait]
impl AdminLayer for EndlessCount {
    fn inner(&self) -> &dyn ProviderAdmin {
        self.0.admin().unwrap()
    }

    async fn get_queue_depths(&self) -> Result<QueueDepths, ProviderError> {
        std::future::pending().await
    }

    async fn get_system_metrics(&self) -> Result<SystemMetrics, ProviderError> {
        std::future::pending().await
    }
}

async fn the_first_activity_does_not_wait_for_the_gauges(store: TestStore) {
    let inner = store_of(store.provider());
    let store = CountsForEver { admin: LayeredAdmin(EndlessCount(Arc::clone(&inner))), inner };
    let node = NodeUnderTest::start(Arc::new(store), echo(), orchestrations(), quick()).await;
    node.client.start_orchestration("i", "Echo", "hello").await.unwrap();
    assert_eq!(node.output_of("i").await, "hello");
    node.runtime.shutdown(None).await;
}

#[tokio::test(start_paused = true)]
async fn gauges_are_refreshed_at_their_interval() {
    let observability =
        ObservabilityConfig { gauge_poll_interval: Duration::from_secs(60), ..Default::default() };
    let idle =
        RuntimeOptions { orchestration_concurrency: 0, worker_concurrency: 0, observability, ..quick() };
    let node = NodeUnderTest::start(memory(), echo(), orchestrations(), idle).await;
    let metrics = Arc::clone(node.runtime.observability_handle().unwrap().metrics_provider());
    tokio::time::sleep(Duration::from_secs(1)).await;
    node.client.start_orchestration("i", "Unregistered", "").await.unwrap();
    tokio::time::sleep(Duration::from_secs(58)).await;
    assert_eq!(metrics.get_queue_depths(), (0, 0));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(metrics.get_queue_depths(), (1, 0));
    node.runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_starting_runtime_logs_its_version() {
    let (lines, _guard) = LogLines::capture();
    let node = NodeUnderTest::start(memory(), echo(), orchestrations(), quick()).await;
    let line = lines.only("runtime starting");
    assert_eq!((line.level, line.target.as_str()), (Level::INFO, "everturn::runtime"));
    assert_eq!(line.field("version"), everturn::current_build_version().to_string());
    node.runtime.shutdown(None).await;
}

/// Runs on one thread, so the tasks of a runtime run only after its start has returned.
#[tokio::test(start_paused = true)]
async fn a_runtime_starts_its_parts_in_order() {
    let (lines, _guard) = LogLines::capture();
    let store = Arc::new(RecordingStore { managed: true, ..RecordingStore::default() });
    let options = RuntimeOptions { orchestration_concurrency: 2, worker_concurrency: 2, ..quick() };
    let node = NodeUnderTest::start(store.clone(), echo(), orchestrations(), options).await;
    assert!(store.take_calls().is_empty(), "nothing is read before the slots start");
    tokio::task::yield_now().await;
    let calls = store.take_calls();
    let fetches: Vec<&str> = calls.iter().copied().filter(|call| call.starts_with("fetch")).collect();
    assert_eq!(fetches[..4], ["fetch_turns", "fetch_turns", "fetch_work", "fetch_work"]);
    assert!(calls.contains(&"get_queue_depths"), "the gauges are read beside them: {calls:?}");
    let messages: Vec<String> = lines.all().into_iter().map(|line| line.message).collect();
    assert_eq!(messages[..2], ["runtime starting", "replaying executions of these engine versions"]);
    node.runtime.shutdown(Some(0)).await;
}

#[tokio::test]
async fn options_are_checked_before_anything_is_done() {
    let (lines, _guard) = LogLines::capture();
    let store = Arc::new(RecordingStore { managed: true, ..RecordingStore::default() });
    let asked = Arc::clone(&store);
    let refused = RuntimeOptions { worker_lock_timeout: Duration::ZERO, ..quick() };
    let start = NodeUnderTest::start(store, echo(), orchestrations(), refused);
    assert!(tokio::spawn(async move { start.await.runtime.shutdown(None).await }).await.is_err());
    assert!(asked.take_calls().is_empty());
    assert!(lines.containing("runtime starting").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_park_is_polled_at_the_shortest_interval() {
    let store = Arc::new(RecordingStore::default());
    let options = RuntimeOptions {
        orchestration_concurrency: 1,
        worker_concurrency: 1,
        dispatcher_min_poll_interval: Duration::from_millis(50),
        ..quick()
    };
    let node = NodeUnderTest::start(store.clone(), echo(), orchestrations(), options).await;
    tokio::time::sleep(Duration::from_millis(1_010)).await;
    node.runtime.shutdown(Some(0)).await;
    let calls = store.take_calls();
    for fetch in ["fetch_turns", "fetch_work"] {
        let fetches = calls.iter().filter(|method| **method == fetch).count();
        assert!((20..=21).contains(&fetches), "{fetch}: {fetches}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_background_task_that_panicked_is_restarted() {
    let renewals = Arc::new(AtomicUsize::new(0));
    let asked = Arc::clone(&renewals);
    let store = TamperingStore::new(memory(), move |operation| {
        let first = operation == "renew/sessions" && asked.fetch_add(1, Ordering::SeqCst) == 0;
        assert!(!first, "a bug in the provider");
        None
    });
    let options = RuntimeOptions { session_lock_timeout: Duration::from_secs(2), ..quick() };
    let node = NodeUnderTest::start(store, echo(), orchestrations(), options).await;
    until("it is called again", async || renewals.load(Ordering::SeqCst) >= 2).await;
    node.runtime.shutdown(Some(0)).await;
}
