//! Instances kept in memory save replays and change nothing else.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use everturn::runtime::registry::{ActivityRegistry, OrchestrationRegistry};
use everturn::runtime::{Runtime, ShadowReplay};
use everturn::{ErrorDetails, Event, OrchestrationContext, RuntimeOptions};

use crate::node_under_test::{NodeUnderTest, memory, quick, until};

fn activities() -> ActivityRegistry {
    ActivityRegistry::builder().register("Echo", |_ctx, input: String| async move { Ok(input) }).build()
}

/// An orchestration with several kinds of waits. `begun` counts how often its code was started.
fn busy(begun: &Arc<AtomicUsize>) -> OrchestrationRegistry {
    let begun = Arc::clone(begun);
    OrchestrationRegistry::builder()
        .register("Busy", move |ctx: OrchestrationContext, _: String| {
            let begun = Arc::clone(&begun);
            async move {
                begun.fetch_add(1, Ordering::SeqCst);
                let mut text = String::new();
                for step in 0..5 {
                    ctx.set_kv_value("step", step.to_string());
                    ctx.set_custom_status(format!("step {step}"));
                    let echoed = ctx.join(vec![
                        ctx.schedule_activity("Echo", format!("a{step}")),
                        ctx.schedule_activity("Echo", format!("b{step}")),
                    ]);
                    text += &echoed.await.into_iter().collect::<Result<String, String>>()?;
                    ctx.schedule_timer(std::time::Duration::from_millis(1)).await;
                    text += &ctx.dequeue_event("inbox").await;
                }
                Ok(text)
            }
        })
        .build()
}

/// Instances stay in memory, under stress settings as well.
fn warm() -> RuntimeOptions {
    RuntimeOptions { warm_instances_max: 1_000, ..quick() }
}

async fn run_busy(options: RuntimeOptions, begun: &Arc<AtomicUsize>) -> String {
    let node = NodeUnderTest::start(memory(), activities(), busy(begun), options).await;
    node.client.start_orchestration("i", "Busy", "").await.unwrap();
    for message in 0..5 {
        node.client.enqueue_event("i", "inbox", format!("m{message}")).await.unwrap();
    }
    let output = node.output_of("i").await;
    node.runtime.shutdown(None).await;
    output
}

#[tokio::test]
async fn code_of_a_warm_instance_is_started_once() {
    let begun = Arc::default();
    assert_eq!(run_busy(warm(), &begun).await, "a0b0m0a1b1m1a2b2m2a3b3m3a4b4m4");
    assert_eq!(begun.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn without_a_cache_every_turn_replays() {
    let begun = Arc::default();
    let options = RuntimeOptions { warm_instances_max: 0, ..quick() };
    assert_eq!(run_busy(options, &begun).await, "a0b0m0a1b1m1a2b2m2a3b3m3a4b4m4");
    assert!(begun.load(Ordering::SeqCst) > 5);
}

#[tokio::test]
async fn shadow_replay_agrees_with_deterministic_code() {
    let begun = Arc::default();
    let options = RuntimeOptions { shadow_replay: ShadowReplay::Always, ..warm() };
    assert_eq!(run_busy(options, &begun).await, "a0b0m0a1b1m1a2b2m2a3b3m3a4b4m4");
    assert!(begun.load(Ordering::SeqCst) > 5);
}

#[tokio::test]
async fn shadow_replay_finds_code_that_is_not_deterministic() {
    let calls = Arc::new(AtomicUsize::new(0));
    let orchestrations = OrchestrationRegistry::builder()
        .register("Drifts", move |ctx: OrchestrationContext, _: String| {
            let calls = Arc::clone(&calls);
            async move {
                ctx.schedule_activity("Echo", "same").await?;
                let drift = calls.fetch_add(1, Ordering::SeqCst);
                ctx.schedule_activity("Echo", drift.to_string()).await
            }
        })
        .build();
    let options = RuntimeOptions { shadow_replay: ShadowReplay::Always, ..warm() };
    let node = NodeUnderTest::start(memory(), activities(), orchestrations, options).await;
    node.client.start_orchestration("i", "Drifts", "").await.unwrap();
    let details = node.failure_of("i").await;
    assert!(matches!(details, ErrorDetails::Configuration { .. }), "{details:?}");
    assert!(details.display_message().contains("differs from its replay"), "{details:?}");
    node.runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_recreated_instance_does_not_use_the_cached_state_of_the_deleted_one() {
    let orchestrations = || {
        OrchestrationRegistry::builder()
            .register("Waits", |ctx: OrchestrationContext, input: String| async move {
                Ok(input + &ctx.schedule_wait("go").await)
            })
            .build()
    };
    let node = NodeUnderTest::start(memory(), activities(), orchestrations(), quick()).await;
    for input in ["first ", "second "] {
        node.client.start_orchestration("i", "Waits", input).await.unwrap();
        until("it waits", async || {
            node.client.read_execution_history("i", 1).await.is_ok_and(|history| history.len() == 2)
        })
        .await;
        if input == "first " {
            node.client.delete_instance("i", true).await.unwrap();
        }
    }
    node.client.raise_event("i", "go", "run").await.unwrap();
    assert_eq!(node.output_of("i").await, "second run");
    node.runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_runtime_continues_an_instance_of_another_runtime() {
    let store = memory();
    let orchestrations = || {
        OrchestrationRegistry::builder()
            .register("Ten", |ctx: OrchestrationContext, _: String| async move {
                let mut text = String::new();
                for _ in 0..10 {
                    text += &ctx.schedule_wait("go").await;
                }
                Ok(text)
            })
            .build()
    };
    let options = || RuntimeOptions { orchestration_concurrency: 1, ..quick() };
    let one = NodeUnderTest::start(store.clone(), activities(), orchestrations(), options()).await;
    // Both runtimes keep the instance warm, and each turn makes the other's cached state stale.
    let two: Arc<Runtime> =
        Runtime::start_with_options(store.clone(), activities(), orchestrations(), options()).await;
    one.client.start_orchestration("i", "Ten", "").await.unwrap();
    let waits = |history: &[Event]| {
        history
            .iter()
            .filter(|event| matches!(event.kind, everturn::EventKind::ExternalSubscribed { .. }))
            .count()
    };
    for signal in 0..10 {
        until("it waits", async || {
            one.client.read_execution_history("i", 1).await.is_ok_and(|history| waits(&history) == signal + 1)
        })
        .await;
        one.client.raise_event("i", "go", signal.to_string()).await.unwrap();
    }
    assert_eq!(one.output_of("i").await, "0123456789");
    one.runtime.shutdown(None).await;
    two.shutdown(None).await;
}
