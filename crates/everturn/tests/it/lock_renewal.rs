//! Locks are renewed for as long as the work they protect runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use everturn::providers::store::{Feature, Renewal, Renewed, Store, StoreLayer};
use everturn::providers::{ProviderError, store_of};
use everturn::runtime::registry::{ActivityRegistry, OrchestrationRegistry};
use everturn::{ActivityContext, OrchestrationContext, RuntimeOptions};

use crate::node_under_test::{NodeUnderTest, echo, quick, until};
use crate::stores::{TestStore, on_every_store, on_every_store_in_paused_time};
use crate::tampering_store::TamperingStore;

// A turn that does not yield blocks its thread, so this test needs real time.
on_every_store!(a_turn_longer_than_its_lock_is_taken_once);
on_every_store_in_paused_time!(
    an_activity_longer_than_its_lock_is_done_once,
    a_transient_renewal_error_cancels_nothing,
    a_refused_renewal_cancels_the_activity,
    an_activity_whose_lock_could_not_be_renewed_runs_again,
    an_activity_whose_renewals_are_only_late_runs_once,
    an_attempt_is_taken_back_if_the_renewals_fail,
    locks_are_renewed_during_shutdown_until_the_work_is_stored,
    a_lease_is_renewed_while_its_session_is_active,
    errors_of_the_session_manager_do_not_stop_work,
);

/// A lock is renewed after half its timeout. The other half is slack for a busy machine.
const LOCK: Duration = Duration::from_secs(2);
const LONG: Duration = Duration::from_secs(5);

fn short_locks() -> RuntimeOptions {
    RuntimeOptions {
        worker_lock_timeout: LOCK,
        orchestrator_lock_timeout: LOCK,
        session_lock_timeout: LOCK,
        ..quick()
    }
}

/// Counts the runs of an activity that takes longer than its lock.
#[derive(Clone, Default)]
struct LongActivity {
    begun: Arc<AtomicUsize>,
    cancelled: Arc<AtomicUsize>,
}

impl LongActivity {
    fn activities(&self) -> ActivityRegistry {
        let work = self.clone();
        ActivityRegistry::builder()
            .register("Long", move |ctx: ActivityContext, _: String| {
                let work = work.clone();
                async move {
                    work.begun.fetch_add(1, Ordering::SeqCst);
                    tokio::select! {
                        biased;
                        () = ctx.cancelled() => {
                            work.cancelled.fetch_add(1, Ordering::SeqCst);
                        }
                        () = tokio::time::sleep(LONG) => {}
                    }
                    Ok(ctx.worker_id().to_owned())
                }
            })
            .build()
    }

    fn counts(&self) -> (usize, usize) {
        (self.begun.load(Ordering::SeqCst), self.cancelled.load(Ordering::SeqCst))
    }
}

fn orchestrations() -> OrchestrationRegistry {
    OrchestrationRegistry::builder()
        .register("Calls", |ctx: OrchestrationContext, _: String| async move {
            ctx.schedule_activity("Long", "").await
        })
        .register("Session", |ctx: OrchestrationContext, _: String| async move {
            let calls = (0..2).map(|_| ctx.schedule_activity_on_session("Long", "", "s")).collect();
            let workers: Result<Vec<String>, String> = ctx.join(calls).await.into_iter().collect();
            Ok(workers?.join(" "))
        })
        .register("Echo", |ctx: OrchestrationContext, input: String| async move {
            ctx.schedule_activity_on_session("Echo", input, "s").await
        })
        .build()
}

async fn an_activity_longer_than_its_lock_is_done_once(store: TestStore) {
    let work = LongActivity::default();
    // A second runtime would take over an expired lock.
    let one =
        NodeUnderTest::start(store.provider(), work.activities(), orchestrations(), short_locks()).await;
    let other =
        NodeUnderTest::start(store.provider(), work.activities(), orchestrations(), short_locks()).await;
    one.client.start_orchestration("i", "Calls", "").await.unwrap();
    one.output_of("i").await;
    assert_eq!(work.counts(), (1, 0));
    one.runtime.shutdown(None).await;
    other.runtime.shutdown(None).await;
}

async fn a_turn_longer_than_its_lock_is_taken_once(store: TestStore) {
    let turns = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&turns);
    let slow = OrchestrationRegistry::builder()
        .register("Slow", move |_: OrchestrationContext, _: String| {
            let turns = Arc::clone(&counted);
            async move {
                turns.fetch_add(1, Ordering::SeqCst);
                // Lets other tasks of this thread move to other threads meanwhile.
                tokio::task::block_in_place(|| std::thread::sleep(LOCK + LOCK / 2));
                Ok("at last".to_owned())
            }
        })
        .build();
    let one = NodeUnderTest::start(store.provider(), echo(), slow.clone(), short_locks()).await;
    let other = NodeUnderTest::start(store.provider(), echo(), slow, short_locks()).await;
    one.client.start_orchestration("i", "Slow", "").await.unwrap();
    assert_eq!(one.output_of("i").await, "at last");
    assert_eq!(turns.load(Ordering::SeqCst), 1);
    one.runtime.shutdown(None).await;
    other.runtime.shutdown(None).await;
}

async fn a_transient_renewal_error_cancels_nothing(store: TestStore) {
    let work = LongActivity::default();
    let renewals = AtomicUsize::new(0);
    let store = TamperingStore::new(store.provider(), move |operation| {
        let fails = operation == "renew/locks" && renewals.fetch_add(1, Ordering::SeqCst).is_multiple_of(2);
        fails.then(|| ProviderError::retryable("renew", "busy"))
    });
    let node = NodeUnderTest::start(store.clone(), work.activities(), orchestrations(), short_locks()).await;
    node.client.start_orchestration("i", "Calls", "").await.unwrap();
    node.output_of("i").await;
    assert_eq!(work.counts(), (1, 0));
    assert!(store.count("renew/locks") >= 4, "{}", store.count("renew/locks"));
    node.runtime.shutdown(None).await;
}

async fn a_refused_renewal_cancels_the_activity(store: TestStore) {
    let work = LongActivity::default();
    let refusing = TamperingStore::new(store.provider(), |operation| {
        (operation == "renew/locks").then(|| ProviderError::lock_lost("renew", "the row is gone"))
    });
    let node = NodeUnderTest::start(refusing, work.activities(), orchestrations(), short_locks()).await;
    node.client.start_orchestration("i", "Calls", "").await.unwrap();
    until("the activity is cancelled", async || work.counts().1 == 1).await;
    until("it is counted as cancelled, not as done", async || {
        node.client.get_queue_depths().await.unwrap().worker_queue == 0
    })
    .await;
    assert_eq!(node.runtime.metrics_snapshot().unwrap().activity_success, 0);
    node.runtime.shutdown(None).await;
}

/// The store refuses the renewal without saying that the lock is lost: the activity's row must stay in the queue.
async fn an_activity_whose_lock_could_not_be_renewed_runs_again(store: TestStore) {
    let work = LongActivity::default();
    let refusals = AtomicUsize::new(0);
    let refusing = TamperingStore::new(store.provider(), move |operation| {
        let is_first = operation == "renew/locks" && refusals.fetch_add(1, Ordering::SeqCst) == 0;
        is_first.then(|| ProviderError::permanent("renew", "no"))
    });
    let node = NodeUnderTest::start(refusing, work.activities(), orchestrations(), short_locks()).await;
    node.client.start_orchestration("i", "Calls", "").await.unwrap();
    node.output_of("i").await;
    assert_eq!(work.counts().1, 1, "it was cancelled once");
    node.runtime.shutdown(None).await;
}

/// A store that renews locks at once and answers long after their first end.
struct AnswersRenewalsLate(Arc<dyn Store>);

impl StoreLayer for AnswersRenewalsLate {
    fn inner(&self) -> &dyn Store {
        self.0.as_ref()
    }

    fn supports(&self, feature: Feature) -> bool {
        feature == Feature::LateRenewals || self.0.supports(feature)
    }

    async fn renew(&self, renewal: &Renewal) -> Result<Renewed, ProviderError> {
        let answer = self.0.renew(renewal).await;
        tokio::time::sleep(LOCK * 3 / 4).await;
        answer
    }
}

async fn an_activity_whose_renewals_are_only_late_runs_once(store: TestStore) {
    let work = LongActivity::default();
    let late = Arc::new(AnswersRenewalsLate(store_of(store.provider())));
    let node = NodeUnderTest::start(late, work.activities(), orchestrations(), short_locks()).await;
    node.client.start_orchestration("i", "Calls", "").await.unwrap();
    node.output_of("i").await;
    assert_eq!(work.counts(), (1, 0));
    assert_eq!(node.runtime.metrics_snapshot().unwrap().activity_success, 1);
    node.runtime.shutdown(None).await;
}

/// The same store promises that a late renewal counts; this one fails each of them.
async fn an_attempt_is_taken_back_if_the_renewals_fail(store: TestStore) {
    let work = LongActivity::default();
    let failing = TamperingStore::new(store.provider(), |operation| {
        (operation == "renew/locks").then(|| ProviderError::retryable("renew", "busy"))
    });
    let options = RuntimeOptions { max_attempts: 1, ..short_locks() };
    let node = NodeUnderTest::start(failing, work.activities(), orchestrations(), options).await;
    node.client.start_orchestration("i", "Calls", "").await.unwrap();
    until("it was begun and cancelled three times", async || work.counts().1 >= 3).await;
    let info = node.client.get_instance_info("i").await.unwrap();
    assert_eq!(info.status, "Running", "no attempt counted, so that it is not poisoned: {info:?}");
    node.runtime.shutdown(Some(0)).await;
}

async fn locks_are_renewed_during_shutdown_until_the_work_is_stored(store: TestStore) {
    let work = LongActivity::default();
    let node =
        NodeUnderTest::start(store.provider(), work.activities(), orchestrations(), short_locks()).await;
    node.client.start_orchestration("i", "Calls", "").await.unwrap();
    until("the activity runs", async || work.counts().0 == 1).await;
    node.runtime.shutdown(Some(30_000)).await;
    let next = NodeUnderTest::start(store.provider(), echo(), orchestrations(), quick()).await;
    next.output_of("i").await;
    assert_eq!(work.counts(), (1, 0));
    next.runtime.shutdown(None).await;
}

async fn a_lease_is_renewed_while_its_session_is_active(store: TestStore) {
    let work = LongActivity::default();
    // One slot each: the second call waits for the owner although another node is free.
    let named = |node: &str| RuntimeOptions {
        worker_concurrency: 1,
        worker_node_id: Some(node.to_owned()),
        ..short_locks()
    };
    let one = NodeUnderTest::start(store.provider(), work.activities(), orchestrations(), named("one")).await;
    let other =
        NodeUnderTest::start(store.provider(), work.activities(), orchestrations(), named("other")).await;
    one.client.start_orchestration("i", "Session", "").await.unwrap();
    let workers = one.output_of("i").await;
    let (first, second) = workers.split_once(' ').unwrap();
    assert_eq!(first, second);
    one.runtime.shutdown(None).await;
    other.runtime.shutdown(None).await;
}

async fn errors_of_the_session_manager_do_not_stop_work(store: TestStore) {
    let failing = TamperingStore::new(store.provider(), |operation| match operation {
        "renew/sessions" | "sweep" => Some(ProviderError::permanent(operation, "broken")),
        _ => None,
    });
    let options = RuntimeOptions {
        session_lock_timeout: Duration::from_millis(200),
        session_cleanup_interval: Duration::from_millis(50),
        ..quick()
    };
    let node = NodeUnderTest::start(failing.clone(), echo(), orchestrations(), options).await;
    until("both failed more than once", async || {
        failing.count("renew/sessions") > 1 && failing.count("sweep") > 1
    })
    .await;
    node.client.start_orchestration("i", "Echo", "x").await.unwrap();
    assert_eq!(node.output_of("i").await, "x");
    node.runtime.shutdown(None).await;
}
