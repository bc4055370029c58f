//! An instance from its start to its end: chains, continue-as-new, children, duplicate messages.

use everturn::providers::{Provider, WorkItem};
use everturn::runtime::registry::{ActivityRegistry, OrchestrationRegistry};
use everturn::{ActivityContext, Either2, ErrorDetails, EventKind, OrchestrationContext, RuntimeOptions};

use crate::node_under_test::{NodeUnderTest, memory, quick, until};
use crate::stores::{TestStore, on_every_store};

on_every_store!(a_second_failure_of_an_activity_is_dropped);

fn activities() -> ActivityRegistry {
    ActivityRegistry::builder().register("Echo", |_ctx, input: String| async move { Ok(input) }).build()
}

fn orchestrations() -> OrchestrationRegistry {
    OrchestrationRegistry::builder()
        .register("Chain", |ctx: OrchestrationContext, input: String| async move {
            let mut text = input;
            for step in 0..20 {
                text = ctx.schedule_activity("Echo", format!("{text}{step}")).await?;
            }
            Ok(text)
        })
        .register("Countdown", |ctx: OrchestrationContext, input: String| async move {
            let left: u32 = input.parse().unwrap();
            if left > 0 {
                return ctx.continue_as_new((left - 1).to_string()).await;
            }
            Ok(format!("execution {}", ctx.execution_id()))
        })
        .register("Parent", |ctx: OrchestrationContext, input: String| async move {
            ctx.schedule_sub_orchestration("Chain", input).await
        })
        .register("Waiter", |ctx: OrchestrationContext, _: String| async move {
            Ok(ctx.schedule_wait("go").await)
        })
        .register("Adopts", |ctx: OrchestrationContext, child: String| async move {
            ctx.schedule_sub_orchestration_with_id("Chain", child, "x").await
        })
        .build()
}

async fn node(options: RuntimeOptions) -> NodeUnderTest {
    NodeUnderTest::start(memory(), activities(), orchestrations(), options).await
}

fn chain_output() -> String {
    (0..20).map(|step| step.to_string()).collect()
}

#[tokio::test]
async fn a_chain_of_activities_runs_warm_and_cold_alike() {
    let mut histories = Vec::new();
    for warm_instances_max in [0, 100] {
        let node = node(RuntimeOptions { warm_instances_max, ..quick() }).await;
        node.client.start_orchestration("i", "Chain", "").await.unwrap();
        assert_eq!(node.output_of("i").await, chain_output());
        let kinds: Vec<EventKind> = node.history("i", 1).await.into_iter().map(|event| event.kind).collect();
        histories.push(kinds);
        node.runtime.shutdown(None).await;
    }
    assert_eq!(histories[0], histories[1]);
}

#[tokio::test]
async fn continue_as_new_makes_a_new_execution_each_time() {
    let node = node(quick()).await;
    node.client.start_orchestration("i", "Countdown", "3").await.unwrap();
    assert_eq!(node.output_of("i").await, "execution 4");
    for execution_id in 1..=3 {
        let last = node.history("i", execution_id).await.pop().unwrap();
        assert!(matches!(last.kind, EventKind::OrchestrationContinuedAsNew { .. }), "{last:?}");
    }
    node.runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_child_returns_its_output_to_its_parent() {
    let node = node(quick()).await;
    node.client.start_orchestration("p", "Parent", "").await.unwrap();
    assert_eq!(node.output_of("p").await, chain_output());
    assert_eq!(node.output_of("p::sub::2").await, chain_output());
    let descriptor = node.runtime.get_orchestration_descriptor("p::sub::2").await.unwrap();
    assert_eq!((descriptor.name.as_str(), descriptor.version.as_str()), ("Chain", "1.0.0"));
    assert_eq!((descriptor.parent_instance.as_deref(), descriptor.parent_id), (Some("p"), Some(2)));
    assert_eq!(node.runtime.get_orchestration_descriptor("unknown").await, None);
    node.runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_child_whose_id_is_taken_fails_its_parent_call() {
    let node = node(quick()).await;
    node.client.start_orchestration("running", "Waiter", "").await.unwrap();
    node.client.start_orchestration("done", "Chain", "").await.unwrap();
    node.output_of("done").await;
    node.committed("running").await;
    node.client.start_orchestration("a", "Adopts", "running").await.unwrap();
    node.client.start_orchestration("b", "Adopts", "done").await.unwrap();
    assert_eq!(
        node.failure_of("a").await.display_message(),
        "sub-orchestration instance id 'running' already exists"
    );
    assert_eq!(
        node.failure_of("b").await.display_message(),
        "sub-orchestration instance id 'done' already exists and is terminal"
    );
    node.client.raise_event("running", "go", "still here").await.unwrap();
    assert_eq!(node.output_of("running").await, "still here");
    node.runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_second_start_changes_nothing() {
    let node = node(quick()).await;
    node.client.start_orchestration("i", "Waiter", "").await.unwrap();
    node.client.start_orchestration("i", "Countdown", "3").await.unwrap();
    until("the waiter waits", async || {
        node.client.read_execution_history("i", 1).await.is_ok_and(|history| {
            history.iter().any(|event| matches!(event.kind, EventKind::ExternalSubscribed { .. }))
        })
    })
    .await;
    node.client.start_orchestration("i", "Countdown", "3").await.unwrap();
    node.client.raise_event("i", "go", "first").await.unwrap();
    assert_eq!(node.output_of("i").await, "first");
    node.client.start_orchestration("i", "Chain", "").await.unwrap();
    node.client.start_orchestration("later", "Chain", "").await.unwrap();
    node.output_of("later").await;
    assert_eq!(node.output_of("i").await, "first");
    node.runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_child_without_a_parent_execution_answers_the_current_one() {
    let store = memory();
    let node = NodeUnderTest::start(store.clone(), activities(), orchestrations(), quick()).await;
    node.client.start_orchestration("p", "Waiter", "").await.unwrap();
    node.committed("p").await;
    let start = WorkItem::StartOrchestration {
        instance: "c".into(),
        orchestration: "Chain".into(),
        input: String::new(),
        version: None,
        parent_instance: Some("p".into()),
        parent_id: Some(77),
        parent_execution_id: None,
        execution_id: 1,
    };
    store.enqueue_for_orchestrator(start, None).await.unwrap();
    // The parent has no event 77. Its failure shows that the notice reached its current execution.
    assert_eq!(
        node.failure_of("p").await.display_message(),
        "nondeterministic: no matching schedule for sub-orchestration id=77"
    );
    node.runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_timer_that_loses_a_race_changes_nothing() {
    let registry = OrchestrationRegistry::builder()
        .register("Race", |ctx: OrchestrationContext, _: String| async move {
            let timer = ctx.schedule_timer(std::time::Duration::from_millis(20));
            match ctx.select2(ctx.schedule_activity("Echo", "fast"), timer).await {
                Either2::First(result) => result,
                Either2::Second(()) => Err("too slow".to_owned()),
            }
        })
        .build();
    let node = NodeUnderTest::start(memory(), activities(), registry, quick()).await;
    node.client.start_orchestration("i", "Race", "").await.unwrap();
    assert_eq!(node.output_of("i").await, "fast");
    node.runtime.shutdown(None).await;
}

async fn a_second_failure_of_an_activity_is_dropped(store: TestStore) {
    let activities = ActivityRegistry::builder()
        .register("Fails", |_: ActivityContext, _: String| async move { Err("no luck".to_owned()) })
        .build();
    let orchestrations = OrchestrationRegistry::builder()
        .register("Handles", |ctx: OrchestrationContext, _: String| async move {
            let error = ctx.schedule_activity("Fails", "").await.unwrap_err();
            ctx.set_custom_status("handled");
            ctx.schedule_wait("go").await;
            Ok(error)
        })
        .build();
    let node = NodeUnderTest::start(store.provider(), activities, orchestrations, quick()).await;
    node.client.start_orchestration("i", "Handles", "").await.unwrap();
    node.until_status("i", "handled").await;
    // The second of these would fail the instance if it were the first outcome.
    for details in [
        ErrorDetails::orchestration_failed("again"),
        ErrorDetails::Infrastructure { operation: "o".into(), message: "m".into(), retryable: false },
    ] {
        let again = WorkItem::ActivityFailed { instance: "i".into(), execution_id: 1, id: 2, details };
        store.provider().enqueue_for_orchestrator(again, None).await.unwrap();
    }
    node.client.raise_event("i", "go", "").await.unwrap();
    assert_eq!(node.output_of("i").await, "no luck");
    let history = node.history("i", 1).await;
    let failures = history.iter().filter(|event| matches!(event.kind, EventKind::ActivityFailed { .. }));
    assert_eq!(failures.count(), 1);
    node.runtime.shutdown(None).await;
}
