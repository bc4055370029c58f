//! Retry of activities: attempts, delays, timeouts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use everturn::runtime::registry::{ActivityRegistry, OrchestrationRegistry};
use everturn::{BackoffStrategy, EventKind, OrchestrationContext, RetryPolicy, RuntimeOptions};

use crate::node_under_test::{NodeUnderTest, quick};
use crate::stores::{TestStore, on_every_store};

on_every_store!(
    a_failing_activity_is_tried_again_until_it_succeeds,
    after_the_last_attempt_the_last_error_is_returned,
    a_delay_between_attempts_is_a_durable_timer,
    an_attempt_that_takes_too_long_is_not_tried_again,
    retried_calls_made_before_the_first_await_run_at_the_same_time,
);

/// `Fails` fails as many times as its input says, then returns the number of the run.
fn activities(runs: &Arc<AtomicU32>) -> ActivityRegistry {
    let runs = Arc::clone(runs);
    ActivityRegistry::builder()
        .register("Fails", move |_ctx, times: String| {
            let run = runs.fetch_add(1, Ordering::SeqCst) + 1;
            async move {
                if run <= times.parse().unwrap() {
                    Err(format!("failure {run}"))
                } else {
                    Ok(format!("run {run}"))
                }
            }
        })
        .register("Hangs", |_ctx, _: String| async move {
            std::future::pending::<()>().await;
            Ok(String::new())
        })
        .build()
}

fn orchestrations() -> OrchestrationRegistry {
    let policy = |delay: u64| {
        let backoff = match delay {
            0 => BackoffStrategy::None,
            delay => BackoffStrategy::Fixed { delay: Duration::from_millis(delay) },
        };
        RetryPolicy::new(3).with_backoff(backoff)
    };
    OrchestrationRegistry::builder()
        .register("AtOnce", move |ctx: OrchestrationContext, times: String| async move {
            ctx.schedule_activity_with_retry("Fails", times, policy(0)).await
        })
        .register("Later", move |ctx: OrchestrationContext, times: String| async move {
            ctx.schedule_activity_with_retry("Fails", times, policy(1)).await
        })
        .register("TooLong", move |ctx: OrchestrationContext, _: String| async move {
            let policy = policy(0).with_timeout(Duration::from_millis(1));
            ctx.schedule_activity_with_retry("Hangs", "", policy).await
        })
        .build()
}

/// Every turn replays the whole history, which shows that the retry loop is deterministic.
async fn node_on(store: &TestStore, runs: &Arc<AtomicU32>) -> NodeUnderTest {
    let options = RuntimeOptions {
        warm_instances_max: 0,
        activity_cancellation_grace_period: Duration::from_millis(1),
        ..quick()
    };
    NodeUnderTest::start(store.provider(), activities(runs), orchestrations(), options).await
}

async fn count(node: &NodeUnderTest, wanted: fn(&EventKind) -> bool) -> usize {
    node.history("i", 1).await.iter().filter(|event| wanted(&event.kind)).count()
}

async fn a_failing_activity_is_tried_again_until_it_succeeds(store: TestStore) {
    let runs = Arc::default();
    let node = node_on(&store, &runs).await;
    node.client.start_orchestration("i", "AtOnce", "2").await.unwrap();
    assert_eq!(node.output_of("i").await, "run 3");
    assert_eq!(count(&node, |kind| matches!(kind, EventKind::TimerCreated { .. })).await, 0);
    node.runtime.shutdown(None).await;
}

async fn after_the_last_attempt_the_last_error_is_returned(store: TestStore) {
    let runs = Arc::default();
    let node = node_on(&store, &runs).await;
    node.client.start_orchestration("i", "AtOnce", "9").await.unwrap();
    assert_eq!(node.failure_of("i").await.display_message(), "failure 3");
    assert_eq!(runs.load(Ordering::SeqCst), 3);
    node.runtime.shutdown(None).await;
}

async fn a_delay_between_attempts_is_a_durable_timer(store: TestStore) {
    let runs = Arc::default();
    let node = node_on(&store, &runs).await;
    node.client.start_orchestration("i", "Later", "2").await.unwrap();
    assert_eq!(node.output_of("i").await, "run 3");
    assert_eq!(count(&node, |kind| matches!(kind, EventKind::TimerFired { .. })).await, 2);
    node.runtime.shutdown(None).await;
}

async fn retried_calls_made_before_the_first_await_run_at_the_same_time(store: TestStore) {
    let both = Arc::new(tokio::sync::Barrier::new(2));
    let activities = ActivityRegistry::builder()
        .register("Meet", move |_ctx, input: String| {
            let both = Arc::clone(&both);
            async move {
                both.wait().await;
                Ok(input)
            }
        })
        .build();
    let orchestrations = OrchestrationRegistry::builder()
        .register("Meetings", |ctx: OrchestrationContext, _: String| async move {
            let first = ctx.schedule_activity_with_retry("Meet", "a", RetryPolicy::default());
            let second = ctx.schedule_activity_with_retry("Meet", "b", RetryPolicy::default());
            Ok(first.await? + &second.await?)
        })
        .build();
    let node = NodeUnderTest::start(store.provider(), activities, orchestrations, quick()).await;
    node.client.start_orchestration("i", "Meetings", "").await.unwrap();
    assert_eq!(node.output_of("i").await, "ab");
    node.runtime.shutdown(None).await;
}

async fn an_attempt_that_takes_too_long_is_not_tried_again(store: TestStore) {
    let runs = Arc::default();
    let node = node_on(&store, &runs).await;
    node.client.start_orchestration("i", "TooLong", "").await.unwrap();
    assert_eq!(node.failure_of("i").await.display_message(), "timeout: activity timed out");
    assert_eq!(count(&node, |kind| matches!(kind, EventKind::ActivityScheduled { .. })).await, 1);
    node.runtime.shutdown(None).await;
}
