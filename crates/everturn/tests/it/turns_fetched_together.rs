//! Instances that one fetch brings share a slot: its task, its permit and its end.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use everturn::providers::store::{Feature, FetchedTurn, Store, StoreLayer, TurnAbandon, TurnFetch};
use everturn::providers::{ProviderError, store_of};
use everturn::runtime::registry::{ActivityRegistry, OrchestrationRegistry};
use everturn::{ActivityContext, Client, OrchestrationContext, RuntimeOptions};
use tokio::sync::Notify;

use crate::fused_steps::CountsSteps;
use crate::node_under_test::{NodeUnderTest, memory, quick, until};
use crate::stores::TestStore;

fn no_activities() -> ActivityRegistry {
    ActivityRegistry::builder().build()
}

/// Answers a fetch of turns only when the test says so, and never answers that an instance was abandoned.
struct StopsInTheMiddle {
    inner: Arc<dyn Store>,
    fetched: Notify,
    answers: Notify,
    abandons: AtomicUsize,
}

impl StoreLayer for StopsInTheMiddle {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn supports(&self, feature: Feature) -> bool {
        self.inner.supports(feature)
    }

    async fn fetch_turns(&self, fetch: &TurnFetch) -> Result<Vec<FetchedTurn>, ProviderError> {
        let turns = self.inner.fetch_turns(fetch).await?;
        if !turns.is_empty() {
            self.fetched.notify_one();
            self.answers.notified().await;
        }
        Ok(turns)
    }

    async fn abandon_turn(&self, abandon: &TurnAbandon) -> Result<(), ProviderError> {
        if self.abandons.fetch_add(1, Ordering::SeqCst) == 0 {
            std::future::pending::<()>().await;
        }
        self.inner.abandon_turn(abandon).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_counts_no_attempt_of_turns_that_were_just_fetched() {
    let kept = TestStore::memory_in_paused_time();
    let provider = kept.provider();
    let client = Client::new(provider.clone());
    for instance in ["a", "b", "c"] {
        client.start_orchestration(instance, "Waits", "").await.unwrap();
    }
    let store = Arc::new(StopsInTheMiddle {
        inner: store_of(provider.clone()),
        fetched: Notify::new(),
        answers: Notify::new(),
        abandons: AtomicUsize::new(0),
    });
    let waits = OrchestrationRegistry::builder()
        .register("Waits", |ctx: OrchestrationContext, _: String| async move {
            Ok(ctx.schedule_wait("never").await)
        })
        .build();
    let options = RuntimeOptions { orchestration_concurrency: 1, ..quick() };
    let node = NodeUnderTest::start(store.clone(), no_activities(), waits, options).await;
    store.fetched.notified().await;
    // The answer and the end of the runtime come at the same moment.
    store.answers.notify_one();
    // Less than a lock under stress settings: a turn whose lock has expired is not there with its attempt taken back.
    node.runtime.shutdown(Some(50)).await;
    let fetch = TurnFetch::new(Duration::from_secs(30), Duration::ZERO).with_turns_max(16);
    let turns = store_of(provider).fetch_turns(&fetch).await.unwrap();
    let attempts: Vec<(String, u32)> =
        turns.into_iter().map(|turn| (turn.item.instance, turn.attempt_count)).collect();
    let expected = ["a", "b", "c"].map(|instance| (instance.to_owned(), 1));
    assert_eq!(attempts, expected, "each is there at once, and no attempt counts");
}

#[tokio::test]
async fn code_that_computes_does_not_cost_the_locks_of_the_turns_behind_it() {
    const INSTANCES: usize = 16;
    let provider = memory();
    let client = Client::new(provider.clone());
    for instance in 0..INSTANCES {
        client.start_orchestration(format!("i{instance}"), "Computes", "").await.unwrap();
    }
    let runs = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&runs);
    let computes = OrchestrationRegistry::builder()
        .register("Computes", move |_ctx: OrchestrationContext, _: String| {
            counted.fetch_add(1, Ordering::SeqCst);
            async {
                // On the only thread that there is.
                std::thread::sleep(Duration::from_millis(150));
                Ok(String::new())
            }
        })
        .build();
    // All of them take longer than a lock lasts, and renewals come between them.
    let options = RuntimeOptions {
        orchestration_concurrency: 1,
        orchestrator_lock_timeout: Duration::from_millis(1_200),
        ..quick()
    };
    let node = NodeUnderTest::start(provider, no_activities(), computes, options).await;
    for instance in 0..INSTANCES {
        node.output_of(&format!("i{instance}")).await;
    }
    assert_eq!(runs.load(Ordering::SeqCst), INSTANCES, "no turn was taken again because its lock had ended");
    node.runtime.shutdown(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn turns_behind_code_that_does_not_return_are_taken_by_others() {
    let blocked = Arc::<Door>::default();
    let _open_at_the_end = OpenAtTheEnd(vec![Arc::clone(&blocked)]);
    let (provider, door) = (memory(), Arc::clone(&blocked));
    let orchestrations = OrchestrationRegistry::builder()
        .register("Blocks", move |_ctx: OrchestrationContext, _: String| {
            let door = Arc::clone(&door);
            async move {
                door.pass();
                Ok(String::new())
            }
        })
        .register("Ends", |_ctx: OrchestrationContext, _: String| async { Ok(String::new()) })
        .build();
    let client = Client::new(provider.clone());
    for (instance, orchestration) in [("b", "Blocks"), ("e1", "Ends"), ("e2", "Ends")] {
        client.start_orchestration(instance, orchestration, "").await.unwrap();
    }
    let options = |orchestration_concurrency| RuntimeOptions {
        orchestration_concurrency,
        orchestrator_lock_timeout: Duration::from_millis(600),
        // An attempt too many is poison.
        max_attempts: 1,
        ..quick()
    };
    let start = |slots| {
        NodeUnderTest::start(provider.clone(), no_activities(), orchestrations.clone(), options(slots))
    };
    let blocks = start(1).await;
    until("its slot blocks", async || blocked.waiting.load(Ordering::SeqCst) == 1).await;
    let other = start(2).await;
    for instance in ["e1", "e2"] {
        other.output_of(instance).await;
    }
    blocked.open();
    blocks.output_of("b").await;
    other.runtime.shutdown(None).await;
    blocks.runtime.shutdown(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_outcome_is_stored_although_no_turn_may_run() {
    let blocked = Arc::<Door>::default();
    let _open_at_the_end = OpenAtTheEnd(vec![Arc::clone(&blocked)]);
    let (door, (begun, may_end)) =
        (Arc::clone(&blocked), (Arc::<Notify>::default(), Arc::<Notify>::default()));
    let (begins, waits) = (Arc::clone(&begun), Arc::clone(&may_end));
    let orchestrations = OrchestrationRegistry::builder()
        .register("Blocks", move |_ctx: OrchestrationContext, _: String| {
            let door = Arc::clone(&door);
            async move {
                door.pass();
                Ok(String::new())
            }
        })
        .register("Calls", |ctx: OrchestrationContext, _: String| async move {
            ctx.schedule_activity("Ends", "").await
        })
        .build();
    let activities = ActivityRegistry::builder()
        .register("Ends", move |_ctx: ActivityContext, input: String| {
            let (begins, waits) = (Arc::clone(&begins), Arc::clone(&waits));
            async move {
                begins.notify_one();
                waits.notified().await;
                Ok(input)
            }
        })
        .build();
    let options = RuntimeOptions { orchestration_concurrency: 1, warm_instances_max: 100, ..quick() };
    let store = CountsSteps::around(memory());
    let node = NodeUnderTest::start(store.clone(), activities, orchestrations, options).await;
    node.client.start_orchestration("calls", "Calls", "").await.unwrap();
    begun.notified().await;
    node.client.start_orchestration("b", "Blocks", "").await.unwrap();
    until("the only turn that may run blocks", async || blocked.waiting.load(Ordering::SeqCst) == 1).await;
    may_end.notify_one();
    until("the outcome is stored", async || store.stored() == 1).await;
    assert_eq!(blocked.waiting.load(Ordering::SeqCst), 1, "while the turn still blocks");
    blocked.open();
    node.output_of("calls").await;
    node.runtime.shutdown(None).await;
}

/// A door that blocks threads until it is opened.
#[derive(Default)]
struct Door {
    is_open: Mutex<bool>,
    opened: Condvar,
    waiting: AtomicUsize,
}

impl Door {
    fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.opened.notify_all();
    }

    fn pass(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        drop(self.opened.wait_while(self.is_open.lock().unwrap(), |open| !*open).unwrap());
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Opens all doors when the test ends, also if it fails: the threads of the async runtime are waited for.
struct OpenAtTheEnd(Vec<Arc<Door>>);

impl Drop for OpenAtTheEnd {
    fn drop(&mut self) {
        self.0.iter().for_each(|door| door.open());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn a_slot_whose_code_blocks_holds_no_permit_of_another_turn() {
    let (steps, blocked) = (Arc::<Door>::default(), Arc::<Door>::default());
    let _open_at_the_end = OpenAtTheEnd(vec![Arc::clone(&steps), Arc::clone(&blocked)]);
    let (in_step, in_turn) = (Arc::clone(&steps), Arc::clone(&blocked));
    let orchestrations = OrchestrationRegistry::builder()
        .register("BlocksInStep", move |ctx: OrchestrationContext, _: String| {
            let door = Arc::clone(&in_step);
            async move {
                ctx.schedule_activity("Echo", "").await?;
                door.pass();
                ctx.schedule_activity("Echo", "").await
            }
        })
        .register("Blocks", move |_ctx: OrchestrationContext, _: String| {
            let door = Arc::clone(&in_turn);
            async move {
                door.pass();
                Ok(String::new())
            }
        })
        .register("Ends", |_ctx: OrchestrationContext, _: String| async { Ok(String::new()) })
        .build();
    let echo = ActivityRegistry::builder()
        .register("Echo", |_ctx: ActivityContext, input: String| async move { Ok(input) })
        .build();
    let options = RuntimeOptions { orchestration_concurrency: 2, warm_instances_max: 1_000, ..quick() };
    let node = NodeUnderTest::start(memory(), echo, orchestrations, options).await;
    // Two steps hold both permits.
    for instance in ["s1", "s2"] {
        node.client.start_orchestration(instance, "BlocksInStep", "").await.unwrap();
    }
    until("both steps block", async || steps.waiting.load(Ordering::SeqCst) == 2).await;
    // Whichever slot takes it has the first of its turns block; the other turns wait behind it or in the other slot.
    node.client.start_orchestration("b", "Blocks", "").await.unwrap();
    for instance in 0..8 {
        node.client.start_orchestration(format!("e{instance}"), "Ends", "").await.unwrap();
    }
    steps.open();
    until("the turn blocks", async || blocked.waiting.load(Ordering::SeqCst) == 1).await;
    // Both steps go on although a slot is blocked with turns behind.
    for instance in ["s1", "s2"] {
        node.output_of(instance).await;
    }
    blocked.open();
    for instance in 0..8 {
        node.output_of(&format!("e{instance}")).await;
    }
    node.runtime.shutdown(None).await;
}
