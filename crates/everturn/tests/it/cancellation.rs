//! Which ends of a future, a turn or an instance cancel activities, and the reason that history records.

use std::sync::Arc;
use std::time::Duration;

use everturn::runtime::registry::{ActivityRegistry, OrchestrationRegistry};
use everturn::{ActivityContext, EventKind, OrchestrationContext, RuntimeOptions};
use tokio::sync::Semaphore;

use crate::node_under_test::{NodeUnderTest, PATIENCE};
use crate::stores::{TestStore, on_every_store};
use crate::tampering_store::TamperingStore;

on_every_store!(
    a_select_loser_is_cancelled,
    a_dropped_future_cancels_its_activity,
    a_cancelled_instance_cancels_its_activities,
    a_failing_orchestration_cancels_its_activities,
    continue_as_new_cancels_the_activities_of_the_old_execution,
    fifty_outstanding_activities_are_cancelled_in_one_ack,
    unfetched_activities_are_deleted_with_the_turn,
);

/// The activity `Wait` runs until it is cancelled. The semaphores count starts and cancellations.
struct WaitingActivity {
    started: Arc<Semaphore>,
    cancelled: Arc<Semaphore>,
    registry: ActivityRegistry,
}

fn waiting() -> WaitingActivity {
    let (started, cancelled) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (starts, cancels) = (Arc::clone(&started), Arc::clone(&cancelled));
    let registry = ActivityRegistry::builder()
        .register("Wait", move |ctx: ActivityContext, _input: String| {
            let (starts, cancels) = (Arc::clone(&starts), Arc::clone(&cancels));
            async move {
                starts.add_permits(1);
                ctx.cancelled().await;
                cancels.add_permits(1);
                Err("cancelled".to_owned())
            }
        })
        .build();
    WaitingActivity { started, cancelled, registry }
}

async fn count(semaphore: &Semaphore, permits: u32) {
    tokio::time::timeout(PATIENCE, semaphore.acquire_many(permits)).await.expect("in time").unwrap().forget();
}

/// Runs an orchestration with one waiting activity, sends `trigger`, and expects the activity to be cancelled for `reason`.
async fn is_cancelled_with_reason<F, Fut>(store: TestStore, orchestration: F, trigger: &str, reason: &str)
where
    F: Fn(OrchestrationContext, String) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<String, String>> + Send + 'static,
{
    let waiting = waiting();
    let orchestrations = OrchestrationRegistry::builder().register("Test", orchestration).build();
    let node = NodeUnderTest::start(
        store.provider(),
        waiting.registry.clone(),
        orchestrations,
        RuntimeOptions::default(),
    )
    .await;
    node.client.start_orchestration("one", "Test", "first").await.unwrap();
    count(&waiting.started, 1).await;
    match trigger {
        "cancel" => node.client.cancel_instance("one", "enough").await.unwrap(),
        signal => node.client.raise_event("one", signal, "").await.unwrap(),
    }
    count(&waiting.cancelled, 1).await;
    node.end_of("one").await;
    let history = node.history("one", 1).await;
    let recorded = history.iter().find_map(|event| match &event.kind {
        EventKind::ActivityCancelRequested { reason } => Some(reason.clone()),
        _ => None,
    });
    assert_eq!(recorded.as_deref(), Some(reason));
    assert!(!history.iter().any(|event| matches!(event.kind, EventKind::ActivityFailed { .. })));
    assert_eq!(node.client.get_queue_depths().await.unwrap().worker_queue, 0);
    node.runtime.shutdown(None).await;
}

async fn a_select_loser_is_cancelled(store: TestStore) {
    let orchestration = |ctx: OrchestrationContext, _: String| async move {
        let (activity, signal) = (ctx.schedule_activity("Wait", ""), ctx.schedule_wait("go"));
        ctx.select2(activity, signal).await;
        ctx.schedule_timer(Duration::from_millis(1)).await;
        Ok(String::new())
    };
    is_cancelled_with_reason(store, orchestration, "go", "dropped_future").await;
}

async fn a_dropped_future_cancels_its_activity(store: TestStore) {
    let orchestration = |ctx: OrchestrationContext, _: String| async move {
        let activity = ctx.schedule_activity("Wait", "");
        ctx.schedule_wait("go").await;
        drop(activity);
        ctx.schedule_timer(Duration::from_millis(1)).await;
        Ok(String::new())
    };
    is_cancelled_with_reason(store, orchestration, "go", "dropped_future").await;
}

async fn a_cancelled_instance_cancels_its_activities(store: TestStore) {
    let orchestration =
        |ctx: OrchestrationContext, _: String| async move { ctx.schedule_activity("Wait", "").await };
    is_cancelled_with_reason(store, orchestration, "cancel", "orchestration_terminal_failed").await;
}

async fn a_failing_orchestration_cancels_its_activities(store: TestStore) {
    let orchestration = |ctx: OrchestrationContext, _: String| async move {
        std::mem::forget(ctx.schedule_activity("Wait", ""));
        ctx.schedule_wait("go").await;
        Err("on purpose".to_owned())
    };
    is_cancelled_with_reason(store, orchestration, "go", "orchestration_terminal_failed").await;
}

async fn continue_as_new_cancels_the_activities_of_the_old_execution(store: TestStore) {
    let orchestration = |ctx: OrchestrationContext, input: String| async move {
        if input == "second" {
            return Ok(input);
        }
        let _activity = ctx.schedule_activity("Wait", "");
        ctx.schedule_wait("go").await;
        ctx.continue_as_new("second").await
    };
    is_cancelled_with_reason(store, orchestration, "go", "orchestration_terminal_continued_as_new").await;
}

async fn fifty_outstanding_activities_are_cancelled_in_one_ack(store: TestStore) {
    let waiting = waiting();
    let orchestrations = OrchestrationRegistry::builder()
        .register("Test", |ctx: OrchestrationContext, _: String| async move {
            let many = (0..50).map(|_| ctx.schedule_activity("Wait", "")).collect();
            let (many, signal) = (ctx.join(many), ctx.schedule_wait("go"));
            ctx.select2(many, signal).await;
            Ok("left".to_owned())
        })
        .build();
    let store = TamperingStore::new(store.provider(), |_| None);
    let node = NodeUnderTest::start(
        store.clone(),
        waiting.registry.clone(),
        orchestrations,
        RuntimeOptions::default(),
    )
    .await;
    node.client.start_orchestration("one", "Test", "").await.unwrap();
    count(&waiting.started, 50).await;
    node.client.raise_event("one", "go", "").await.unwrap();
    count(&waiting.cancelled, 50).await;
    assert_eq!(node.output_of("one").await, "left");
    let history = node.history("one", 1).await;
    let cancels =
        history.iter().filter(|event| matches!(event.kind, EventKind::ActivityCancelRequested { .. }));
    assert_eq!(cancels.count(), 50);
    node.runtime.shutdown(None).await;
    let per_commit: Vec<usize> =
        store.commits().iter().map(|commit| commit.cancelled_activities.len()).filter(|n| *n > 0).collect();
    assert_eq!(per_commit, [50], "one commit carries them all");
}

async fn unfetched_activities_are_deleted_with_the_turn(store: TestStore) {
    let orchestrations = OrchestrationRegistry::builder()
        .register("Test", |ctx: OrchestrationContext, _: String| async move {
            let activity = ctx.schedule_activity("Wait", "").with_tag("unserved");
            let signal = ctx.schedule_wait("go");
            ctx.set_custom_status("waiting");
            ctx.select2(activity, signal).await;
            Ok("left".to_owned())
        })
        .build();
    let node =
        NodeUnderTest::start(store.provider(), waiting().registry, orchestrations, RuntimeOptions::default())
            .await;
    node.client.start_orchestration("one", "Test", "").await.unwrap();
    node.until_status("one", "waiting").await;
    assert_eq!(node.client.get_queue_depths().await.unwrap().worker_queue, 1);
    node.client.raise_event("one", "go", "").await.unwrap();
    assert_eq!(node.output_of("one").await, "left");
    assert_eq!(node.client.get_queue_depths().await.unwrap().worker_queue, 0);
    node.runtime.shutdown(None).await;
}
