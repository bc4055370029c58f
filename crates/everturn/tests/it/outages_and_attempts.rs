//! Outages of the store and shutdowns never count as attempts, so none of them ends in poison.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use everturn::providers::ProviderError;
use everturn::runtime::registry::{ActivityRegistry, OrchestrationRegistry};
use everturn::{ActivityContext, OrchestrationContext, OrchestrationStatus, RuntimeOptions};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::node_under_test::NodeUnderTest;
use crate::stores::{TestStore, on_every_store_in_paused_time};
use crate::tampering_store::TamperingStore;

on_every_store_in_paused_time!(
    an_outcome_that_cannot_be_stored_for_two_seconds_is_stored_later_and_the_activity_runs_once,
    a_damaged_queue_is_an_outage_until_it_is_repaired,
    a_large_result_on_a_full_disk_is_stored_when_there_is_room_again,
    short_shutdowns_during_a_long_activity_never_poison_it,
    shutdowns_during_a_turn_never_poison_it,
    a_verb_that_fails_for_three_seconds_repeats_no_activity,
    a_verb_that_fails_for_ten_minutes_poisons_nothing,
    verbs_that_fail_together_with_the_renewals_poison_nothing,
    attempts_that_cannot_be_taken_back_do_not_count,
    attempts_that_cannot_be_taken_back_do_not_count_whichever_runtime_fetches_next,
    an_outcome_that_cannot_be_stored_for_hours_poisons_nothing,
    a_turn_that_cannot_be_committed_for_hours_leaves_its_place_to_others_and_poisons_nothing,
);

/// Longer than any test lets a store fail, in paused time.
const END_MAX: Duration = Duration::from_secs(6 * 3_600);
/// The verbs of `Store` that a healthy runtime and its clients call, as the tampering store names them.
const VERBS: [&str; 10] = [
    "fetch_turns",
    "commit_turn",
    "fetch_work",
    "settle_work/end",
    "renew/locks",
    "renew/sessions",
    "submit",
    "sweep",
    "read_status",
    "read_kv_value",
];

/// An activity that counts its runs and says when it begins.
#[derive(Clone)]
struct CountedActivity {
    runs: Arc<AtomicUsize>,
    begun: Arc<Semaphore>,
    takes: Duration,
    result: String,
}

impl CountedActivity {
    fn taking(takes: Duration) -> Self {
        Self { runs: Arc::default(), begun: Arc::new(Semaphore::new(0)), takes, result: "done".to_owned() }
    }

    fn activities(&self) -> ActivityRegistry {
        let counted = self.clone();
        ActivityRegistry::builder()
            .register("Counted", move |_ctx: ActivityContext, _: String| {
                let counted = counted.clone();
                async move {
                    counted.runs.fetch_add(1, Ordering::SeqCst);
                    counted.begun.add_permits(1);
                    tokio::time::sleep(counted.takes).await;
                    Ok(counted.result)
                }
            })
            .build()
    }

    fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }

    async fn begins(&self) {
        self.begun.acquire().await.unwrap().forget();
    }
}

/// Calls the activity, reads a key of another instance, and writes everything else that is stored.
fn orchestrations() -> OrchestrationRegistry {
    OrchestrationRegistry::builder()
        .register("Test", |ctx: OrchestrationContext, _: String| async move {
            ctx.set_custom_status("working");
            ctx.set_kv_value("key", "value");
            let result = ctx.schedule_activity_on_session("Counted", "", ctx.instance_id()).await?;
            ctx.get_kv_value_from_instance("other", "key").await.ok();
            ctx.schedule_timer(Duration::from_secs(1)).await;
            let child = ctx.schedule_sub_orchestration("Child", "").await?;
            Ok(format!("{}{child}", result.len()))
        })
        .register("WithoutSession", |ctx: OrchestrationContext, _: String| async move {
            ctx.schedule_activity("Counted", "").await
        })
        .register("Child", |_: OrchestrationContext, _: String| async move { Ok("!".to_owned()) })
        .build()
}

/// The default options, with a session lease that is renewed and swept often.
fn options() -> RuntimeOptions {
    RuntimeOptions {
        orchestration_concurrency: 2,
        worker_concurrency: 4,
        session_cleanup_interval: Duration::from_secs(1),
        ..RuntimeOptions::default()
    }
}

/// The options of outages of hours: locks are not the short ones of a stress run, whose renewals would be most of the work.
fn options_of_long_outages() -> RuntimeOptions {
    RuntimeOptions {
        worker_lock_timeout: Duration::from_millis(30_001),
        orchestrator_lock_timeout: Duration::from_millis(30_001),
        ..options()
    }
}

/// A store whose `verbs` fail from the first call of `open` on, for as long as `lasts`.
fn failing_for(
    store: &TestStore,
    verbs: &'static [&'static str],
    error: fn(&'static str) -> ProviderError,
    lasts: Duration,
) -> (Arc<TamperingStore>, Arc<Semaphore>) {
    let begin = Arc::new(Semaphore::new(0));
    let begun = Arc::clone(&begin);
    let mut until: Option<Instant> = None;
    let failing = TamperingStore::new(store.provider(), move |operation| {
        if until.is_none() && begun.available_permits() > 0 {
            until = Some(Instant::now() + lasts);
        }
        let fails = verbs.contains(&operation) && until.is_some_and(|until| Instant::now() < until);
        fails.then(|| error(operation))
    });
    (failing, begin)
}

fn disk_error(operation: &'static str) -> ProviderError {
    ProviderError::retryable(operation, "disk I/O error")
}

/// The output of an instance; calls of the client are repeated until they succeed.
async fn output_of(node: &NodeUnderTest, instance: &str) -> String {
    let began = Instant::now();
    loop {
        match node.client.wait_for_orchestration(instance, END_MAX).await {
            Ok(OrchestrationStatus::Completed { output, .. }) => return output,
            Ok(other) => panic!("{instance} should have completed: {other:?}"),
            Err(error) => {
                assert!(began.elapsed() < END_MAX, "{instance} has not ended: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn start(node: &NodeUnderTest, instance: &str) {
    start_as(node, instance, "Test").await;
}

async fn start_as(node: &NodeUnderTest, instance: &str, orchestration: &str) {
    while node.client.start_orchestration(instance, orchestration, "").await.is_err() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn an_outcome_that_cannot_be_stored_for_two_seconds_is_stored_later_and_the_activity_runs_once(
    store: TestStore,
) {
    let activity = CountedActivity::taking(Duration::from_millis(10));
    let (failing, begin) = failing_for(&store, &["settle_work/end"], disk_error, Duration::from_secs(2));
    let node =
        NodeUnderTest::start(failing.clone(), activity.activities(), orchestrations(), options()).await;
    start(&node, "i").await;
    activity.begins().await;
    begin.add_permits(1);
    assert_eq!(output_of(&node, "i").await, "4!");
    assert_eq!(activity.runs(), 1, "the activity ran again although its lock was held");
    assert!(
        failing.failures().len() > 5,
        "the store should be asked again and again: {:?}",
        failing.failures()
    );
    node.runtime.shutdown(None).await;
}

/// What a malformed index looks like until it is rebuilt.
async fn a_damaged_queue_is_an_outage_until_it_is_repaired(store: TestStore) {
    let activity = CountedActivity::taking(Duration::from_millis(10));
    let damaged = |operation| ProviderError::damaged(operation, "database disk image is malformed");
    let (failing, begin) = failing_for(&store, &["settle_work/end"], damaged, Duration::from_secs(60));
    let node =
        NodeUnderTest::start(failing.clone(), activity.activities(), orchestrations(), options()).await;
    start(&node, "i").await;
    activity.begins().await;
    begin.add_permits(1);
    assert_eq!(output_of(&node, "i").await, "4!");
    assert_eq!(activity.runs(), 1, "the activity ran again although its lock was held");
    node.runtime.shutdown(None).await;
}

async fn a_large_result_on_a_full_disk_is_stored_when_there_is_room_again(store: TestStore) {
    let activity = CountedActivity {
        result: "x".repeat(300 * 1024),
        ..CountedActivity::taking(Duration::from_millis(10))
    };
    let full = |operation| ProviderError::retryable(operation, "database or disk is full");
    let (failing, begin) = failing_for(&store, &["settle_work/large"], full, Duration::from_secs(120));
    let node =
        NodeUnderTest::start(failing.clone(), activity.activities(), orchestrations(), options()).await;
    start(&node, "i").await;
    activity.begins().await;
    begin.add_permits(1);
    assert_eq!(output_of(&node, "i").await, format!("{}!", 300 * 1024));
    assert!(failing.failures().contains(&"settle_work/large"), "the disk was never full");
    assert_eq!(activity.runs(), 1, "the activity ran again although its lock was held");
    node.runtime.shutdown(None).await;
}

async fn short_shutdowns_during_a_long_activity_never_poison_it(store: TestStore) {
    let activity = CountedActivity::taking(Duration::from_secs(5));
    let attempts = RuntimeOptions::default().max_attempts as usize;
    for round in 0..attempts + 2 {
        let node =
            NodeUnderTest::start(store.provider(), activity.activities(), orchestrations(), options()).await;
        if round == 0 {
            node.client.start_orchestration("i", "WithoutSession", "").await.unwrap();
        }
        let began = Instant::now();
        activity.begins().await;
        assert!(began.elapsed() < Duration::from_secs(1), "round {round}: the lock was not released");
        node.runtime.shutdown(Some(50)).await;
    }
    let node =
        NodeUnderTest::start(store.provider(), activity.activities(), orchestrations(), options()).await;
    assert_eq!(output_of(&node, "i").await, "done");
    node.runtime.shutdown(None).await;
}

async fn shutdowns_during_a_turn_never_poison_it(store: TestStore) {
    let attempts = RuntimeOptions::default().max_attempts as usize;
    let activity = CountedActivity::taking(Duration::ZERO);
    for round in 0..attempts + 2 {
        // The commit is tried until the shutdown aborts it.
        let failing = TamperingStore::new(store.provider(), |operation| {
            (operation == "commit_turn").then(|| disk_error(operation))
        });
        let node =
            NodeUnderTest::start(failing.clone(), activity.activities(), orchestrations(), options()).await;
        if round == 0 {
            start(&node, "i").await;
        }
        let began = Instant::now();
        while failing.count("commit_turn") == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(began.elapsed() < Duration::from_secs(1), "round {round}: the lock was not released");
        node.runtime.shutdown(Some(50)).await;
    }
    let node =
        NodeUnderTest::start(store.provider(), activity.activities(), orchestrations(), options()).await;
    assert_eq!(output_of(&node, "i").await, "4!");
    node.runtime.shutdown(None).await;
}

/// Longer than the lock of an activity, which is 30 s.
const LONG_ACTIVITY: Duration = Duration::from_secs(40);
/// Ends while its lock is held, even if that is not renewed.
const SHORT_ACTIVITY: Duration = Duration::from_secs(20);

/// Runs an instance with a long activity. Its activity begins, then `verbs` fail.
async fn runs_during_an_outage(store: &TestStore, verbs: &'static [&'static str], lasts: Duration) -> usize {
    runs_of("Test", LONG_ACTIVITY, store, verbs, lasts).await
}

async fn runs_of(
    orchestration: &str,
    takes: Duration,
    store: &TestStore,
    verbs: &'static [&'static str],
    lasts: Duration,
) -> usize {
    let activity = CountedActivity::taking(takes);
    let (failing, begin) = failing_for(store, verbs, disk_error, lasts);
    // Not the default, so that the times below hold in a stress run, too.
    let options = RuntimeOptions { worker_lock_timeout: Duration::from_millis(30_001), ..options() };
    let node = NodeUnderTest::start(failing.clone(), activity.activities(), orchestrations(), options).await;
    let instance = format!("{orchestration} during {verbs:?} for {lasts:?}");
    node.client.start_orchestration(&instance, orchestration, "").await.unwrap();
    activity.begins().await;
    // The lock is renewed after 25 s, and the outcome is stored after 40 s: both fall into an outage that begins now or,
    // if it is short, just before them.
    if lasts < Duration::from_secs(20) {
        let renewed = verbs.iter().any(|verb| verb.starts_with("renew"));
        tokio::time::sleep(Duration::from_secs(if renewed { 24 } else { 39 })).await;
    }
    begin.add_permits(1);
    // A client's call, and a turn, that fall into the outage, too.
    start_as(&node, &format!("{instance}, another"), "Child").await;
    let output = output_of(&node, &instance).await;
    assert!(output == "4!" || output == "done", "{instance}: {output}");
    let failures = failing.failures();
    for verb in verbs {
        assert!(failures.contains(verb), "{instance}: {verb} was not called while it failed");
    }
    node.runtime.shutdown(None).await;
    activity.runs()
}

/// The lock can neither be kept nor abandoned, so the store counts an attempt each time. No session holds the activity back.
async fn attempts_that_cannot_be_taken_back_do_not_count(store: TestStore) {
    let verbs: &[&str] = &["renew/locks", "settle_work/abandon"];
    runs_of("WithoutSession", LONG_ACTIVITY, &store, verbs, Duration::from_secs(900)).await;
}

/// The attempts that one runtime could not take back must not poison the activity when another one fetches it.
async fn attempts_that_cannot_be_taken_back_do_not_count_whichever_runtime_fetches_next(store: TestStore) {
    let activity = CountedActivity::taking(Duration::from_secs(40));
    let verbs: &[&str] = &["renew/locks", "settle_work/abandon"];
    let (failing, begin) = failing_for(&store, verbs, disk_error, Duration::from_secs(1_200));
    let options = RuntimeOptions { worker_lock_timeout: Duration::from_millis(30_001), ..options() };
    let start_node =
        || NodeUnderTest::start(failing.clone(), activity.activities(), orchestrations(), options.clone());
    let (one, other) = (start_node().await, start_node().await);
    one.client.start_orchestration("i", "WithoutSession", "").await.unwrap();
    activity.begins().await;
    begin.add_permits(1);
    assert_eq!(output_of(&one, "i").await, "done");
    let attempts = RuntimeOptions::default().max_attempts as usize;
    assert!(activity.runs() > 2 * attempts, "both runtimes should have tried: {} runs", activity.runs());
    one.runtime.shutdown(None).await;
    other.runtime.shutdown(None).await;
}

async fn an_outcome_that_cannot_be_stored_for_hours_poisons_nothing(store: TestStore) {
    let activity = CountedActivity::taking(Duration::from_secs(1));
    let (failing, begin) =
        failing_for(&store, &["settle_work/end"], disk_error, Duration::from_secs(3 * 3_600));
    let options = options_of_long_outages();
    let node = NodeUnderTest::start(failing.clone(), activity.activities(), orchestrations(), options).await;
    start_as(&node, "i", "WithoutSession").await;
    activity.begins().await;
    begin.add_permits(1);
    assert_eq!(output_of(&node, "i").await, "done");
    let attempts = RuntimeOptions::default().max_attempts as usize;
    assert!(activity.runs() > attempts, "the slot should serve others in between: {} runs", activity.runs());
    node.runtime.shutdown(None).await;
}

async fn a_turn_that_cannot_be_committed_for_hours_leaves_its_place_to_others_and_poisons_nothing(
    store: TestStore,
) {
    let activity = CountedActivity::taking(Duration::from_secs(1));
    let (failing, begin) = failing_for(&store, &["commit_turn"], disk_error, Duration::from_secs(3 * 3_600));
    let options = options_of_long_outages();
    let node = NodeUnderTest::start(failing.clone(), activity.activities(), orchestrations(), options).await;
    begin.add_permits(1);
    start_as(&node, "i", "WithoutSession").await;
    assert_eq!(output_of(&node, "i").await, "done");
    let attempts = RuntimeOptions::default().max_attempts as usize;
    let abandoned = failing.count("abandon_turn");
    assert!(abandoned > attempts, "its lock should be abandoned from time to time: {abandoned} times");
    node.runtime.shutdown(None).await;
}

async fn a_verb_that_fails_for_three_seconds_repeats_no_activity(store: TestStore) {
    for verb in &VERBS {
        let runs = runs_during_an_outage(&store, std::slice::from_ref(verb), Duration::from_secs(3)).await;
        assert_eq!(runs, 1, "{verb} failed, and the activity ran again");
    }
}

async fn a_verb_that_fails_for_ten_minutes_poisons_nothing(store: TestStore) {
    for verb in &VERBS {
        let runs = runs_during_an_outage(&store, std::slice::from_ref(verb), Duration::from_secs(600)).await;
        // A lock that cannot be renewed is lost, whatever else works.
        assert!(runs == 1 || *verb == "renew/locks", "{verb} failed, and the activity ran {runs} times");
    }
}

/// The lock cannot be kept, and what was done under it cannot be stored: the work is done again and again.
async fn verbs_that_fail_together_with_the_renewals_poison_nothing(store: TestStore) {
    let together: [(&[&str], Duration); 3] = [
        (&["renew/locks", "commit_turn"], LONG_ACTIVITY),
        (&["renew/locks", "settle_work/end"], SHORT_ACTIVITY),
        (&["renew/locks", "commit_turn", "read_execution"], LONG_ACTIVITY),
    ];
    for (verbs, takes) in together {
        runs_of("Test", takes, &store, verbs, Duration::from_secs(600)).await;
    }
}
