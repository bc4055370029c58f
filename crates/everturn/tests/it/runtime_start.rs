//! Starting runtimes, several on one store, and asking them about instances.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use everturn::runtime::Runtime;
use everturn::runtime::registry::{ActivityRegistry, OrchestrationRegistry};
use everturn::{Client, OrchestrationContext, OrchestrationDescriptor};

use crate::node_under_test::{NodeUnderTest, PATIENCE, echo, quick};
use crate::stores::{TestStore, on_every_store};

on_every_store!(
    a_runtime_with_default_options_runs_what_a_client_starts,
    several_runtimes_share_one_store_and_do_everything_once,
    a_descriptor_names_orchestration_version_and_parent,
    a_descriptor_is_that_of_the_current_execution,
);

fn orchestrations() -> OrchestrationRegistry {
    OrchestrationRegistry::builder()
        .register("Echo", |ctx: OrchestrationContext, input: String| async move {
            ctx.schedule_activity("Echo", input).await
        })
        .register("Parent", |ctx: OrchestrationContext, _: String| async move {
            ctx.schedule_sub_orchestration_with_id("Echo", "child", "x").await
        })
        .register_versioned("Moves", "1.5.0", |ctx: OrchestrationContext, _: String| async move {
            ctx.continue_as_new_versioned("2.0.0", "").await
        })
        .register_versioned("Moves", "2.0.0", |_: OrchestrationContext, _: String| async move {
            Ok("moved".to_owned())
        })
        .build()
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_runtime_starts_without_a_store_argument() {
    let runtime = Runtime::start(ActivityRegistry::default(), orchestrations()).await;
    assert_eq!(runtime.get_orchestration_descriptor("unknown").await, None);
    assert!(runtime.metrics_snapshot().is_some());
    assert!(runtime.observability_handle().is_some());
    runtime.shutdown(None).await;
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_runtime_takes_the_embedded_provider_as_it_is() {
    let store = Arc::new(everturn::providers::sqlite::SqliteProvider::new_in_memory().await.unwrap());
    let runtime = Runtime::start_with_store(store.clone(), echo(), orchestrations()).await;
    let client = Client::new(store);
    client.start_orchestration("i", "Echo", "hello").await.unwrap();
    assert_eq!(
        client.wait_for_orchestration_typed::<String>("i", PATIENCE).await.unwrap(),
        Ok("hello".to_owned())
    );
    runtime.shutdown(None).await;
}

async fn a_runtime_with_default_options_runs_what_a_client_starts(store: TestStore) {
    let runtime = Runtime::start_with_store(store.provider(), echo(), orchestrations()).await;
    let client = Client::new(store.provider());
    client.start_orchestration("i", "Echo", "hello").await.unwrap();
    let output = client.wait_for_orchestration_typed::<String>("i", PATIENCE).await.unwrap();
    assert_eq!(output, Ok("hello".to_owned()));
    runtime.shutdown(None).await;
}

async fn several_runtimes_share_one_store_and_do_everything_once(store: TestStore) {
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let activities = ActivityRegistry::builder()
        .register("Echo", move |_ctx, input: String| {
            counted.fetch_add(1, Ordering::SeqCst);
            async move { Ok(input) }
        })
        .build();
    let mut nodes = Vec::new();
    for _ in 0..3 {
        let (activities, orchestrations) = (activities.clone(), orchestrations());
        nodes.push(NodeUnderTest::start(store.provider(), activities, orchestrations, quick()).await);
    }
    for number in 0..60 {
        let client = &nodes[number % 3].client;
        client.start_orchestration(format!("i{number}"), "Echo", number.to_string()).await.unwrap();
    }
    for number in 0..60 {
        assert_eq!(nodes[0].output_of(&format!("i{number}")).await, number.to_string());
        assert_eq!(nodes[0].history(&format!("i{number}"), 1).await.len(), 4);
    }
    assert_eq!(runs.load(Ordering::SeqCst), 60);
    let mut completed = 0;
    for node in nodes {
        let runtime = Arc::clone(&node.runtime);
        node.runtime.shutdown(None).await;
        completed += runtime.metrics_snapshot().unwrap().orch_completions;
    }
    assert_eq!(completed, 60);
}

async fn a_descriptor_names_orchestration_version_and_parent(store: TestStore) {
    let node = NodeUnderTest::start(store.provider(), echo(), orchestrations(), quick()).await;
    node.client.start_orchestration("p", "Parent", "").await.unwrap();
    node.output_of("p").await;
    let of = |name: &str, parent: Option<&str>, parent_id| OrchestrationDescriptor {
        name: name.to_owned(),
        version: "1.0.0".to_owned(),
        parent_instance: parent.map(str::to_owned),
        parent_id,
    };
    assert_eq!(node.runtime.get_orchestration_descriptor("p").await, Some(of("Parent", None, None)));
    let child = node.runtime.get_orchestration_descriptor("child").await;
    assert_eq!(child, Some(of("Echo", Some("p"), Some(2))));
    assert_eq!(node.runtime.get_orchestration_descriptor("unknown").await, None);
    node.runtime.shutdown(None).await;
}

async fn a_descriptor_is_that_of_the_current_execution(store: TestStore) {
    let node = NodeUnderTest::start(store.provider(), echo(), orchestrations(), quick()).await;
    node.client.start_orchestration_versioned("i", "Moves", "1.5.0", "").await.unwrap();
    assert_eq!(node.output_of("i").await, "moved");
    assert_eq!(node.runtime.get_orchestration_descriptor("i").await.unwrap().version, "2.0.0");
    node.runtime.shutdown(None).await;
}
