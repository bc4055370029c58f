//! How typed values travel through orchestrations, activities and the client.

use std::sync::Arc;
use std::time::Duration;

use everturn::providers::memory::MemoryProvider;
use everturn::runtime::Runtime;
use everturn::runtime::registry::ActivityRegistry;
use everturn::{ActivityContext, Client, EventKind, OrchestrationContext, OrchestrationRegistry};
use serde::{Deserialize, Serialize};

const MINUTE: Duration = Duration::from_secs(60);

#[derive(Serialize, Deserialize, Debug, PartialEq)]
struct Order {
    item: String,
    pieces: u32,
}

fn activities() -> ActivityRegistry {
    ActivityRegistry::builder()
        .register_typed("double", |_ctx: ActivityContext, order: Order| async move {
            Ok(Order { pieces: order.pieces * 2, ..order })
        })
        .register_typed("shout", |_ctx: ActivityContext, text: String| async move { Ok(text.to_uppercase()) })
        .build()
}

fn orchestrations() -> OrchestrationRegistry {
    OrchestrationRegistry::builder()
        .register_typed("double_order", |ctx: OrchestrationContext, order: Order| async move {
            ctx.schedule_activity_typed::<Order, Order>("double", &order).await
        })
        .register_typed("shout", |ctx: OrchestrationContext, text: String| async move {
            ctx.schedule_activity_typed::<String, String>("shout", &text).await
        })
        .register("misread", |ctx: OrchestrationContext, _input: String| async move {
            match ctx.schedule_activity_typed::<&str, u32>("shout", &"no number").await {
                Ok(_) => Ok("decoded".to_owned()),
                Err(error) => Ok(format!("error: {error}")),
            }
        })
        .build()
}

async fn running() -> (Arc<Runtime>, Client) {
    let store = Arc::new(MemoryProvider::new());
    let runtime = Runtime::start_with_store(store.clone(), activities(), orchestrations()).await;
    (runtime, Client::new(store))
}

#[tokio::test]
async fn values_arrive_as_they_were_sent() {
    let (runtime, client) = running().await;
    let order = Order { item: "book".into(), pieces: 2 };
    client.start_orchestration_typed("i", "double_order", order).await.unwrap();
    let outcome = client.wait_for_orchestration_typed::<Order>("i", MINUTE).await.unwrap();
    assert_eq!(outcome, Ok(Order { item: "book".into(), pieces: 4 }));
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn strings_travel_unquoted() {
    let (runtime, client) = running().await;
    client.start_orchestration_typed("i", "shout", "hello").await.unwrap();
    client.wait_for_orchestration("i", MINUTE).await.unwrap();
    let history = client.read_execution_history("i", 1).await.unwrap();
    let payloads: Vec<_> = history
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::OrchestrationStarted { input, .. } | EventKind::ActivityScheduled { input, .. } => {
                Some(input.as_str())
            }
            EventKind::ActivityCompleted { result } => Some(result.as_str()),
            EventKind::OrchestrationCompleted { output } => Some(output.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(payloads, ["hello", "hello", "HELLO", "HELLO"]);
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_result_that_does_not_decode_is_an_error_of_the_call() {
    let (runtime, client) = running().await;
    client.start_orchestration("i", "misread", "").await.unwrap();
    let outcome = client.wait_for_orchestration_typed::<String>("i", MINUTE).await.unwrap().unwrap();
    let expected =
        "error: decoding the result of activity shout: invalid type: string \"NO NUMBER\", expected u32";
    assert_eq!(outcome, expected);
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn an_input_that_does_not_decode_fails_the_orchestration() {
    let (runtime, client) = running().await;
    client.start_orchestration("i", "double_order", "no order").await.unwrap();
    let outcome = client.wait_for_orchestration_typed::<Order>("i", MINUTE).await.unwrap();
    let error = outcome.unwrap_err();
    let expected = "decoding the input of orchestration double_order: invalid type: string \"no order\"";
    assert!(error.starts_with(expected), "{error}");
    runtime.shutdown(None).await;
}
