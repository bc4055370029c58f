//! Turns whose commit fails: retried, abandoned, or recorded as a failure of the instance.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use everturn::providers::{Provider, ProviderError};
use everturn::runtime::registry::{ActivityRegistry, OrchestrationRegistry};
use everturn::{ErrorDetails, EventKind, OrchestrationContext, RuntimeOptions};

use crate::node_under_test::{NodeUnderTest, memory, quick, until};
use crate::tampering_store::TamperingStore;

fn activities() -> ActivityRegistry {
    ActivityRegistry::builder().register("Echo", |_ctx, input: String| async move { Ok(input) }).build()
}

fn orchestrations() -> OrchestrationRegistry {
    OrchestrationRegistry::builder()
        .register("Two", |ctx: OrchestrationContext, _: String| async move {
            let first = ctx.schedule_activity("Echo", "a").await?;
            let second = ctx.schedule_activity("Echo", "b").await?;
            Ok(first + &second)
        })
        .register("Parent", |ctx: OrchestrationContext, _: String| async move {
            ctx.schedule_sub_orchestration_with_id("Two", "child", "").await
        })
        .register(
            "Waits",
            |ctx: OrchestrationContext, _: String| async move { Ok(ctx.schedule_wait("go").await) },
        )
        .register("Family", |ctx: OrchestrationContext, _: String| async move {
            let child = ctx.schedule_sub_orchestration_with_id("Waits", "open-child", "");
            ctx.schedule_wait("go").await;
            child.await
        })
        .build()
}

/// A node on a store that fails some commits: `fails(n)` decides about the n-th, counting from 1.
async fn node_with(
    options: RuntimeOptions,
    fails: impl Fn(usize) -> Option<ProviderError> + Send + 'static,
) -> (NodeUnderTest, Arc<TamperingStore>) {
    let commits = AtomicUsize::new(0);
    let store = TamperingStore::new(memory(), move |operation| match operation {
        "commit_turn" => fails(commits.fetch_add(1, Ordering::SeqCst) + 1),
        _ => None,
    });
    let provider: Arc<dyn Provider> = store.clone();
    (NodeUnderTest::start(provider, activities(), orchestrations(), options).await, store)
}

#[tokio::test]
async fn a_retryable_commit_error_is_retried_and_not_visible() {
    let busy = |n: usize| (!n.is_multiple_of(3)).then(|| ProviderError::retryable("commit", "busy"));
    let (node, store) = node_with(quick(), busy).await;
    node.client.start_orchestration("i", "Two", "").await.unwrap();
    assert_eq!(node.output_of("i").await, "ab");
    assert_eq!(store.count("commit_turn"), 9, "three turns, each at the third try");
    let snapshot = node.runtime.metrics_snapshot().unwrap();
    assert_eq!((snapshot.orch_starts, snapshot.orch_completions, snapshot.orch_failures), (1, 1, 0));
    node.runtime.shutdown(None).await;
}

#[tokio::test]
async fn commit_errors_that_outlast_the_lock_redeliver_the_messages() {
    let options = RuntimeOptions { orchestrator_lock_timeout: Duration::from_millis(200), ..quick() };
    let disk_full_for_a_while = |n: usize| (n <= 6).then(|| ProviderError::retryable("commit", "disk full"));
    let commits = AtomicUsize::new(0);
    let store = TamperingStore::new(memory(), move |operation| match operation {
        "commit_turn" => disk_full_for_a_while(commits.fetch_add(1, Ordering::SeqCst) + 1),
        // Renewals fail as well, so the first lock is lost.
        "renew/locks" => Some(ProviderError::retryable("renew", "disk full")),
        _ => None,
    });
    let node = NodeUnderTest::start(store.clone(), activities(), orchestrations(), options).await;
    node.client.start_orchestration("i", "Two", "").await.unwrap();
    assert_eq!(node.output_of("i").await, "ab");
    assert_eq!(node.runtime.metrics_snapshot().unwrap().orch_failures, 0);
    node.runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_lost_lock_records_nothing() {
    let lost_once = |n: usize| (n == 1).then(|| ProviderError::lock_lost("commit", "Invalid lock token"));
    let options = RuntimeOptions { orchestrator_lock_timeout: Duration::from_millis(200), ..quick() };
    let (node, _) = node_with(options, lost_once).await;
    node.client.start_orchestration("i", "Two", "").await.unwrap();
    assert_eq!(node.output_of("i").await, "ab");
    node.runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_refused_first_turn_fails_the_instance_and_notifies_its_parent() {
    // The first commit is the parent's turn, the second the child's first turn.
    let refused = |n: usize| (n == 2).then(|| ProviderError::permanent("commit", "no such column"));
    let (node, _) = node_with(RuntimeOptions { orchestration_concurrency: 1, ..quick() }, refused).await;
    node.client.start_orchestration("p", "Parent", "").await.unwrap();
    let details = ErrorDetails::Infrastructure {
        operation: "commit".into(),
        message: "no such column".into(),
        retryable: false,
    };
    assert_eq!(node.failure_of("child").await, details);
    assert_eq!(node.failure_of("p").await, details);
    let history = node.history("child", 1).await;
    let ids: Vec<u64> = history.iter().map(|event| event.event_id).collect();
    assert_eq!(ids, [1, 2]);
    let snapshot = node.runtime.metrics_snapshot().unwrap();
    assert_eq!((snapshot.orch_starts, snapshot.orch_failures), (2, 2));
    node.runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_refused_warm_turn_is_tried_again_cold() {
    let refused =
        |n: usize| (n == 2).then(|| ProviderError::permanent("commit", "the cached state was wrong"));
    let warm = RuntimeOptions { warm_instances_max: 1_000, ..quick() };
    let (node, store) = node_with(warm, refused).await;
    node.client.start_orchestration("i", "Two", "").await.unwrap();
    assert_eq!(node.output_of("i").await, "ab");
    assert_eq!(store.count("abandon_turn"), 1);
    node.runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_refused_turn_cancels_what_was_open() {
    // Commits: the parent's first turn, the child's first turn, then the refused one.
    let refused = |n: usize| (n == 3).then(|| ProviderError::permanent("commit", "refused"));
    let options = RuntimeOptions { warm_instances_max: 0, orchestration_concurrency: 1, ..quick() };
    let (node, store) = node_with(options, refused).await;
    node.client.start_orchestration("p", "Family", "").await.unwrap();
    until("both instances wait", async || store.count("commit_turn") == 2).await;
    node.committed("open-child").await;
    node.client.raise_event("p", "go", "").await.unwrap();
    assert!(matches!(node.failure_of("p").await, ErrorDetails::Infrastructure { .. }));
    assert_eq!(node.failure_of("open-child").await.display_message(), "canceled: parent failed");
    let kinds: Vec<EventKind> = node.history("p", 1).await.into_iter().map(|event| event.kind).collect();
    assert!(
        matches!(
            &kinds[..],
            [
                EventKind::OrchestrationStarted { .. },
                EventKind::SubOrchestrationScheduled { .. },
                EventKind::ExternalSubscribed { .. },
                EventKind::ExternalSubscribedCancelled { .. },
                EventKind::OrchestrationFailed { .. },
            ]
        ),
        "the wait is closed: {kinds:?}"
    );
    node.runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_provider_that_panics_does_not_end_a_slot() {
    let panics = |n: usize| {
        assert!(n != 1, "a bug in the provider");
        None
    };
    let options = RuntimeOptions {
        orchestration_concurrency: 1,
        orchestrator_lock_timeout: Duration::from_millis(200),
        ..quick()
    };
    let (node, _) = node_with(options, panics).await;
    node.client.start_orchestration("i", "Two", "").await.unwrap();
    assert_eq!(node.output_of("i").await, "ab");
    node.runtime.shutdown(None).await;
}

/// A node on a store that commits every turn and answers with an error. If `silent`, it runs no check-in either.
async fn node_without_answers(silent: bool) -> (NodeUnderTest, Arc<TamperingStore>) {
    let store = TamperingStore::new(memory(), move |operation| match operation {
        "answer_commit" => Some(ProviderError::retryable("commit", "connection cut")),
        "check_in" if silent => Some(ProviderError::retryable("commit", "connection cut")),
        _ => None,
    });
    let provider: Arc<dyn Provider> = store.clone();
    (NodeUnderTest::start(provider, activities(), orchestrations(), quick()).await, store)
}

#[tokio::test]
async fn a_commit_whose_answer_is_lost_counts_as_committed() {
    for (silent, commits) in [(false, 3), (true, 6)] {
        let (node, store) = node_without_answers(silent).await;
        node.client.start_orchestration("i", "Two", "").await.unwrap();
        assert_eq!(node.output_of("i").await, "ab");
        let snapshot = || node.runtime.metrics_snapshot().unwrap();
        until("the last turn is counted", async || snapshot().orch_completions == 1).await;
        assert_eq!(
            (snapshot().orch_starts, snapshot().orch_failures, snapshot().activity_success),
            (1, 0, 2)
        );
        assert_eq!(store.count("commit_turn"), commits, "silent: {silent}");
        assert_eq!(store.count("abandon_turn"), 0);
        assert_eq!(node.history("i", 1).await.len(), 6);
        node.runtime.shutdown(None).await;
    }
}

#[tokio::test]
async fn a_commit_refused_as_a_duplicate_fails_nothing() {
    let (commits, answers) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let store = TamperingStore::new(memory(), move |operation| match operation {
        // The first turn is committed, answered with an error, and refused when it is repeated.
        "answer_commit" if answers.fetch_add(1, Ordering::SeqCst) == 0 => {
            Some(ProviderError::retryable("commit", "connection cut"))
        }
        "commit_turn" if commits.fetch_add(1, Ordering::SeqCst) == 1 => {
            Some(ProviderError::permanent("commit", "duplicate event id"))
        }
        "check_in" => Some(ProviderError::retryable("commit", "connection cut")),
        _ => None,
    });
    let node = NodeUnderTest::start(store.clone(), activities(), orchestrations(), quick()).await;
    node.client.start_orchestration("i", "Waits", "").await.unwrap();
    until("it is refused", async || store.count("commit_turn") == 2).await;
    node.client.raise_event("i", "go", "on").await.unwrap();
    assert_eq!(node.output_of("i").await, "on");
    let snapshot = node.runtime.metrics_snapshot().unwrap();
    assert_eq!((snapshot.orch_starts, snapshot.orch_failures), (1, 0));
    assert_eq!(node.history("i", 1).await.len(), 4);
    node.runtime.shutdown(None).await;
}
