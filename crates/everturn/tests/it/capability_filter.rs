//! Which executions a runtime accepts, by the engine version that started them.

use std::sync::Arc;
use std::time::Duration;

use everturn::providers::{ManualClock, Provider};
use everturn::runtime::registry::OrchestrationRegistry;
use everturn::{
    DispatcherCapabilityFilter, ErrorDetails, EventKind, OrchestrationContext, RuntimeOptions, SemverRange,
    current_build_version,
};
use everturn_provider::MemoryProvider;
use semver::Version;
use tracing::Level;

use crate::log_lines::LogLines;
use crate::node_under_test::{NodeUnderTest, echo, memory, quick, until};
use crate::stores::{TestStore, on_every_store};
use crate::tampering_store::TamperingStore;

on_every_store!(
    an_execution_outside_the_range_is_left_untouched,
    both_ends_of_the_range_belong_to_it,
    every_execution_is_pinned_to_the_build_that_began_it,
);

fn orchestrations() -> OrchestrationRegistry {
    OrchestrationRegistry::builder()
        .register(
            "Waits",
            |ctx: OrchestrationContext, _: String| async move { Ok(ctx.schedule_wait("go").await) },
        )
        .register("Echo", |_: OrchestrationContext, input: String| async move { Ok(input) })
        .register("Family", |ctx: OrchestrationContext, input: String| async move {
            if input == "second" {
                return ctx.schedule_sub_orchestration_with_id("Waits", "child", "").await;
            }
            ctx.continue_as_new("second").await
        })
        .build()
}

fn range(min: &str, max: &str) -> SemverRange {
    SemverRange::new(min.parse().unwrap(), max.parse().unwrap())
}

fn future() -> SemverRange {
    range("900.0.0", "901.0.0")
}

fn supporting(range: SemverRange) -> RuntimeOptions {
    RuntimeOptions { supported_replay_versions: Some(range), ..quick() }
}

async fn waiting(store: Arc<dyn Provider>) {
    let node = NodeUnderTest::start(store, echo(), orchestrations(), quick()).await;
    node.client.start_orchestration("i", "Waits", "").await.unwrap();
    node.committed("i").await;
    node.runtime.shutdown(None).await;
}

async fn an_execution_outside_the_range_is_left_untouched(store: TestStore) {
    waiting(store.provider()).await;
    let other = NodeUnderTest::start(store.provider(), echo(), orchestrations(), supporting(future())).await;
    other.client.raise_event("i", "go", "x").await.unwrap();
    // New work has no pin, so it is taken; the older message is skipped.
    other.client.start_orchestration("new", "Echo", "y").await.unwrap();
    assert_eq!(other.output_of("new").await, "y");
    assert_eq!(other.history("i", 1).await.len(), 2);
    other.runtime.shutdown(None).await;
    let (_, _, attempts) = fetch(&store, None).await.expect("the message waits, unlocked");
    assert_eq!(attempts, 1, "it was never fetched before");
}

async fn both_ends_of_the_range_belong_to_it(store: TestStore) {
    waiting(store.provider()).await;
    let current = current_build_version();
    let exactly = SemverRange::new(current.clone(), current);
    let node = NodeUnderTest::start(store.provider(), echo(), orchestrations(), supporting(exactly)).await;
    node.client.raise_event("i", "go", "x").await.unwrap();
    assert_eq!(node.output_of("i").await, "x");
    node.runtime.shutdown(None).await;
}

type Fetched = Option<(everturn::providers::OrchestrationItem, String, u32)>;

async fn fetch(store: &TestStore, range: Option<SemverRange>) -> Fetched {
    let filter = range.map(|range| DispatcherCapabilityFilter { supported_engine_versions: vec![range] });
    let lock = Duration::from_secs(5);
    store.provider().fetch_orchestration_item(lock, Duration::ZERO, filter.as_ref()).await.unwrap()
}

async fn every_execution_is_pinned_to_the_build_that_began_it(store: TestStore) {
    let node = NodeUnderTest::start(store.provider(), echo(), orchestrations(), quick()).await;
    node.client.start_orchestration("i", "Family", "").await.unwrap();
    node.committed("child").await;
    until("the queue is empty", async || {
        node.client.get_queue_depths().await.unwrap().orchestrator_queue == 0
    })
    .await;
    node.runtime.shutdown(None).await;
    for instance in ["i", "child"] {
        node.client.cancel_instance(instance, "").await.unwrap();
        assert!(fetch(&store, Some(future())).await.is_none(), "{instance}");
        let current = current_build_version();
        let (item, ..) = fetch(&store, Some(SemverRange::new(Version::new(0, 0, 0), current))).await.unwrap();
        assert_eq!(item.instance, instance);
    }
}

#[tokio::test]
async fn the_range_is_logged_at_the_start() {
    let (lines, _guard) = LogLines::capture();
    let current = current_build_version();
    for (options, text) in [
        (quick(), format!(">=0.0.0, <={current}")),
        (supporting(range("1.2.3", "4.5.6")), ">=1.2.3, <=4.5.6".to_owned()),
    ] {
        let node = NodeUnderTest::start(memory(), echo(), orchestrations(), options).await;
        let line = lines.containing("replaying executions").pop().unwrap();
        assert_eq!((line.level, line.target.as_str()), (Level::INFO, "everturn::runtime"));
        assert_eq!(line.field("supported_range"), text);
        node.runtime.shutdown(None).await;
    }
}

/// On a store that does not filter, the runtime refuses the execution itself. After all attempts the instance is poisoned.
#[tokio::test]
async fn a_refused_execution_is_logged_and_ends_as_poison() {
    let (lines, _guard) = LogLines::capture();
    let clock = Arc::new(ManualClock::new(1_000_000));
    let store = Arc::new(MemoryProvider::with_clock(clock.clone()));
    waiting(store.clone()).await;
    let options = RuntimeOptions { max_attempts: 2, ..supporting(future()) };
    let unfiltered = TamperingStore::ignoring_filters(store);
    let node = NodeUnderTest::start(unfiltered, echo(), orchestrations(), options).await;
    node.client.raise_event("i", "go", "x").await.unwrap();
    for attempt in 1..=2 {
        until("it is refused", async || lines.containing("incompatible version").len() == attempt).await;
        let line = lines.containing("incompatible version").pop().unwrap();
        assert_eq!((line.level, line.target.as_str()), (Level::WARN, "everturn::runtime"));
        assert_eq!(line.field("instance_id"), "i");
        assert_eq!(line.field("pinned_version"), current_build_version().to_string());
        assert_eq!(line.field("supported_range"), ">=900.0.0, <=901.0.0");
        assert_eq!(line.field("attempt_count"), attempt.to_string());
        until("it is abandoned for a second", async || {
            let depths = node.client.get_queue_depths().await.unwrap();
            depths.orchestrator_queue == 1
        })
        .await;
        assert_eq!(node.history("i", 1).await.len(), 2, "nothing is recorded");
        clock.advance(Duration::from_secs(1));
    }
    assert!(matches!(node.failure_of("i").await, ErrorDetails::Poison { attempt_count: 3, .. }));
    node.runtime.shutdown(None).await;
}

#[tokio::test]
async fn the_pin_is_sent_only_in_the_turn_that_creates_the_execution() {
    let store = TamperingStore::new(memory(), |_| None);
    let node = NodeUnderTest::start(store.clone(), echo(), orchestrations(), quick()).await;
    node.client.start_orchestration("i", "Family", "").await.unwrap();
    node.committed("child").await;
    node.client.raise_event("child", "go", "x").await.unwrap();
    assert_eq!(node.output_of("i").await, "x");
    node.runtime.shutdown(None).await;
    let commits = store.commits();
    // Two executions of the parent and one of the child start with a pin; then the child and the parent end.
    assert_eq!(commits.len(), 5, "{commits:?}");
    for commit in commits {
        let begins = matches!(
            commit.history_delta.first().map(|event| &event.kind),
            Some(EventKind::OrchestrationStarted { .. })
        );
        let pin = commit.update.pinned_engine_version;
        assert_eq!(pin, begins.then(current_build_version), "{:?}", commit.history_delta);
    }
}
