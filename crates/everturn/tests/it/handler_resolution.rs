//! Which start message counts, which handler version runs it, and what happens to a history that cannot be read.

use std::time::Duration;

use everturn::providers::{ExecutionMetadata, Provider};
use everturn::runtime::registry::OrchestrationRegistry;
use everturn::{Client, Event, EventKind, OrchestrationContext, RuntimeOptions};
use everturn_provider::testing::TableAccess as _;
use tracing::Level;

use crate::log_lines::LogLines;
use crate::node_under_test::{NodeUnderTest, echo, memory, quick, until};
use crate::stores::{TestStore, on_every_store};

on_every_store!(
    the_first_of_several_starts_counts,
    a_history_with_version_zero_uses_the_version_policy,
    a_start_without_a_version_records_the_version_that_the_policy_chose,
    duplicate_starts_cannot_change_handler_version_or_input,
);

fn orchestrations() -> OrchestrationRegistry {
    let code = |ctx: OrchestrationContext, input: String| async move {
        let signal = ctx.schedule_wait("go").await;
        Ok(format!("{input} {signal} {}", ctx.orchestration_version()))
    };
    OrchestrationRegistry::builder()
        .register("Test", code)
        .register_versioned("Test", "2.0.0", code)
        .register("Other", |_: OrchestrationContext, _: String| async move { Ok("the wrong one".to_owned()) })
        .build()
}

async fn the_first_of_several_starts_counts(store: TestStore) {
    let client = Client::new(store.provider());
    client.start_orchestration_versioned("i", "Test", "1.0.0", "first").await.unwrap();
    client.start_orchestration("i", "Other", "second").await.unwrap();
    client.start_orchestration_versioned("i", "Test", "2.0.0", "third").await.unwrap();
    let node = NodeUnderTest::start(store.provider(), echo(), orchestrations(), quick()).await;
    node.committed("i").await;
    client.raise_event("i", "go", "x").await.unwrap();
    assert_eq!(node.output_of("i").await, "first x 1.0.0");
    node.runtime.shutdown(None).await;
}

async fn a_history_with_version_zero_uses_the_version_policy(store: TestStore) {
    let (client, provider) = (Client::new(store.provider()), store.provider());
    client.start_orchestration("i", "Test", "in").await.unwrap();
    let (_, token, _) = provider
        .fetch_orchestration_item(Duration::from_secs(5), Duration::ZERO, None)
        .await
        .unwrap()
        .unwrap();
    let start = EventKind::OrchestrationStarted {
        name: "Test".into(),
        version: "0.0.0".into(),
        input: "in".into(),
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        carry_forward_events: None,
        initial_custom_status: None,
    };
    let wait = EventKind::ExternalSubscribed { name: "go".into() };
    let events =
        vec![Event::with_event_id(1, "i", 1, None, start), Event::with_event_id(2, "i", 1, None, wait)];
    let metadata = ExecutionMetadata {
        orchestration_name: Some("Test".into()),
        orchestration_version: Some("0.0.0".into()),
        ..ExecutionMetadata::default()
    };
    provider.ack_orchestration_item(&token, 1, events, vec![], vec![], metadata, vec![]).await.unwrap();
    client.raise_event("i", "go", "x").await.unwrap();
    let node = NodeUnderTest::start(store.provider(), echo(), orchestrations(), quick()).await;
    assert_eq!(node.output_of("i").await, "in x 2.0.0");
    node.runtime.shutdown(None).await;
}

async fn a_start_without_a_version_records_the_version_that_the_policy_chose(store: TestStore) {
    let node = NodeUnderTest::start(store.provider(), echo(), orchestrations(), quick()).await;
    node.client.start_orchestration("i", "Test", "in").await.unwrap();
    node.committed("i").await;
    let start = node.history("i", 1).await.remove(0);
    assert!(matches!(start.kind, EventKind::OrchestrationStarted { version, .. } if version == "2.0.0"));
    assert_eq!(node.client.get_instance_info("i").await.unwrap().orchestration_version, "2.0.0");
    node.runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_history_that_cannot_be_read_is_logged_and_its_lock_abandoned() {
    let (lines, _guard) = LogLines::capture();
    let store = memory();
    let node = NodeUnderTest::start(store.clone(), echo(), orchestrations(), quick()).await;
    node.client.start_orchestration("i", "Test", "").await.unwrap();
    node.committed("i").await;
    node.runtime.shutdown(None).await;
    assert!(store.damage_event("i", 1, 2));
    let node = NodeUnderTest::start(store.clone(), echo(), orchestrations(), quick()).await;
    node.client.raise_event("i", "go", "x").await.unwrap();
    until("the warning is logged", async || !lines.containing("history cannot be read").is_empty()).await;
    let line = lines.containing("history cannot be read").remove(0);
    assert_eq!((line.level, line.target.as_str()), (Level::WARN, "everturn::runtime"));
    // Other instances are not affected.
    node.client.start_orchestration("other", "Other", "").await.unwrap();
    node.output_of("other").await;
    node.runtime.shutdown(None).await;
    assert_eq!(store.message_attempts("i"), [1]);
    let hidden = store.fetch_orchestration_item(Duration::from_secs(5), Duration::ZERO, None).await.unwrap();
    assert!(hidden.is_none(), "it is hidden for a second");
}

#[tokio::test]
async fn an_ignored_start_is_logged() {
    let (lines, _guard) = LogLines::capture();
    let node = NodeUnderTest::start(memory(), echo(), orchestrations(), quick()).await;
    node.client.start_orchestration("i", "Test", "").await.unwrap();
    node.committed("i").await;
    node.client.start_orchestration("i", "Other", "").await.unwrap();
    until("the warning is logged", async || {
        !lines.containing("start of an existing instance ignored").is_empty()
    })
    .await;
    assert_eq!(lines.containing("start of an existing instance ignored")[0].level, Level::WARN);
    node.runtime.shutdown(None).await;
}

async fn duplicate_starts_cannot_change_handler_version_or_input(store: TestStore) {
    let cold = RuntimeOptions { warm_instances_max: 0, ..quick() };
    for (instance, options) in [("warm", quick()), ("cold", cold)] {
        let node = NodeUnderTest::start(store.provider(), echo(), orchestrations(), options).await;
        let client = &node.client;
        client.start_orchestration_versioned(instance, "Test", "1.0.0", "mine").await.unwrap();
        node.committed(instance).await;
        client.start_orchestration(instance, "Other", "theirs").await.unwrap();
        client.start_orchestration_versioned(instance, "Test", "2.0.0", "theirs").await.unwrap();
        client.start_orchestration_versioned(instance, "Test", "1.0.0", "theirs").await.unwrap();
        client.raise_event(instance, "go", "x").await.unwrap();
        assert_eq!(node.output_of(instance).await, "mine x 1.0.0");
        node.runtime.shutdown(None).await;
    }
}
