//! A destructor in orchestration code that blocks holds up the runtime that runs it, with bounded memory, and no other.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use everturn::runtime::registry::{ActivityRegistry, OrchestrationRegistry};
use everturn::{OrchestrationContext, RuntimeOptions};
use everturn_core::limits::{MAX_DEFERRED_DROPS, MAX_TURNS_IN_HAND};

use crate::node_under_test::{NodeUnderTest, memory, quick, until};

/// Destructors wait until it is open.
#[derive(Default)]
struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.opened.notify_all();
    }
}

/// Opens the gate when the test ends, also if it fails: the threads of the async runtime are waited for.
struct OpenAtTheEnd(Arc<Gate>);

impl Drop for OpenAtTheEnd {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// Blocks in its destructor. It is counted while it exists.
struct BlocksWhenDropped {
    gate: Arc<Gate>,
    alive: Arc<AtomicUsize>,
}

impl Drop for BlocksWhenDropped {
    fn drop(&mut self) {
        let opened = self.gate.opened.wait_while(self.gate.is_open.lock().unwrap(), |open| !*open);
        drop(opened.unwrap());
        self.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

/// An orchestration that waits for ever and holds what `held` makes.
fn waiting<T: Send + 'static>(held: impl Fn() -> T + Send + Sync + 'static) -> OrchestrationRegistry {
    OrchestrationRegistry::builder()
        .register("Waits", move |ctx: OrchestrationContext, _: String| {
            let held = held();
            async move {
                let event = ctx.schedule_wait("never").await;
                drop(held);
                Ok(event)
            }
        })
        .build()
}

async fn start_all(node: &NodeUnderTest, ids: impl Iterator<Item = usize>) {
    for id in ids {
        node.client.start_orchestration(format!("i{id}"), "Waits", "").await.unwrap();
    }
}

/// Waits until so many instances have committed their first turn.
async fn until_committed(node: &NodeUnderTest, count: usize) {
    until("every first turn is committed", async || {
        let metrics = node.client.get_system_metrics().await.unwrap();
        metrics.total_events >= 2 * count as u64
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn turns_are_not_fetched_while_too_many_executions_wait_to_be_dropped() {
    let (store, gate, alive) = (memory(), Arc::<Gate>::default(), Arc::<AtomicUsize>::default());
    let _open_at_the_end = OpenAtTheEnd(Arc::clone(&gate));
    let held = {
        let (gate, alive) = (Arc::clone(&gate), Arc::clone(&alive));
        move || {
            alive.fetch_add(1, Ordering::SeqCst);
            BlocksWhenDropped { gate: Arc::clone(&gate), alive: Arc::clone(&alive) }
        }
    };
    // Nothing stays in memory: every execution is dropped after its turn.
    let options = RuntimeOptions { warm_instances_max: 0, ..quick() };
    // What the slots may have fetched before the limit was reached, beside what they had in hand.
    let in_hand = options.orchestration_concurrency * 2 * MAX_TURNS_IN_HAND;
    let no_activities = || ActivityRegistry::builder().build();
    let blocked =
        NodeUnderTest::start(Arc::clone(&store) as _, no_activities(), waiting(held), options).await;
    start_all(&blocked, 0..MAX_DEFERRED_DROPS).await;
    until_committed(&blocked, MAX_DEFERRED_DROPS).await;

    // The blocked runtime is idle and would take these at once.
    let more = 2 * in_hand;
    start_all(&blocked, MAX_DEFERRED_DROPS..MAX_DEFERRED_DROPS + more).await;
    let other = NodeUnderTest::start(Arc::clone(&store) as _, no_activities(), waiting(|| ()), quick()).await;
    until_committed(&other, MAX_DEFERRED_DROPS + more).await;
    let held = alive.load(Ordering::SeqCst);
    assert!(
        held <= MAX_DEFERRED_DROPS + in_hand,
        "{held} executions wait to be dropped; the slots may have fetched {in_hand} above {MAX_DEFERRED_DROPS}"
    );

    other.runtime.shutdown(None).await;
    gate.open();
    until("all are dropped", async || alive.load(Ordering::SeqCst) == 0).await;
    let last = MAX_DEFERRED_DROPS + more;
    start_all(&blocked, last..=last).await;
    until_committed(&blocked, last + 1).await;
    blocked.runtime.shutdown(None).await;
}
