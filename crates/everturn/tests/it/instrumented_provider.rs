//! The instrumented provider forwards every call unchanged and records metrics.

use std::sync::Arc;
use std::time::Duration;

use everturn::TagFilter;
use everturn::providers::instrumented::InstrumentedProvider;
use everturn::providers::memory::MemoryProvider;
use everturn::providers::{
    ExecutionMetadata, LentInstance, LockKind, LockRenewal, Provider, ProviderError, Stamp, TurnCommit,
    WarmView, WorkItem,
};
use everturn::runtime::observability::{MetricsProvider, ObservabilityConfig};
use metrics_util::debugging::DebuggingRecorder;

use crate::recording_provider::RecordingProvider;

const SECOND: Duration = Duration::from_secs(1);

struct NothingWarm;

impl WarmView for NothingWarm {
    fn lend(&self, _instance: &str, _execution_id: u64, _stamp: Stamp) -> Option<LentInstance> {
        None
    }
}

fn message() -> WorkItem {
    WorkItem::CancelInstance { instance: "i".into(), reason: "r".into() }
}

fn commit() -> TurnCommit {
    TurnCommit {
        lock_token: "t".into(),
        execution_id: 1,
        history_delta: vec![],
        worker_items: vec![],
        orchestrator_items: vec![],
        metadata: ExecutionMetadata::default(),
        cancelled_activities: vec![],
        base: None,
        stamp: Stamp(1),
        check_in: None,
    }
}

/// Calls every method once and ignores the answers.
async fn call_everything(store: &dyn Provider) {
    let renewal = LockRenewal { kind: LockKind::WorkItem, token: "t".into(), extend_for: SECOND };
    drop(store.fetch_orchestration_item(SECOND, SECOND, None).await);
    drop(
        store
            .ack_orchestration_item("t", 1, vec![], vec![], vec![], ExecutionMetadata::default(), vec![])
            .await,
    );
    drop(store.abandon_orchestration_item("t", None, true).await);
    drop(store.read("i").await);
    drop(store.read_with_execution("i", 1).await);
    drop(store.append_with_execution("i", 1, vec![]).await);
    drop(store.enqueue_for_worker(message()).await);
    drop(store.fetch_work_item(SECOND, SECOND, None, &TagFilter::Any).await);
    drop(store.ack_work_item("t", None).await);
    drop(store.renew_work_item_lock("t", SECOND).await);
    drop(store.renew_session_lock(&["o"], SECOND, SECOND).await);
    drop(store.cleanup_orphaned_sessions(SECOND).await);
    drop(store.abandon_work_item("t", None, true).await);
    drop(store.renew_orchestration_item_lock("t", SECOND).await);
    drop(store.enqueue_for_orchestrator(message(), None).await);
    drop(store.get_custom_status("i", 0).await);
    drop(store.get_kv_value("i", "k").await);
    drop(store.get_kv_all_values("i").await);
    drop(store.get_instance_stats("i").await);
    drop(store.fetch_turn(SECOND, SECOND, None, Arc::new(NothingWarm)).await);
    drop(store.commit_turn(&commit()).await);
    drop(store.renew_locks(&[renewal]).await);
    drop(store.read_status("i").await);
    drop(store.watch_instance("i"));
    drop(store.read_orchestration_name("i").await);
}

fn counting() -> Arc<MetricsProvider> {
    Arc::new(MetricsProvider::new(&ObservabilityConfig::default()).unwrap())
}

/// Runs on this thread only, where a thread-local recorder sees every metric.
fn run(future: impl Future) {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future);
}

#[test]
fn every_method_reaches_the_provider_inside() {
    let inner = Arc::new(RecordingProvider::default());
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
    let store = InstrumentedProvider::new(Arc::new(RecordingProvider::default()), Some(counting()));
    assert_eq!((store.name(), store.version()), ("recording", "9.9.9"));
    assert_eq!((store.payload_bytes_max(), store.now_ms()), (8, 77));
    assert!(store.as_management_capability().is_none());
    run(async {
        assert_eq!(store.renew_session_lock(&["o"], SECOND, SECOND).await, Ok(5));
        assert_eq!(store.cleanup_orphaned_sessions(SECOND).await, Ok(6));
    });
    let managed = InstrumentedProvider::new(Arc::new(MemoryProvider::new()), None);
    assert!(managed.as_management_capability().is_some());
}

#[test]
fn the_documented_operations_are_timed() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let store = InstrumentedProvider::new(Arc::new(RecordingProvider::default()), Some(counting()));
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
        "ack_orchestration_item success",
        "ack_work_item success",
        "cleanup_orphaned_sessions success",
        "enqueue_orchestrator success",
        "fetch_orchestration_item success",
        "fetch_work_item success",
        "read success",
        "renew_session_lock success",
    ];
    assert_eq!(operations, expected);
}

#[test]
fn errors_pass_through_and_are_counted() {
    let error = ProviderError::retryable("read", "deadlock");
    let metrics = counting();
    let store =
        InstrumentedProvider::new(Arc::new(RecordingProvider::failing(error.clone())), Some(metrics.clone()));
    run(async { assert_eq!(store.read("i").await, Err(error)) });
    assert_eq!(metrics.snapshot().provider_errors, 1);
}
