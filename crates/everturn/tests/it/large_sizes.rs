//! Large fan-outs, long histories, large payloads.

use std::sync::Arc;

use everturn::runtime::registry::{ActivityRegistry, OrchestrationRegistry};
use everturn::{ClientError, EventKind, OrchestrationContext, RuntimeOptions};
use everturn_proof::many;

use crate::node_under_test::{NodeUnderTest, echo};
use crate::stores::{TestStore, on_every_store};

on_every_store!(
    ten_thousand_activities_in_one_fan_out,
    an_orchestration_with_twenty_thousand_events_replays,
    a_payload_of_a_million_characters_is_delivered,
    an_input_over_the_limit_is_refused_at_the_client,
    a_call_over_the_limit_is_an_error_the_orchestration_can_handle,
    a_result_over_the_limit_is_a_failure_the_orchestration_can_handle,
);

/// The default limit of both stores.
const PAYLOAD_BYTES_MAX: usize = 8 * 1024 * 1024;

async fn ten_thousand_activities_in_one_fan_out(store: TestStore) {
    let orchestrations = OrchestrationRegistry::builder()
        .register("Test", |ctx: OrchestrationContext, _: String| async move {
            let calls =
                (0..many(10_000)).map(|number| ctx.schedule_activity("Echo", number.to_string())).collect();
            let results: Result<Vec<String>, String> = ctx.join(calls).await.into_iter().collect();
            Ok(results?.iter().map(|text| text.parse::<u64>().unwrap()).sum::<u64>().to_string())
        })
        .build();
    let node =
        NodeUnderTest::start(store.provider(), echo(), orchestrations, RuntimeOptions::default()).await;
    node.client.start_orchestration("one", "Test", "").await.unwrap();
    let sum: usize = (0..many(10_000)).sum();
    assert_eq!(node.output_of("one").await, sum.to_string());
    node.runtime.shutdown(None).await;
}

/// 100 rounds of 100 activities; the last round waits, so that the whole history is replayed by another runtime.
async fn an_orchestration_with_twenty_thousand_events_replays(store: TestStore) {
    let orchestrations = OrchestrationRegistry::builder()
        .register("Test", |ctx: OrchestrationContext, _: String| async move {
            for round in 0..many(100) {
                let calls = (0..100).map(|_| ctx.schedule_activity("Echo", round.to_string())).collect();
                ctx.join(calls).await;
            }
            ctx.set_custom_status("done");
            ctx.schedule_wait("go").await;
            Ok("replayed".to_owned())
        })
        .build();
    let first =
        NodeUnderTest::start(store.provider(), echo(), orchestrations.clone(), RuntimeOptions::default())
            .await;
    first.client.start_orchestration("one", "Test", "").await.unwrap();
    first.until_status("one", "done").await;
    first.runtime.shutdown(None).await;
    let second =
        NodeUnderTest::start(store.provider(), echo(), orchestrations, RuntimeOptions::default()).await;
    second.client.raise_event("one", "go", "").await.unwrap();
    assert_eq!(second.output_of("one").await, "replayed");
    assert!(second.history("one", 1).await.len() > many(20_000));
    second.runtime.shutdown(None).await;
}

fn pass_on() -> OrchestrationRegistry {
    OrchestrationRegistry::builder()
        .register("Test", |ctx: OrchestrationContext, input: String| async move {
            ctx.schedule_activity("Echo", input).await
        })
        .build()
}

async fn a_payload_of_a_million_characters_is_delivered(store: TestStore) {
    let node = NodeUnderTest::start(store.provider(), echo(), pass_on(), RuntimeOptions::default()).await;
    let payload = "ü".repeat(1_000_000);
    node.client.start_orchestration("one", "Test", payload.as_str()).await.unwrap();
    assert_eq!(node.output_of("one").await, payload);
    node.runtime.shutdown(None).await;
}

fn too_large(what: &str) -> String {
    let size = "Payload size (8388609 bytes) exceeds limit (8388608 bytes)";
    format!("{what}: {size}; see the provider option payload_bytes_max")
}

async fn an_input_over_the_limit_is_refused_at_the_client(store: TestStore) {
    let node = NodeUnderTest::start(store.provider(), echo(), pass_on(), RuntimeOptions::default()).await;
    let payload = "x".repeat(PAYLOAD_BYTES_MAX + 1);
    let refused = node.client.start_orchestration("one", "Test", payload).await;
    let Err(ClientError::InvalidInput { message }) = refused else { panic!("{refused:?}") };
    assert_eq!(message, too_large("input of start_orchestration for one"));
    assert_eq!(node.client.get_queue_depths().await.unwrap().orchestrator_queue, 0);
    node.runtime.shutdown(None).await;
}

async fn a_call_over_the_limit_is_an_error_the_orchestration_can_handle(store: TestStore) {
    let orchestrations = OrchestrationRegistry::builder()
        .register("Test", |ctx: OrchestrationContext, _: String| async move {
            let refused = ctx.schedule_activity("Echo", "x".repeat(PAYLOAD_BYTES_MAX + 1)).await;
            let after = ctx.schedule_activity("Echo", "small").await?;
            Ok(format!("{} / {after}", refused.unwrap_err()))
        })
        .build();
    // Nothing stays in memory, so the refused call is replayed too.
    let options = RuntimeOptions { warm_instances_max: 0, ..RuntimeOptions::default() };
    let node = NodeUnderTest::start(store.provider(), echo(), orchestrations, options).await;
    node.client.start_orchestration("one", "Test", "").await.unwrap();
    let text = format!("{} / small", too_large("input of activity Echo"));
    assert_eq!(node.output_of("one").await, text);
    let history = node.history("one", 1).await;
    assert!(matches!(&history[1].kind, EventKind::ActivityScheduled { input, .. } if input.is_empty()));
    assert!(matches!(&history[2].kind, EventKind::ActivityFailed { .. }));
    node.runtime.shutdown(None).await;
}

async fn a_result_over_the_limit_is_a_failure_the_orchestration_can_handle(store: TestStore) {
    let large = Arc::new("x".repeat(PAYLOAD_BYTES_MAX + 1));
    let activities = ActivityRegistry::builder()
        .register("Large", move |_ctx, _input: String| {
            let large = Arc::clone(&large);
            async move { Ok(large.as_str().to_owned()) }
        })
        .build();
    let orchestrations = OrchestrationRegistry::builder()
        .register("Test", |ctx: OrchestrationContext, _: String| async move {
            Ok(ctx.schedule_activity("Large", "").await.unwrap_err())
        })
        .build();
    let node =
        NodeUnderTest::start(store.provider(), activities, orchestrations, RuntimeOptions::default()).await;
    node.client.start_orchestration("one", "Test", "").await.unwrap();
    assert_eq!(node.output_of("one").await, too_large("result of activity Large"));
    node.runtime.shutdown(None).await;
}
