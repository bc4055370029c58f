//! How many sessions a runtime holds, and how their leases are renewed.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use everturn::providers::store::{Feature, Store, StoreLayer};
use everturn::providers::{Provider, ProviderError, WorkItem, store_of};
use everturn::runtime::registry::{ActivityRegistry, OrchestrationRegistry};
use everturn::{ActivityContext, OrchestrationContext, RuntimeOptions};
use everturn_proof::many;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::node_under_test::{NodeUnderTest, memory, quick, until};
use crate::stores::{TestStore, on_every_store_in_paused_time};
use crate::tampering_store::TamperingStore;

on_every_store_in_paused_time!(
    sessions_beyond_the_limit_are_not_locked,
    a_runtime_claims_no_session_that_it_cannot_serve,
    a_long_session_costs_the_same_with_many_slots_as_with_one,
    a_session_place_that_becomes_free_is_taken_at_once,
);

/// Every session activity, which worker ran it, and how many sessions were in flight at once.
#[derive(Clone, Default)]
struct SessionLog {
    workers: Arc<Mutex<Vec<(String, String)>>>,
    in_flight: Arc<Mutex<Vec<String>>>,
    most_sessions: Arc<Mutex<usize>>,
}

impl SessionLog {
    fn activities(&self) -> ActivityRegistry {
        let log = self.clone();
        ActivityRegistry::builder()
            .register("Work", move |ctx: ActivityContext, input: String| {
                let log = log.clone();
                async move {
                    let session = ctx.session_id().unwrap_or("none").to_owned();
                    log.enter(&session, ctx.worker_id());
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    log.leave(&session);
                    Ok(input)
                }
            })
            .build()
    }

    fn enter(&self, session: &str, worker: &str) {
        self.workers.lock().unwrap().push((session.to_owned(), worker.to_owned()));
        let mut in_flight = self.in_flight.lock().unwrap();
        in_flight.push(session.to_owned());
        let distinct: BTreeSet<&String> = in_flight.iter().collect();
        let mut most = self.most_sessions.lock().unwrap();
        *most = distinct.len().max(*most);
    }

    fn leave(&self, session: &str) {
        let mut in_flight = self.in_flight.lock().unwrap();
        let ended = in_flight.iter().position(|other| other == session).unwrap();
        in_flight.remove(ended);
    }
}

fn fan_out() -> OrchestrationRegistry {
    OrchestrationRegistry::builder()
        .register("FanOut", |ctx: OrchestrationContext, sessions: String| async move {
            let sessions: usize = sessions.parse().unwrap();
            let calls = (0..sessions * 3)
                .map(|n| {
                    ctx.schedule_activity_on_session("Work", n.to_string(), format!("s{}", n % sessions))
                })
                .collect();
            Ok(ctx.join(calls).await.len().to_string())
        })
        .register("OneSession", |ctx: OrchestrationContext, calls: String| async move {
            let calls: usize = calls.parse().unwrap();
            let session = ctx.instance_id();
            let calls =
                (0..calls).map(|n| ctx.schedule_activity_on_session("Work", n.to_string(), session.as_str()));
            Ok(ctx.join(calls.collect()).await.len().to_string())
        })
        .build()
}

fn many_slots() -> RuntimeOptions {
    RuntimeOptions { max_sessions_per_runtime: 10, worker_concurrency: 64, ..quick() }
}

async fn sessions_beyond_the_limit_are_not_locked(store: TestStore) {
    let log = SessionLog::default();
    let counted = TamperingStore::new(store.provider(), |_| None);
    let node = NodeUnderTest::start(counted.clone(), log.activities(), fan_out(), many_slots()).await;
    node.client.start_orchestration("i", "FanOut", "200").await.unwrap();
    assert_eq!(node.output_of("i").await, "600");
    assert_eq!(*log.most_sessions.lock().unwrap(), 10);
    let given_back = counted.count("settle_work/abandon");
    assert_eq!(
        (counted.work_locked(), given_back),
        (600, 0),
        "600 activities should have been locked once each, and none given back"
    );
    node.runtime.shutdown(None).await;
}

async fn a_runtime_claims_no_session_that_it_cannot_serve(store: TestStore) {
    let (gate, entered) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (opened, entries) = (Arc::clone(&gate), Arc::clone(&entered));
    let activities = ActivityRegistry::builder()
        .register("Work", move |_ctx: ActivityContext, input: String| {
            let (gate, entered) = (Arc::clone(&opened), Arc::clone(&entries));
            async move {
                entered.add_permits(1);
                drop(gate.acquire().await.unwrap());
                Ok(input)
            }
        })
        .build();
    let one = NodeUnderTest::start(store.provider(), activities.clone(), fan_out(), many_slots()).await;
    one.client.start_orchestration("i", "FanOut", "40").await.unwrap();
    until("the first runtime serves as many sessions as it may", async || entered.available_permits() == 10)
        .await;
    let large = RuntimeOptions { max_sessions_per_runtime: 100, ..many_slots() };
    let other = NodeUnderTest::start(store.provider(), activities, fan_out(), large).await;
    let began = Instant::now();
    until("the second runtime serves all others", async || entered.available_permits() == 40).await;
    assert!(began.elapsed() < Duration::from_secs(1), "it waited {:?} for leases", began.elapsed());
    gate.add_permits(1);
    assert_eq!(one.output_of("i").await, "120");
    one.runtime.shutdown(None).await;
    other.runtime.shutdown(None).await;
}

async fn a_long_session_costs_the_same_with_many_slots_as_with_one(store: TestStore) {
    let mut calls = Vec::new();
    let activities_in_all = many(2_000);
    for slots in [1, 64] {
        let counted = TamperingStore::new(store.provider(), |_| None);
        let options = RuntimeOptions { worker_concurrency: slots, ..many_slots() };
        let activities = crate::node_under_test::echo_as("Work");
        let node = NodeUnderTest::start(counted.clone(), activities, fan_out(), options).await;
        let instance = format!("{slots} slots");
        let count = activities_in_all.to_string();
        node.client.start_orchestration(&instance, "OneSession", count.clone()).await.unwrap();
        assert_eq!(node.output_of(&instance).await, count);
        let locked_and_abandoned = (counted.work_locked(), counted.count("settle_work/abandon"));
        assert_eq!(locked_and_abandoned, (activities_in_all, 0), "{instance}");
        calls.push(counted.count("fetch_work"));
        node.runtime.shutdown(None).await;
    }
    assert!(calls[1] <= calls[0] * 3 / 2, "fetches with one slot and with 64: {calls:?}");
}

#[tokio::test]
async fn a_session_stays_on_one_slot() {
    let log = SessionLog::default();
    let node = NodeUnderTest::start(memory(), log.activities(), fan_out(), quick()).await;
    node.client.start_orchestration("i", "FanOut", "3").await.unwrap();
    assert_eq!(node.output_of("i").await, "9");
    let workers: BTreeSet<(String, String)> = log.workers.lock().unwrap().iter().cloned().collect();
    assert_eq!(workers.len(), 3, "{workers:?}");
    node.runtime.shutdown(None).await;
}

#[tokio::test]
async fn no_more_sessions_than_allowed_are_in_flight_and_all_are_served() {
    let log = SessionLog::default();
    let options = RuntimeOptions { max_sessions_per_runtime: 2, worker_concurrency: 8, ..quick() };
    let options = RuntimeOptions { worker_node_id: Some("node-a".into()), ..options };
    let node = NodeUnderTest::start(memory(), log.activities(), fan_out(), options).await;
    node.client.start_orchestration("i", "FanOut", "6").await.unwrap();
    assert_eq!(node.output_of("i").await, "18");
    assert_eq!(*log.most_sessions.lock().unwrap(), 2);
    let workers = log.workers.lock().unwrap().clone();
    assert!(workers.iter().all(|(_, worker)| worker.ends_with("-node-a")), "{workers:?}");
    node.runtime.shutdown(None).await;
}

/// A slot serves session t, then another slot serves session s, so that there is no place for the next activity of t. Only the
/// first slot may take that, and it waits in the store: no look that the store takes from time to time may be what finds it.
async fn a_session_place_that_becomes_free_is_taken_at_once(store: TestStore) {
    let activities = ActivityRegistry::builder()
        .register("Work", |_ctx: ActivityContext, lasts_ms: String| async move {
            tokio::time::sleep(Duration::from_millis(lasts_ms.parse().unwrap())).await;
            Ok(lasts_ms)
        })
        .build();
    let orchestrations = OrchestrationRegistry::builder()
        .register("Sessions", |ctx: OrchestrationContext, name: String| async move {
            let (one, other) = (format!("{name} s"), format!("{name} t"));
            ctx.schedule_activity_on_session("Work", "10", &other).await?;
            let long = ctx.schedule_activity_on_session("Work", "2345", &one);
            ctx.schedule_timer(Duration::from_millis(100)).await;
            let next = ctx.schedule_activity_on_session("Work", "10", &other);
            ctx.join2(long, next).await.1
        })
        .build();
    // With instances in memory the outcomes are stored in fused steps, without them in the ordinary way.
    for (instance, warm_instances_max) in [("warm", 100), ("cold", 0)] {
        let options = RuntimeOptions {
            max_sessions_per_runtime: 1,
            worker_concurrency: 2,
            warm_instances_max,
            ..quick()
        };
        let (activities, orchestrations) = (activities.clone(), orchestrations.clone());
        let node = NodeUnderTest::start(store.provider(), activities, orchestrations, options).await;
        let began = Instant::now();
        node.client.start_orchestration(instance, "Sessions", instance).await.unwrap();
        node.output_of(instance).await;
        let (took, at_least) = (began.elapsed(), Duration::from_millis(10 + 2_345 + 10));
        assert!(took >= at_least, "there is a place for one session at a time, but all ended after {took:?}");
        assert!(
            took < at_least + Duration::from_millis(50),
            "a place was free, but the next activity waited; all ended after {took:?}"
        );
        node.runtime.shutdown(None).await;
    }
}

#[tokio::test]
async fn a_parked_fetch_without_sessions_is_repeated_when_a_session_ends() {
    let (store, gate) = (memory(), Arc::new(Semaphore::new(0)));
    let opened = Arc::clone(&gate);
    let activities = ActivityRegistry::builder()
        .register("Work", move |_ctx: ActivityContext, input: String| {
            let gate = Arc::clone(&opened);
            async move {
                if input == "first" {
                    gate.acquire().await.unwrap().forget();
                }
                Ok(input)
            }
        })
        .build();
    // A fetch that stayed parked without sessions would wait for ten minutes.
    let options = RuntimeOptions {
        max_sessions_per_runtime: 1,
        dispatcher_long_poll_timeout: Duration::from_secs(600),
        ..quick()
    };
    let node =
        NodeUnderTest::start(store.clone(), activities, OrchestrationRegistry::default(), options).await;
    for (id, input) in [(1, "first"), (2, "second")] {
        let item = WorkItem::ActivityExecute {
            instance: "i".into(),
            execution_id: 1,
            id,
            name: "Work".into(),
            input: input.into(),
            session_id: Some(format!("s{id}")),
            tag: None,
        };
        store.enqueue_for_worker(item).await.unwrap();
    }
    gate.add_permits(1);
    until("both sessions were served", async || {
        node.runtime.metrics_snapshot().unwrap().activity_success == 2
    })
    .await;
    node.runtime.shutdown(None).await;
}

/// When the leases were renewed, in milliseconds since the start, if the first `failures` attempts fail with a retryable error.
async fn renewals_of_a_minute(failures: usize) -> Vec<u128> {
    let asked: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let noted = Arc::clone(&asked);
    let store = TamperingStore::new(memory(), move |operation| {
        if operation != "renew/sessions" {
            return None;
        }
        let mut noted = noted.lock().unwrap();
        noted.push(Instant::now());
        (noted.len() <= failures).then(|| ProviderError::retryable("renew", "busy"))
    });
    let began = Instant::now();
    let log = SessionLog::default();
    let node = NodeUnderTest::start(store, log.activities(), fan_out(), quick()).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    node.runtime.shutdown(Some(0)).await;
    let asked = asked.lock().unwrap();
    asked.iter().map(|at| at.duration_since(began).as_millis()).collect()
}

#[tokio::test(start_paused = true)]
async fn leases_are_renewed_before_they_end() {
    let renewals = renewals_of_a_minute(0).await;
    assert!(matches!(renewals[..], [25_000..=25_010, 50_000..=50_020]), "{renewals:?}");
}

#[tokio::test(start_paused = true)]
async fn a_failed_lease_renewal_is_retried_while_the_leases_last() {
    let renewals = renewals_of_a_minute(3).await;
    let first_four: Vec<u128> = renewals.iter().take(4).map(|at| at - renewals[0]).collect();
    assert!(
        matches!(first_four[..], [0, 10..=13, 30..=35, 70..=80]),
        "not only at the next interval: {renewals:?}"
    );
    assert_eq!(renewals.len(), 5, "then at the interval again: {renewals:?}");
}

#[tokio::test(start_paused = true)]
async fn all_owners_of_a_runtime_are_renewed_in_one_call() {
    for (worker_node_id, owners) in [(None, 4), (Some("node-a".to_owned()), 1)] {
        let store = TamperingStore::new(memory(), |_| None);
        let options = RuntimeOptions { worker_node_id, ..quick() };
        let log = SessionLog::default();
        let node = NodeUnderTest::start(store.clone(), log.activities(), fan_out(), options).await;
        tokio::time::sleep(Duration::from_secs(26)).await;
        node.runtime.shutdown(Some(0)).await;
        let calls = store.renewed_owners();
        let distinct: BTreeSet<&String> = calls.iter().flatten().collect();
        assert_eq!((calls.len(), distinct.len()), (1, owners), "{calls:?}");
    }
}

/// A store that does not ask how many sessions the runtime can serve.
struct AsksForNoPlaces(Arc<dyn Store>);

impl StoreLayer for AsksForNoPlaces {
    fn inner(&self) -> &dyn Store {
        &*self.0
    }

    fn supports(&self, feature: Feature) -> bool {
        !matches!(feature, Feature::SessionPlaces | Feature::FusedSteps) && self.0.supports(feature)
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_asks_for_no_places_is_asked_for_no_session_beyond_the_limit() {
    let kept = TestStore::memory_in_paused_time();
    let store = Arc::new(AsksForNoPlaces(store_of(kept.provider())));
    let activities = ActivityRegistry::builder()
        .register("Work", |_ctx: ActivityContext, lasts_ms: String| async move {
            tokio::time::sleep(Duration::from_millis(lasts_ms.parse().unwrap())).await;
            Ok(lasts_ms)
        })
        .build();
    let orchestrations = OrchestrationRegistry::builder()
        .register("Sessions", |ctx: OrchestrationContext, _: String| async move {
            let long = ctx.schedule_activity_on_session("Work", "2345", "s");
            ctx.schedule_timer(Duration::from_millis(100)).await;
            let next = ctx.schedule_activity_on_session("Work", "10", "t");
            ctx.join2(long, next).await.1
        })
        .build();
    let options = RuntimeOptions { max_sessions_per_runtime: 1, worker_concurrency: 2, ..quick() };
    let node = NodeUnderTest::start(store, activities, orchestrations, options).await;
    node.client.start_orchestration("i", "Sessions", "").await.unwrap();
    assert_eq!(node.output_of("i").await, "10");
    let fetched = node.runtime.metrics_snapshot().unwrap().worker_dispatcher_items_fetched;
    assert_eq!(fetched, 2, "the second session is fetched when there is a place for it, and not before");
    node.runtime.shutdown(None).await;
}
