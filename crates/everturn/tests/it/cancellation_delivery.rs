//! How a running activity learns that it is cancelled, and what becomes of its result and its lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

#[cfg(feature = "sqlite")]
use everturn::providers::sqlite::SqliteProvider;
use everturn::providers::store::{Store, StoreIdentity, StoreLayer};
use everturn::providers::{Provider, ProviderError};
use everturn::runtime::registry::{ActivityRegistry, OrchestrationRegistry};
use everturn::{ActivityContext, Either2, OrchestrationContext, RuntimeOptions};
use everturn_conformance::PlainProvider;
use tokio::sync::Semaphore;

use crate::fused_steps::{CountsSteps, warm};
use crate::log_lines::LogLines;
use crate::node_under_test::{NodeUnderTest, echo, memory, quick, until};
use crate::tampering_store::TamperingStore;

#[derive(Clone)]
struct ActivityCounts {
    started: Arc<Semaphore>,
    cancelled: Arc<AtomicUsize>,
    dropped: Arc<AtomicUsize>,
}

struct CountDrop(Arc<AtomicUsize>);

impl Drop for CountDrop {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl ActivityCounts {
    fn new() -> Self {
        Self { started: Arc::new(Semaphore::new(0)), cancelled: Arc::default(), dropped: Arc::default() }
    }

    fn activities(&self) -> ActivityRegistry {
        let (listens, ignores) = (self.clone(), self.clone());
        ActivityRegistry::builder()
            .register("Listens", move |ctx: ActivityContext, _: String| {
                let seen = listens.clone();
                async move {
                    seen.started.add_permits(1);
                    ctx.cancelled().await;
                    seen.cancelled.fetch_add(1, Ordering::SeqCst);
                    Ok("too late".to_owned())
                }
            })
            .register("IgnoresCancellation", move |_ctx: ActivityContext, _: String| {
                let seen = ignores.clone();
                async move {
                    let _dropped = CountDrop(Arc::clone(&seen.dropped));
                    seen.started.add_permits(1);
                    std::future::pending::<()>().await;
                    Ok(String::new())
                }
            })
            .build()
    }
}

fn orchestrations() -> OrchestrationRegistry {
    OrchestrationRegistry::builder()
        .register("Race", |ctx: OrchestrationContext, activity: String| async move {
            match ctx.select2(ctx.schedule_wait("go"), ctx.schedule_activity(activity, "")).await {
                Either2::First(signal) => Ok(signal),
                Either2::Second(result) => result,
            }
        })
        .build()
}

/// Lock timeouts are long, so a cancellation that arrives soon did not come through a renewal.
async fn racing(activity: &str, seen: &ActivityCounts, options: RuntimeOptions) -> NodeUnderTest {
    let node = NodeUnderTest::start(memory(), seen.activities(), orchestrations(), options).await;
    node.client.start_orchestration("i", "Race", activity).await.unwrap();
    seen.started.acquire().await.unwrap().forget();
    node
}

#[tokio::test]
async fn the_loser_of_a_race_is_cancelled_at_once_in_the_same_process() {
    let seen = ActivityCounts::new();
    let node = racing("Listens", &seen, quick()).await;
    let began = Instant::now();
    node.client.raise_event("i", "go", "won").await.unwrap();
    assert_eq!(node.output_of("i").await, "won");
    until("the activity is cancelled", async || seen.cancelled.load(Ordering::SeqCst) == 1).await;
    assert!(began.elapsed() < Duration::from_secs(10), "not through a lock renewal");
    let completed = node.runtime.metrics_snapshot().unwrap().activity_success;
    assert_eq!(completed, 0);
    node.runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_cancelled_instance_cancels_its_activities() {
    let seen = ActivityCounts::new();
    let node = racing("Listens", &seen, quick()).await;
    node.client.cancel_instance("i", "enough").await.unwrap();
    assert_eq!(node.failure_of("i").await.display_message(), "canceled: enough");
    until("the activity is cancelled", async || seen.cancelled.load(Ordering::SeqCst) == 1).await;
    node.runtime.shutdown(None).await;
}

#[tokio::test]
async fn an_activity_that_ignores_cancellation_is_aborted_after_its_grace() {
    let seen = ActivityCounts::new();
    let options = RuntimeOptions { activity_cancellation_grace_period: Duration::from_millis(30), ..quick() };
    let node = racing("IgnoresCancellation", &seen, options).await;
    node.client.raise_event("i", "go", "won").await.unwrap();
    until("the activity is dropped", async || seen.dropped.load(Ordering::SeqCst) == 1).await;
    node.runtime.shutdown(None).await;
}

/// Runs turns in one runtime and activities in another, and cancels an activity.
async fn cancelled_across_runtimes(
    turns_on: Arc<dyn Provider>,
    work_on: Arc<dyn Provider>,
    worker_lock_timeout: Duration,
) {
    let seen = ActivityCounts::new();
    let options = RuntimeOptions { worker_lock_timeout, ..quick() };
    let worker_only = RuntimeOptions { orchestration_concurrency: 0, ..options.clone() };
    let turns_only = RuntimeOptions { worker_concurrency: 0, ..options };
    let worker = NodeUnderTest::start(work_on, seen.activities(), orchestrations(), worker_only).await;
    let turns =
        NodeUnderTest::start(turns_on, ActivityRegistry::default(), orchestrations(), turns_only).await;
    turns.client.start_orchestration("i", "Race", "Listens").await.unwrap();
    seen.started.acquire().await.unwrap().forget();
    turns.client.raise_event("i", "go", "won").await.unwrap();
    let began = Instant::now();
    assert_eq!(turns.output_of("i").await, "won");
    until("the activity is cancelled", async || seen.cancelled.load(Ordering::SeqCst) == 1).await;
    assert!(began.elapsed() < SOON, "it was heard after {:?}", began.elapsed());
    worker.runtime.shutdown(None).await;
    turns.runtime.shutdown(None).await;
}

/// Far below the 25 s after which the default lock of an activity is renewed.
const SOON: Duration = Duration::from_secs(10);
/// The default lock of an activity, also in a stress run.
const LONG_LOCK: Duration = Duration::from_millis(30_001);

/// A store that does not tell which data it is on, as a store in another process cannot.
struct OtherProcess(Arc<dyn Store>);

impl StoreLayer for OtherProcess {
    fn inner(&self) -> &dyn Store {
        &*self.0
    }

    fn identity(&self) -> Option<StoreIdentity> {
        None
    }
}

#[tokio::test]
async fn another_process_learns_at_its_next_renewal() {
    let store = memory();
    let other = Arc::new(OtherProcess(store.clone()));
    cancelled_across_runtimes(store, other, Duration::from_millis(200)).await;
}

#[tokio::test]
async fn another_runtime_of_the_same_process_learns_at_once() {
    let store = memory();
    cancelled_across_runtimes(store.clone(), store, LONG_LOCK).await;
}

#[tokio::test]
async fn a_wrapped_store_learns_at_once() {
    let store = memory();
    let wrapped = TamperingStore::new(store.clone(), |_| None);
    cancelled_across_runtimes(store, wrapped, LONG_LOCK).await;
}

#[tokio::test]
async fn a_plain_provider_learns_at_once() {
    let plain = Arc::new(PlainProvider::over(memory()));
    cancelled_across_runtimes(plain.clone(), plain, LONG_LOCK).await;
}

#[cfg(feature = "sqlite")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_provider_on_the_same_file_learns_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("store.db").display());
    let open = async || Arc::new(SqliteProvider::new(&url, None).await.unwrap());
    cancelled_across_runtimes(open().await, open().await, LONG_LOCK).await;
}

#[tokio::test]
async fn an_activity_that_cancels_its_own_token_still_completes() {
    let activities = ActivityRegistry::builder()
        .register("SelfCancel", |ctx: ActivityContext, _: String| async move {
            ctx.cancellation_token().cancel();
            tokio::task::yield_now().await;
            Ok("still counted".to_owned())
        })
        .build();
    let node = NodeUnderTest::start(memory(), activities, orchestrations(), quick()).await;
    node.client.start_orchestration("i", "Race", "SelfCancel").await.unwrap();
    assert_eq!(node.output_of("i").await, "still counted");
    node.runtime.shutdown(None).await;
}

#[tokio::test]
async fn an_activity_longer_than_its_lock_runs_once_despite_transient_renewal_errors() {
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let activities = ActivityRegistry::builder()
        .register("Long", move |ctx: ActivityContext, _: String| {
            let runs = Arc::clone(&counted);
            async move {
                runs.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(1_000)).await;
                if ctx.is_cancelled() { Err("cancelled".to_owned()) } else { Ok("finished".to_owned()) }
            }
        })
        .build();
    let renewals = AtomicUsize::new(0);
    let store = TamperingStore::new(memory(), move |operation| {
        let every_second =
            operation == "renew/locks" && renewals.fetch_add(1, Ordering::SeqCst).is_multiple_of(2);
        every_second.then(|| ProviderError::retryable("renew", "busy"))
    });
    let options = RuntimeOptions { worker_lock_timeout: Duration::from_millis(400), ..quick() };
    let node = NodeUnderTest::start(store.clone(), activities, orchestrations(), options).await;
    node.client.start_orchestration("i", "Race", "Long").await.unwrap();
    assert_eq!(node.output_of("i").await, "finished");
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    assert!(store.count("renew/locks") >= 4);
    node.runtime.shutdown(None).await;
}

#[tokio::test]
async fn an_activity_whose_outcome_is_refused_is_abandoned() {
    let activities = ActivityRegistry::builder()
        .register("Echo", |_ctx: ActivityContext, _: String| async move { Ok("second time".to_owned()) })
        .build();
    // The first two abandons fail. They are retried, and the lock does not have to expire.
    let (acks, abandons) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let store = TamperingStore::new(memory(), move |operation| match operation {
        "settle_work/end" if acks.fetch_add(1, Ordering::SeqCst) < 1 => {
            Some(ProviderError::permanent(operation, "no such column"))
        }
        "settle_work/abandon" if abandons.fetch_add(1, Ordering::SeqCst) < 2 => {
            Some(ProviderError::retryable(operation, "busy"))
        }
        _ => None,
    });
    let node = NodeUnderTest::start(store.clone(), activities, orchestrations(), quick()).await;
    node.client.start_orchestration("i", "Race", "Echo").await.unwrap();
    assert_eq!(node.output_of("i").await, "second time");
    assert_eq!(store.count("settle_work/abandon"), 3);
    let snapshot = node.runtime.metrics_snapshot().unwrap();
    assert_eq!((snapshot.activity_infra_errors, snapshot.activity_success), (1, 1));
    node.runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_lock_that_expired_during_an_outage_leaves_the_activity_in_the_queue() {
    let seen = ActivityCounts::new();
    let failing = Arc::new(AtomicBool::new(true));
    let fails = Arc::clone(&failing);
    let store = TamperingStore::new(memory(), move |operation| {
        (operation == "renew/locks" && fails.load(Ordering::SeqCst))
            .then(|| ProviderError::retryable("renew", "unreachable"))
    });
    let options = RuntimeOptions { worker_lock_timeout: Duration::from_millis(200), ..quick() };
    let node = NodeUnderTest::start(store.clone(), seen.activities(), orchestrations(), options).await;
    node.client.start_orchestration("i", "Race", "Listens").await.unwrap();
    until("the activity is cancelled for its lost lock", async || seen.cancelled.load(Ordering::SeqCst) == 1)
        .await;
    failing.store(false, Ordering::SeqCst);
    until("it runs again", async || seen.started.available_permits() >= 2).await;
    assert_eq!(store.count("settle_work/end"), 0);
    node.runtime.shutdown(Some(0)).await;
}

#[tokio::test]
async fn an_activity_is_cancelled_by_the_commit_not_by_its_answer() {
    let (seen, store) = (ActivityCounts::new(), TamperingStore::new(memory(), |_| None));
    let node = NodeUnderTest::start(store.clone(), seen.activities(), orchestrations(), quick()).await;
    node.client.start_orchestration("i", "Race", "Listens").await.unwrap();
    seen.started.acquire().await.unwrap().forget();
    // The slot learns of its commit late, as if it were busy with the code of another turn.
    let answers = store.withhold_answers();
    node.client.raise_event("i", "go", "won").await.unwrap();
    until("the activity is cancelled", async || seen.cancelled.load(Ordering::SeqCst) == 1).await;
    assert_eq!(node.runtime.metrics_snapshot().unwrap().orch_completions, 0, "the turn was not answered");
    answers.add_permits(1);
    node.runtime.shutdown(None).await;
}

#[tokio::test]
async fn an_activity_that_a_fused_step_no_longer_wants_is_cancelled_and_its_lock_is_not_abandoned() {
    let (lines, _guard) = LogLines::capture();
    let (begun, cancelled) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (begins, is_cancelled, waits_for) = (Arc::clone(&begun), Arc::clone(&cancelled), Arc::clone(&begun));
    let activities = ActivityRegistry::builder()
        .register("Loses", move |ctx: ActivityContext, input: String| {
            let (begins, is_cancelled) = (Arc::clone(&begins), Arc::clone(&is_cancelled));
            async move {
                begins.add_permits(1);
                ctx.cancelled().await;
                is_cancelled.add_permits(1);
                Ok(input)
            }
        })
        .register("Wins", move |_ctx: ActivityContext, input: String| {
            let begun = Arc::clone(&waits_for);
            async move {
                begun.acquire().await.unwrap().forget();
                Ok(input)
            }
        })
        .build();
    let orchestrations = OrchestrationRegistry::builder()
        .register("Race", |ctx: OrchestrationContext, _: String| async move {
            let (wins, loses) = (ctx.schedule_activity("Wins", "won"), ctx.schedule_activity("Loses", ""));
            match ctx.select2(wins, loses).await {
                Either2::First(outcome) | Either2::Second(outcome) => outcome,
            }
        })
        .build();
    let store = CountsSteps::around(memory());
    // In memory, so that the outcome and its turn are one step.
    let node = NodeUnderTest::start(store.clone(), activities, orchestrations, warm()).await;
    node.client.start_orchestration("i", "Race", "").await.unwrap();
    assert_eq!(node.output_of("i").await, "won");
    until("the other activity is cancelled", async || cancelled.available_permits() == 1).await;
    assert_eq!(store.committed(), 1, "the outcome that wins and its turn are a fused step");
    node.runtime.shutdown(None).await;
    let abandoned = lines.containing("abandoning the lock of an activity failed");
    assert!(abandoned.is_empty(), "the step has removed the activity: {abandoned:?}");
}

#[tokio::test]
async fn a_lock_that_the_store_calls_lost_is_not_abandoned() {
    let store = TamperingStore::new(memory(), |operation| {
        (operation == "settle_work/end").then(|| ProviderError::lock_lost("settle_work", "another has it"))
    });
    let orchestrations = OrchestrationRegistry::builder()
        .register("Calls", |ctx: OrchestrationContext, input: String| async move {
            ctx.schedule_activity("Echo", input).await
        })
        .build();
    let node = NodeUnderTest::start(store.clone(), echo(), orchestrations, quick()).await;
    node.client.start_orchestration("i", "Calls", "").await.unwrap();
    until("the outcome is refused", async || store.count("settle_work/end") > 0).await;
    node.runtime.shutdown(None).await;
    assert_eq!(store.count("settle_work/abandon"), 0, "it is not this worker's any more");
}
