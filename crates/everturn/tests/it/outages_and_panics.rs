//! Panics in user code, and a store that fails for a while.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use everturn::providers::ProviderError;
#[cfg(feature = "sqlite")]
use everturn::providers::sqlite::{SqliteOptions, SqliteProvider};
use everturn::runtime::registry::{ActivityRegistry, OrchestrationRegistry};
use everturn::{ActivityContext, AppErrorKind, ErrorDetails, OrchestrationContext, RuntimeOptions};
use tokio::sync::Semaphore;

#[cfg(feature = "sqlite")]
use crate::node_under_test::PATIENCE;
use crate::node_under_test::{NodeUnderTest, echo};
use crate::stores::{TestStore, on_every_store};
use crate::tampering_store::TamperingStore;

on_every_store!(
    a_panic_in_an_orchestration_fails_that_instance_with_its_text,
    a_panic_in_an_activity_is_an_error_the_orchestration_can_handle,
    a_disk_that_fails_for_half_a_second_fails_no_instance,
);

async fn a_panic_in_an_orchestration_fails_that_instance_with_its_text(store: TestStore) {
    let orchestrations = OrchestrationRegistry::builder()
        .register("Panics", |_: OrchestrationContext, input: String| async move {
            assert!(input != "now", "invalid state");
            Ok(input)
        })
        .build();
    let node =
        NodeUnderTest::start(store.provider(), echo(), orchestrations, RuntimeOptions::default()).await;
    node.client.start_orchestration("one", "Panics", "now").await.unwrap();
    let details = node.failure_of("one").await;
    let ErrorDetails::Application { kind: AppErrorKind::Panicked, message, .. } = &details else {
        panic!("{details:?}")
    };
    assert_eq!(message, "invalid state");
    assert_eq!(details.display_message(), "orchestration panicked: invalid state");
    node.client.start_orchestration("two", "Panics", "later").await.unwrap();
    assert_eq!(node.output_of("two").await, "later");
    node.runtime.shutdown(None).await;
}

async fn a_panic_in_an_activity_is_an_error_the_orchestration_can_handle(store: TestStore) {
    let activities = ActivityRegistry::builder()
        .register("Panics", |_: ActivityContext, input: String| async move {
            match input.as_str() {
                "text" => panic!("invalid state"),
                _ => std::panic::panic_any(7_u8),
            }
            #[expect(unreachable_code, reason = "gives the future its type")]
            Ok(input)
        })
        .build();
    let orchestrations = OrchestrationRegistry::builder()
        .register("Test", |ctx: OrchestrationContext, _: String| async move {
            let with_text = ctx.schedule_activity("Panics", "text").await.unwrap_err();
            let without = ctx.schedule_activity("Panics", "number").await.unwrap_err();
            Ok(format!("{with_text} / {without}"))
        })
        .build();
    let node =
        NodeUnderTest::start(store.provider(), activities, orchestrations, RuntimeOptions::default()).await;
    node.client.start_orchestration("one", "Test", "").await.unwrap();
    assert_eq!(node.output_of("one").await, "activity panicked: invalid state / activity panicked");
    node.runtime.shutdown(None).await;
}

/// Twenty instances whose activities end just after `begin` makes the store fail. It recovers after half a second.
async fn all_survive_an_outage(store: Arc<TamperingStore>, begin: impl FnOnce(), end: impl FnOnce()) {
    let (started, gate) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (starts, entry) = (Arc::clone(&started), Arc::clone(&gate));
    let activities = ActivityRegistry::builder()
        .merge(echo())
        .register("Gated", move |_: ActivityContext, input: String| {
            let (starts, entry) = (Arc::clone(&starts), Arc::clone(&entry));
            async move {
                starts.add_permits(1);
                // The activity runs again if its outcome cannot be stored, so the gate stays open.
                drop(entry.acquire().await.unwrap());
                Ok(input)
            }
        })
        .build();
    let orchestrations = OrchestrationRegistry::builder()
        .register("Test", |ctx: OrchestrationContext, input: String| async move {
            let mut text = ctx.schedule_activity("Gated", input).await?;
            for _ in 0..10 {
                text = ctx.schedule_activity("Echo", text).await?;
            }
            Ok(text)
        })
        .build();
    let node =
        NodeUnderTest::start(store.clone(), activities, orchestrations, RuntimeOptions::default()).await;
    for number in 0..20 {
        node.client.start_orchestration(format!("i-{number}"), "Test", number.to_string()).await.unwrap();
    }
    started.acquire_many(20).await.unwrap().forget();
    assert_eq!(store.failures(), [""; 0]);
    begin();
    gate.add_permits(1);
    // The length of the fault; no condition is waited for.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let failures = store.failures();
    assert!(failures.contains(&"settle_work/end"), "no outcome failed to be stored: {failures:?}");
    end();
    for number in 0..20 {
        assert_eq!(node.output_of(&format!("i-{number}")).await, number.to_string());
    }
    node.runtime.shutdown(None).await;
}

async fn a_disk_that_fails_for_half_a_second_fails_no_instance(store: TestStore) {
    let failing = Arc::new(AtomicBool::new(false));
    let switch = Arc::clone(&failing);
    let store = TamperingStore::new(store.provider(), move |operation| {
        switch.load(Ordering::SeqCst).then(|| ProviderError::retryable(operation, "disk I/O error"))
    });
    let set = |to| failing.store(to, Ordering::SeqCst);
    all_survive_an_outage(store, || set(true), || set(false)).await;
}

/// SQLite itself cannot write, because another connection holds the file. (`tests/crash` covers disks whose calls fail.)
#[cfg(feature = "sqlite")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_cannot_be_written_for_half_a_second_fails_no_instance() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let options = SqliteOptions { busy_timeout: Duration::from_millis(20), ..SqliteOptions::default() };
    let url = format!("sqlite:{}", path.display());
    let provider = SqliteProvider::new(&url, Some(options)).await.unwrap();
    let other = rusqlite::Connection::open(&path).unwrap();
    other.busy_timeout(PATIENCE).unwrap();
    let run = |sql: &str| other.execute_batch(sql).unwrap();
    let store = TamperingStore::new(Arc::new(provider), |_| None);
    all_survive_an_outage(store, || run("BEGIN EXCLUSIVE"), || run("ROLLBACK")).await;
}
