//! Sessions keep activities on one worker.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use everturn::runtime::registry::{ActivityRegistry, OrchestrationRegistry};
use everturn::{ActivityContext, EventKind, OrchestrationContext, RuntimeOptions};
use tokio::sync::{Barrier, Semaphore};

use crate::node_under_test::{NodeUnderTest, quick, until};
use crate::stores::{TestStore, on_every_store};

on_every_store!(
    activities_of_a_session_stay_on_the_node_that_had_the_first,
    slots_of_a_named_node_share_a_session_and_run_it_in_parallel,
    without_a_node_id_a_session_is_serialised_on_one_slot,
    a_session_outlives_continue_as_new,
    a_session_of_a_stopped_owner_moves_when_its_lease_expires,
    an_idle_session_moves_to_a_free_worker,
    a_session_is_part_of_the_recorded_call,
);

/// Every run: its input and the id of its worker.
#[derive(Clone, Default)]
struct SessionRuns(Arc<Mutex<Vec<(String, String)>>>);

impl SessionRuns {
    fn activities(&self) -> ActivityRegistry {
        let runs = self.clone();
        ActivityRegistry::builder()
            .register("Work", move |ctx: ActivityContext, input: String| {
                let runs = runs.clone();
                async move {
                    runs.0.lock().unwrap().push((input.clone(), ctx.worker_id().to_owned()));
                    Ok(input)
                }
            })
            .build()
    }

    /// The node of each run, in order.
    fn nodes(&self) -> Vec<String> {
        let runs = self.0.lock().unwrap();
        runs.iter().map(|(_, worker)| worker.splitn(3, '-').nth(2).unwrap().to_owned()).collect()
    }

    fn workers(&self) -> BTreeSet<String> {
        self.0.lock().unwrap().iter().map(|(_, worker)| worker.clone()).collect()
    }
}

fn orchestrations() -> OrchestrationRegistry {
    OrchestrationRegistry::builder()
        .register("InTurn", |ctx: OrchestrationContext, calls: String| async move {
            let calls: u32 = calls.parse().map_err(|_| "a number")?;
            for call in 0..calls {
                ctx.schedule_activity_on_session("Work", call.to_string(), "s").await?;
            }
            Ok(String::new())
        })
        .register("AtOnce", |ctx: OrchestrationContext, calls: String| async move {
            let calls: u32 = calls.parse().map_err(|_| "a number")?;
            let calls =
                (0..calls).map(|call| ctx.schedule_activity_on_session("Work", call.to_string(), "s"));
            for result in ctx.join(calls.collect()).await {
                result?;
            }
            Ok(String::new())
        })
        .register("Continues", |ctx: OrchestrationContext, round: String| async move {
            ctx.schedule_activity_on_session("Work", round.clone(), "s").await?;
            if round.len() < 6 { ctx.continue_as_new(format!("{round}+")).await } else { Ok(round) }
        })
        .build()
}

fn named(node: &str) -> RuntimeOptions {
    RuntimeOptions { worker_node_id: Some(node.to_owned()), ..quick() }
}

async fn activities_of_a_session_stay_on_the_node_that_had_the_first(store: TestStore) {
    let runs = SessionRuns::default();
    let one = NodeUnderTest::start(store.provider(), runs.activities(), orchestrations(), named("one")).await;
    let other =
        NodeUnderTest::start(store.provider(), runs.activities(), orchestrations(), named("other")).await;
    one.client.start_orchestration("i", "InTurn", "12").await.unwrap();
    one.output_of("i").await;
    let nodes = runs.nodes();
    assert_eq!(nodes.len(), 12);
    assert!(nodes.iter().all(|node| *node == nodes[0]), "{nodes:?}");
    one.runtime.shutdown(None).await;
    other.runtime.shutdown(None).await;
}

async fn slots_of_a_named_node_share_a_session_and_run_it_in_parallel(store: TestStore) {
    let barrier = Arc::new(Barrier::new(3));
    let activities = ActivityRegistry::builder()
        .register("Work", move |_ctx, input: String| {
            let barrier = Arc::clone(&barrier);
            async move {
                // Only three activities at once pass the barrier.
                barrier.wait().await;
                Ok(input)
            }
        })
        .build();
    let node = NodeUnderTest::start(store.provider(), activities, orchestrations(), named("one")).await;
    node.client.start_orchestration("i", "AtOnce", "3").await.unwrap();
    node.output_of("i").await;
    node.runtime.shutdown(None).await;
}

async fn without_a_node_id_a_session_is_serialised_on_one_slot(store: TestStore) {
    let runs = SessionRuns::default();
    let node = NodeUnderTest::start(store.provider(), runs.activities(), orchestrations(), quick()).await;
    node.client.start_orchestration("i", "AtOnce", "12").await.unwrap();
    node.output_of("i").await;
    // One slot runs one activity at a time.
    assert_eq!(runs.workers().len(), 1, "{:?}", runs.workers());
    let inputs: Vec<String> = runs.0.lock().unwrap().iter().map(|(input, _)| input.clone()).collect();
    let expected: Vec<String> = (0..12).map(|call| call.to_string()).collect();
    assert_eq!(inputs, expected, "in order");
    node.runtime.shutdown(None).await;
}

async fn a_session_outlives_continue_as_new(store: TestStore) {
    let runs = SessionRuns::default();
    let one = NodeUnderTest::start(store.provider(), runs.activities(), orchestrations(), quick()).await;
    let other = NodeUnderTest::start(store.provider(), runs.activities(), orchestrations(), quick()).await;
    one.client.start_orchestration("i", "Continues", "").await.unwrap();
    assert_eq!(one.output_of("i").await, "++++++");
    assert_eq!(runs.workers().len(), 1, "{:?}", runs.workers());
    one.runtime.shutdown(None).await;
    other.runtime.shutdown(None).await;
}

async fn a_session_of_a_stopped_owner_moves_when_its_lease_expires(store: TestStore) {
    let (store, clock) = store.with_manual_clock().await;
    let runs = SessionRuns::default();
    let one = NodeUnderTest::start(store.provider(), runs.activities(), orchestrations(), named("one")).await;
    one.client.start_orchestration("i", "InTurn", "1").await.unwrap();
    one.output_of("i").await;
    one.runtime.shutdown(None).await;

    let other =
        NodeUnderTest::start(store.provider(), runs.activities(), orchestrations(), named("other")).await;
    other.client.start_orchestration("j", "InTurn", "1").await.unwrap();
    other.committed("j").await;
    clock.advance(Duration::from_secs(29));
    let waiting = other.client.get_queue_depths().await.unwrap().worker_queue;
    assert_eq!((waiting, runs.nodes().len()), (1, 1), "the lease is alive");
    clock.advance(Duration::from_secs(1));
    other.output_of("j").await;
    assert_eq!(runs.nodes(), ["one", "other"]);
    other.runtime.shutdown(None).await;
}

/// The owner runs, but its only slot is busy. Without the idle timeout the session would wait for that slot.
async fn an_idle_session_moves_to_a_free_worker(store: TestStore) {
    let (runs, gate, busy) =
        (SessionRuns::default(), Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (opened, entered) = (Arc::clone(&gate), Arc::clone(&busy));
    let with_gate = ActivityRegistry::builder()
        .merge(runs.activities())
        .register("Block", move |_ctx, input: String| {
            let (gate, busy) = (Arc::clone(&opened), Arc::clone(&entered));
            async move {
                busy.add_permits(1);
                gate.acquire().await.unwrap().forget();
                Ok(input)
            }
        })
        .build();
    let blocks = OrchestrationRegistry::builder_from(&orchestrations())
        .register("Blocks", |ctx: OrchestrationContext, _: String| async move {
            ctx.schedule_activity("Block", "").await
        })
        .build();
    let short = |node: &str| RuntimeOptions {
        worker_concurrency: 1,
        session_lock_timeout: Duration::from_millis(200),
        worker_lock_timeout: Duration::from_millis(400),
        worker_lock_renewal_buffer: Duration::from_millis(300),
        session_idle_timeout: Duration::from_millis(150),
        ..named(node)
    };
    let one = NodeUnderTest::start(store.provider(), with_gate, blocks.clone(), short("one")).await;
    one.client.start_orchestration("i", "InTurn", "1").await.unwrap();
    one.output_of("i").await;
    one.client.start_orchestration("block", "Blocks", "").await.unwrap();
    busy.acquire().await.unwrap().forget();

    let other = NodeUnderTest::start(store.provider(), runs.activities(), blocks, short("other")).await;
    other.client.start_orchestration("j", "InTurn", "1").await.unwrap();
    other.output_of("j").await;
    assert_eq!(runs.nodes(), ["one", "other"]);
    gate.add_permits(1);
    one.output_of("block").await;
    one.runtime.shutdown(None).await;
    other.runtime.shutdown(None).await;
}

async fn a_session_is_part_of_the_recorded_call(store: TestStore) {
    let runs = SessionRuns::default();
    let node = NodeUnderTest::start(store.provider(), runs.activities(), orchestrations(), quick()).await;
    node.client.start_orchestration("i", "InTurn", "1").await.unwrap();
    node.output_of("i").await;
    until("it is stored", async || node.history("i", 1).await.len() == 4).await;
    let history = node.history("i", 1).await;
    assert!(matches!(&history[1].kind,
        EventKind::ActivityScheduled { session_id: Some(session), .. } if session == "s"));
    node.runtime.shutdown(None).await;
}
