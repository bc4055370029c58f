//! The instrumented provider forwards every call unchanged and records metrics.

use std::sync::Arc;
use std::time::Duration;

use everturn::providers::instrumented::InstrumentedProvider;
use everturn::providers::memory::MemoryProvider;
use everturn::providers::store::{
    ExecutionRead, LockKind, LockRenewal, Renewal, SessionRenewal, Settlement, Store, Submission, Sweep,
    TurnAbandon, TurnCommit, TurnFetch, WorkFetch,
};
use everturn::providers::{Provider, ProviderError, WorkItem};
use everturn::runtime::observability::{MetricsProvider, ObservabilityConfig};
use metrics_util::debugging::DebuggingRecorder;

use crate::recording_store::RecordingStore;

const SECOND: Duration = Duration::from_secs(1);

fn message() -> WorkItem {
    WorkItem::CancelInstance { instance: "i".into(), reason: "r".into() }
}

fn renewal() -> Renewal {
    let lock = LockRenewal { kind: LockKind::WorkItem, token: "t".into(), extend_for: SECOND };
    let owner_ids = vec!["o".to_owned()];
    let mut renewal = Renewal::of_locks(vec![lock]);
    renewal.sessions = Some(SessionRenewal { owner_ids, extend_for: SECOND, idle_timeout: SECOND });
    renewal
}

/// Calls every verb once and ignores the answers.
async fn call_everything(store: &dyn Store) {
    drop(store.fetch_turns(&TurnFetch::new(SECOND, SECOND)).await);
    drop(store.commit_turn(&TurnCommit::new("t", 1)).await);
    drop(store.abandon_turn(&TurnAbandon::new("t")).await);
    drop(store.fetch_work(&WorkFetch::new(SECOND, SECOND)).await);
    drop(store.settle_work(&Settlement::end("t", None)).await);
    drop(store.renew(&renewal()).await);
    drop(store.submit(&Submission::of(message())).await);
    drop(store.sweep(&Sweep::new(SECOND)).await);
    drop(store.read_status("i").await);
    drop(store.read_execution(&ExecutionRead::latest("i")).await);
    drop(store.read_custom_status("i", 0).await);
    drop(store.read_kv_value("i", "k").await);
    drop(store.read_kv_values("i").await);
    drop(store.read_stats("i").await);
    drop(store.read_orchestration_name("i").await);
    drop(store.watch("i"));
}

fn counting() -> Arc<MetricsProvider> {
    Arc::new(MetricsProvider::new(&ObservabilityConfig::default()).unwrap())
}

/// Runs on this thread only, where a thread-local recorder sees every metric.
fn run(future: impl Future) {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future);
}

#[test]
fn every_verb_reaches_the_store_inside() {
    let inner = Arc::new(RecordingStore::default());
    run(async {
        call_everything(inner.as_ref()).await;
        let direct = inner.take_calls();
        for metrics in [None, Some(counting())] {
            call_everything(&InstrumentedProvider::new(inner.clone(), metrics)).await;
            assert_eq!(inner.take_calls(), direct);
        }
    });
}

#[test]
fn answers_come_back_unchanged() {
    let store = InstrumentedProvider::new(Arc::new(RecordingStore::default()), Some(counting()));
    assert_eq!((Store::name(&store), Store::version(&store)), ("recording", "9.9.9"));
    assert_eq!((store.payload_bytes_max(), Store::now_ms(&store)), (8, 77));
    assert!(store.as_management_capability().is_none());
    run(async {
        assert_eq!(store.renew_session_lock(&["o"], SECOND, SECOND).await, Ok(5));
        assert_eq!(store.cleanup_orphaned_sessions(SECOND).await, Ok(6));
    });
    let managed = InstrumentedProvider::new(Arc::new(MemoryProvider::new()), None);
    assert!(managed.as_management_capability().is_some());
}

/// The label `operation` is the name of the verb.
#[test]
fn every_verb_is_timed_under_its_name() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let store = InstrumentedProvider::new(Arc::new(RecordingStore::default()), Some(counting()));
    metrics::with_local_recorder(&recorder, || run(call_everything(&store)));
    let mut operations: Vec<_> = snapshotter
        .snapshot()
        .into_vec()
        .into_iter()
        .map(|(key, ..)| {
            assert_eq!(key.key().name(), "everturn_provider_operation_duration_seconds");
            key.key().labels().map(|label| label.value().to_owned()).collect::<Vec<_>>().join(" ")
        })
        .collect();
    operations.sort();
    let expected = [
        "abandon_turn success",
        "commit_turn success",
        "fetch_turns success",
        "fetch_work success",
        "read_custom_status success",
        "read_execution success",
        "read_kv_value success",
        "read_kv_values success",
        "read_orchestration_name success",
        "read_stats success",
        "read_status success",
        "renew success",
        "settle_work success",
        "submit success",
        "sweep success",
    ];
    assert_eq!(operations, expected);
}

#[test]
fn errors_pass_through_and_are_counted() {
    let error = ProviderError::retryable("read", "deadlock");
    let metrics = counting();
    let store =
        InstrumentedProvider::new(Arc::new(RecordingStore::failing(error.clone())), Some(metrics.clone()));
    run(async { assert_eq!(store.read("i").await, Err(error)) });
    assert_eq!(metrics.snapshot().provider_errors, 1);
}
