//! Combinators of the `futures` crate and of tokio in orchestrations, in memory and replayed.

use std::sync::Arc;

use everturn::runtime::ShadowReplay;
use everturn::runtime::registry::OrchestrationRegistry;
use everturn::{OrchestrationContext, RuntimeOptions};
use futures::future::{join_all, select_all};
use futures::stream::{self, FuturesUnordered, StreamExt};

use crate::node_under_test::{NodeUnderTest, echo, quick};
use crate::stores::{TestStore, on_every_store};

on_every_store!(
    join_all_of_a_thousand_activities_completes,
    every_combinator_gives_the_same_in_memory_and_replayed,
    tokios_cooperative_budget_does_not_reach_orchestrations,
    a_branch_that_waits_for_another_branch_goes_on,
);

/// Every turn in memory is replayed and compared.
fn compared() -> RuntimeOptions {
    RuntimeOptions { warm_instances_max: 100, shadow_replay: ShadowReplay::Always, ..quick() }
}

fn deployed<F, Fut>(code: F) -> OrchestrationRegistry
where
    F: Fn(OrchestrationContext, String) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<String, String>> + Send + 'static,
{
    OrchestrationRegistry::builder().register("Test", code).build()
}

async fn join_all_of_a_thousand_activities_completes(store: TestStore) {
    let code = |ctx: OrchestrationContext, _: String| async move {
        let calls = (0..1000).map(|n| ctx.schedule_activity("Echo", n.to_string()));
        let results = join_all(calls).await;
        let in_order = results.iter().zip(0..).all(|(result, n)| *result == Ok(n.to_string()));
        Ok(format!("{} {in_order}", results.len()))
    };
    let node = NodeUnderTest::start(store.provider(), echo(), deployed(code), quick()).await;
    node.client.start_orchestration("i", "Test", "").await.unwrap();
    assert_eq!(node.output_of("i").await, "1000 true");
    node.runtime.shutdown(None).await;
}

/// Uses one combinator after the other; the result does not depend on the order of completions.
async fn combined(ctx: OrchestrationContext, _: String) -> Result<String, String> {
    let call = |name: String| ctx.schedule_activity("Echo", name);
    let mut all = Vec::new();
    let mut unordered: FuturesUnordered<_> = (0..40).map(|n| call(format!("unordered {n}"))).collect();
    while let Some(result) = unordered.next().await {
        all.push(result?);
    }
    let buffered = stream::iter(0..10).map(|n| call(format!("buffered {n}"))).buffer_unordered(3);
    all.extend(buffered.collect::<Vec<_>>().await.into_iter().collect::<Result<Vec<_>, _>>()?);
    let mut raced: Vec<_> = (0..5).map(|n| call(format!("raced {n}"))).collect();
    while !raced.is_empty() {
        let (result, _, rest) = select_all(raced).await;
        all.push(result?);
        raced = rest;
    }
    let (first, second) = tokio::join!(call("joined 0".to_owned()), call("joined 1".to_owned()));
    all.extend([first?, second?]);
    all.sort();
    Ok(format!("{} {}", all.len(), all.join(",")))
}

async fn every_combinator_gives_the_same_in_memory_and_replayed(store: TestStore) {
    let node = NodeUnderTest::start(store.provider(), echo(), deployed(combined), compared()).await;
    node.client.start_orchestration("warm", "Test", "").await.unwrap();
    let warm = node.output_of("warm").await;
    node.runtime.shutdown(None).await;
    assert!(warm.starts_with("57 buffered 0,"), "{warm}");
    let cold = RuntimeOptions { warm_instances_max: 0, ..quick() };
    let node = NodeUnderTest::start(store.provider(), echo(), deployed(combined), cold).await;
    node.client.start_orchestration("cold", "Test", "").await.unwrap();
    assert_eq!(node.output_of("cold").await, warm);
    node.runtime.shutdown(None).await;
}

async fn tokios_cooperative_budget_does_not_reach_orchestrations(store: TestStore) {
    let code = |ctx: OrchestrationContext, _: String| async move {
        let permits = Arc::new(tokio::sync::Semaphore::new(1));
        // Each permit takes one unit of a task's budget, which has 128.
        for _ in 0..1000 {
            drop(permits.acquire().await.map_err(|error| error.to_string())?);
        }
        ctx.schedule_activity("Echo", "after a thousand permits").await
    };
    let node = NodeUnderTest::start(store.provider(), echo(), deployed(code), compared()).await;
    node.client.start_orchestration("i", "Test", "").await.unwrap();
    assert_eq!(node.output_of("i").await, "after a thousand permits");
    node.runtime.shutdown(None).await;
}

async fn a_branch_that_waits_for_another_branch_goes_on(store: TestStore) {
    let code = |ctx: OrchestrationContext, _: String| async move {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let sends = async {
            let result = ctx.schedule_activity("Echo", "sent").await?;
            sender.send(result)
        };
        // The receiver is polled first: only its waker tells it of the value.
        let (received, sent) = ctx.join2(receiver, sends).await;
        sent?;
        received.map_err(|error| error.to_string())
    };
    let node = NodeUnderTest::start(store.provider(), echo(), deployed(code), compared()).await;
    node.client.start_orchestration("i", "Test", "").await.unwrap();
    assert_eq!(node.output_of("i").await, "sent");
    node.runtime.shutdown(None).await;
}
