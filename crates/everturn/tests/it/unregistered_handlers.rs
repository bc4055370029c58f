//! Work for which a runtime has no handler waits for a runtime that has one.

use std::time::Duration;

use everturn::runtime::UnregisteredBackoffConfig;
use everturn::runtime::registry::{ActivityRegistry, OrchestrationRegistry};
use everturn::{ErrorDetails, OrchestrationContext, RuntimeOptions};
use tracing::Level;

use crate::log_lines::{LogLine, LogLines};
use crate::node_under_test::{NodeUnderTest, PATIENCE, echo, memory, quick};
use crate::stores::{TestStore, on_every_store};

on_every_store!(
    another_node_with_the_orchestration_picks_it_up,
    another_node_with_the_version_picks_it_up,
    another_node_with_the_activity_picks_it_up,
    a_running_instance_waits_for_a_node_with_its_version,
    a_version_that_is_not_semantic_counts_as_unregistered,
    work_without_a_handler_on_any_node_ends_as_poison,
    poison_without_a_handler_says_so_and_lists_what_is_registered,
    an_old_node_holds_up_no_orchestration_that_a_new_node_has,
    an_old_node_holds_up_no_activity_that_a_new_node_has,
    messages_keep_their_order_when_a_node_lacks_the_handler,
);

fn orchestrations(versions: &[&str]) -> OrchestrationRegistry {
    let mut builder = OrchestrationRegistry::builder();
    for version in versions {
        builder =
            builder.register_versioned("Test", version, |ctx: OrchestrationContext, _: String| async move {
                let signal = ctx.schedule_wait("go").await;
                ctx.schedule_activity("Echo", format!("{signal} {}", ctx.orchestration_version())).await
            });
    }
    builder.build()
}

/// A node without a limit on attempts.
async fn unlimited_node(store: &TestStore, activities: ActivityRegistry, versions: &[&str]) -> NodeUnderTest {
    let options = RuntimeOptions { max_attempts: u32::MAX, ..quick() };
    NodeUnderTest::start(store.provider(), activities, orchestrations(versions), options).await
}

/// Starts an instance on a node that lacks its handler; another node finishes it.
async fn picked_up(store: &TestStore, version: &str, lacking: &[&str], having: &[&str]) -> String {
    let without = unlimited_node(store, echo(), lacking).await;
    without.client.start_orchestration_versioned("i", "Test", version, "").await.unwrap();
    // A second start without a handler does not block the first.
    without.client.start_orchestration("other", "Unregistered", "").await.unwrap();
    let with = unlimited_node(store, echo(), having).await;
    with.committed("i").await;
    with.client.raise_event("i", "go", "picked up").await.unwrap();
    let output = with.output_of("i").await;
    without.runtime.shutdown(None).await;
    with.runtime.shutdown(None).await;
    output
}

async fn another_node_with_the_orchestration_picks_it_up(store: TestStore) {
    assert_eq!(picked_up(&store, "1.0.0", &[], &["1.0.0"]).await, "picked up 1.0.0");
}

async fn another_node_with_the_version_picks_it_up(store: TestStore) {
    assert_eq!(picked_up(&store, "2.0.0", &["1.0.0"], &["1.0.0", "2.0.0"]).await, "picked up 2.0.0");
}

async fn another_node_with_the_activity_picks_it_up(store: TestStore) {
    let without = unlimited_node(&store, ActivityRegistry::default(), &["1.0.0"]).await;
    without.client.start_orchestration("i", "Test", "").await.unwrap();
    without.committed("i").await;
    without.client.raise_event("i", "go", "x").await.unwrap();
    let with = unlimited_node(&store, echo(), &[]).await;
    assert_eq!(with.output_of("i").await, "x 1.0.0");
    without.runtime.shutdown(None).await;
    with.runtime.shutdown(None).await;
}

async fn a_running_instance_waits_for_a_node_with_its_version(store: TestStore) {
    let old = unlimited_node(&store, echo(), &["1.0.0"]).await;
    old.client.start_orchestration("i", "Test", "").await.unwrap();
    old.committed("i").await;
    old.runtime.shutdown(None).await;
    // The next deployment lacks the version that the instance started with.
    let new = unlimited_node(&store, echo(), &["2.0.0"]).await;
    new.client.raise_event("i", "go", "x").await.unwrap();
    new.client.start_orchestration("j", "Test", "").await.unwrap();
    new.committed("j").await;
    assert_eq!(new.history("i", 1).await.len(), 2);
    let both = unlimited_node(&store, echo(), &["1.0.0", "2.0.0"]).await;
    assert_eq!(both.output_of("i").await, "x 1.0.0");
    new.runtime.shutdown(None).await;
    both.runtime.shutdown(None).await;
}

fn two_attempts() -> RuntimeOptions {
    RuntimeOptions { max_attempts: 2, ..quick() }
}

async fn a_version_that_is_not_semantic_counts_as_unregistered(store: TestStore) {
    let registry = orchestrations(&["1.0.0"]);
    let node = NodeUnderTest::start(store.provider(), echo(), registry, two_attempts()).await;
    node.client.start_orchestration_versioned("i", "Test", "the newest", "").await.unwrap();
    let details = node.failure_of("i").await;
    assert!(matches!(details, ErrorDetails::Poison { attempt_count: 3, max_attempts: 2, .. }), "{details:?}");
    node.runtime.shutdown(None).await;
}

async fn work_without_a_handler_on_any_node_ends_as_poison(store: TestStore) {
    let registry = orchestrations(&["1.0.0"]);
    let node =
        NodeUnderTest::start(store.provider(), ActivityRegistry::default(), registry, two_attempts()).await;
    node.client.start_orchestration("i", "Unregistered", "").await.unwrap();
    assert!(matches!(node.failure_of("i").await, ErrorDetails::Poison { .. }));
    node.client.start_orchestration("j", "Test", "").await.unwrap();
    node.committed("j").await;
    node.client.raise_event("j", "go", "").await.unwrap();
    assert!(matches!(node.failure_of("j").await, ErrorDetails::Poison { .. }));
    node.runtime.shutdown(None).await;
}

async fn poison_without_a_handler_says_so_and_lists_what_is_registered(store: TestStore) {
    let registry = orchestrations(&["1.0.0", "2.0.0"]);
    let node = NodeUnderTest::start(store.provider(), two_activities(), registry, two_attempts()).await;
    node.client.start_orchestration_versioned("i", "Test", "3.0.0", "").await.unwrap();
    assert_eq!(
        node.failure_of("i").await.display_message(),
        "poison: orchestration i exceeded 3 attempts (max 2): no runtime has registered orchestration Test 3.0.0; \
         this one has registered Test 1.0.0, Test 2.0.0"
    );
    node.client.start_orchestration("j", "Test", "").await.unwrap();
    node.committed("j").await;
    node.client.raise_event("j", "go", "").await.unwrap();
    let details = node.failure_of("j").await;
    let text = details.display_message();
    let before = "poison: activity Echo#4 exceeded 3 attempts (max 2): no runtime has registered activity Echo, \
                  waiting since ";
    let since =
        text.strip_prefix(before).and_then(|rest| rest.strip_suffix("Z; this one has registered A, B"));
    assert!(since.is_some_and(|time| time.len() == "2026-11-17T22:30:00".len()), "{text}");
    let ErrorDetails::Poison { message, .. } = details else { panic!("{details:?}") };
    let (_reason, json) = message.split_once('\n').expect("a line and the message");
    assert!(json.starts_with("{\"ActivityExecute\":"), "{json}");
    node.runtime.shutdown(None).await;
}

fn two_activities() -> ActivityRegistry {
    let activity = |_ctx, input: String| async move { Ok(input) };
    ActivityRegistry::builder().register("B", activity).register("A", activity).build()
}

/// Options under which work that must wait for its back-off is too late for these tests.
fn long_back_off() -> RuntimeOptions {
    let minutes = 10 * PATIENCE;
    let unregistered_backoff = UnregisteredBackoffConfig { base_delay: minutes, max_delay: minutes };
    RuntimeOptions { unregistered_backoff, ..quick() }
}

/// Forty instances, most of which both nodes are offered.
async fn forty_instances_end(old: NodeUnderTest, new: NodeUnderTest, orchestration: &str) {
    let ids: Vec<String> = (0..40).map(|n| format!("i{n}")).collect();
    for id in &ids {
        new.client.start_orchestration(id, orchestration, id).await.unwrap();
    }
    for id in &ids {
        assert_eq!(new.output_of(id).await, *id);
    }
    old.runtime.shutdown(None).await;
    new.runtime.shutdown(None).await;
}

fn calls_echo() -> OrchestrationRegistry {
    let calls =
        |ctx: OrchestrationContext, input: String| async move { ctx.schedule_activity("Echo", input).await };
    OrchestrationRegistry::builder().register("Calls", calls).build()
}

async fn an_old_node_holds_up_no_orchestration_that_a_new_node_has(store: TestStore) {
    let registry = OrchestrationRegistry::default();
    let old = NodeUnderTest::start(store.provider(), echo(), registry, long_back_off()).await;
    let new = NodeUnderTest::start(store.provider(), echo(), calls_echo(), long_back_off()).await;
    forty_instances_end(old, new, "Calls").await;
}

async fn an_old_node_holds_up_no_activity_that_a_new_node_has(store: TestStore) {
    let registry = ActivityRegistry::default();
    let old = NodeUnderTest::start(store.provider(), registry, calls_echo(), long_back_off()).await;
    let new = NodeUnderTest::start(store.provider(), echo(), calls_echo(), long_back_off()).await;
    forty_instances_end(old, new, "Calls").await;
}

async fn messages_keep_their_order_when_a_node_lacks_the_handler(store: TestStore) {
    let reads_three = || {
        let reads = |ctx: OrchestrationContext, _: String| async move {
            let mut read = Vec::new();
            while read.len() < 3 {
                read.push(ctx.dequeue_event("inbox").await);
            }
            Ok(read.join(" "))
        };
        OrchestrationRegistry::builder().register("Reads", reads).build()
    };
    let has_other = || {
        let returns = |_ctx: OrchestrationContext, input: String| async move { Ok(input) };
        OrchestrationRegistry::builder().register("Other", returns).build()
    };
    let options = || RuntimeOptions { orchestration_concurrency: 1, ..long_back_off() };
    let node = NodeUnderTest::start(store.provider(), echo(), reads_three(), options()).await;
    node.client.start_orchestration("i", "Reads", "").await.unwrap();
    node.committed("i").await;
    node.runtime.shutdown(None).await;

    let without = NodeUnderTest::start(store.provider(), echo(), has_other(), options()).await;
    without.client.enqueue_event("i", "inbox", "q1").await.unwrap();
    // Its only slot serves what is older first: the message was offered to it and given back.
    without.client.start_orchestration("other", "Other", "served").await.unwrap();
    assert_eq!(without.output_of("other").await, "served");
    without.runtime.shutdown(None).await;
    without.client.enqueue_event("i", "inbox", "q2").await.unwrap();
    without.client.enqueue_event("i", "inbox", "q3").await.unwrap();

    let with = NodeUnderTest::start(store.provider(), echo(), reads_three(), options()).await;
    assert_eq!(with.output_of("i").await, "q1 q2 q3");
    with.runtime.shutdown(None).await;
}

/// The numbers of a log line about abandoned work.
fn numbers(line: &LogLine) -> [f64; 4] {
    ["attempt_count", "max_attempts", "remaining_attempts", "backoff_secs"]
        .map(|field| line.field(field).parse().unwrap())
}

#[tokio::test]
async fn each_attempt_waits_longer_up_to_the_limit_and_is_logged() {
    let (lines, _guard) = LogLines::capture();
    let options = RuntimeOptions {
        max_attempts: 5,
        unregistered_backoff: UnregisteredBackoffConfig {
            base_delay: Duration::from_millis(2),
            max_delay: Duration::from_millis(10),
        },
        ..quick()
    };
    let registry = orchestrations(&["1.0.0"]);
    let node = NodeUnderTest::start(memory(), ActivityRegistry::default(), registry, options).await;
    node.client.start_orchestration("i", "Unregistered", "").await.unwrap();
    node.failure_of("i").await;
    node.client.start_orchestration("j", "Test", "").await.unwrap();
    node.committed("j").await;
    node.client.raise_event("j", "go", "").await.unwrap();
    node.failure_of("j").await;
    let expected = [
        [1.0, 5.0, 4.0, 0.002],
        [2.0, 5.0, 3.0, 0.004],
        [3.0, 5.0, 2.0, 0.008],
        [4.0, 5.0, 1.0, 0.01],
        [5.0, 5.0, 0.0, 0.01],
    ];
    for (what, instance) in [("Orchestration not registered", "i"), ("Activity not registered", "j")] {
        let logged = lines.containing(what);
        assert_eq!(logged.iter().map(numbers).collect::<Vec<_>>(), expected, "{what}");
        for line in logged {
            assert_eq!((line.level, line.target.as_str()), (Level::WARN, "everturn::runtime"));
            assert_eq!(line.field("instance_id"), instance);
        }
    }
    node.runtime.shutdown(None).await;
}
