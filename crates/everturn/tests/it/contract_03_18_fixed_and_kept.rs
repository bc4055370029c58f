//! 03 §18: what is fixed, and what is kept. Most of its lines are tested in the section they point to:
//!
//! | line | tested in |
//! | --- | --- |
//! | a parent is told of its child's limit violation; the key limit counts all keys | `contract_01_14_limits` |
//! | pruning by age uses recorded times | `contract_01_06_10_kv` |
//! | counters count once | `contract_03_13_counts` |
//! | children of a failed parent are cancelled | `contract_03_05_outcomes`, `contract_01_14_limits`, `contract_03_02_commit_errors` |
//! | the parent hears of a refused commit | `contract_03_02_commit_errors` |
//! | a transient renewal error cancels nothing | `contract_03_15_locks` |
//! | detached starts of a turn that continues as new are dispatched, its other work is recorded only; children survive continue-as-new | `contract_03_08_continue_as_new` |
//! | cancellations of activities follow the end | `contract_03_05_outcomes` |

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use everturn::providers::{ProviderError, WorkItem};
use everturn::runtime::registry::{ActivityRegistry, OrchestrationRegistry};
use everturn::{ActivityContext, ErrorDetails, EventKind, OrchestrationContext, RuntimeOptions};

use crate::node_under_test::{NodeUnderTest, PATIENCE, echo, quick, until};
use crate::stores::{Store, on_every_store};
use crate::tampering_store::TamperingStore;

on_every_store!(abandons_are_awaited, a_second_failure_of_an_activity_is_dropped);

async fn abandons_are_awaited(store: Store) {
    let failures_left = AtomicUsize::new(3);
    let tampering = TamperingStore::new(store.provider(), move |operation| {
        let fails = operation == "abandon_orchestration_item"
            && failures_left
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
                .is_ok();
        fails.then(|| ProviderError::retryable(operation, "busy"))
    });
    // Only an abandon frees the instance before the test has lost its patience.
    let options = RuntimeOptions { orchestrator_lock_timeout: 2 * PATIENCE, ..quick() };
    let nothing = OrchestrationRegistry::default();
    let node = NodeUnderTest::start(tampering.clone(), echo(), nothing, options).await;
    node.client.start_orchestration("i", "Nobody", "").await.unwrap();
    let abandons = || tampering.count("abandon_orchestration_item");
    until("the instance is being given back", async || abandons() >= 1).await;
    node.runtime.shutdown(Some(30_000)).await;
    assert!(abandons() >= 4, "shutdown did not wait for it: {}", abandons());
    let lock = Duration::from_secs(5);
    let fetched = store.provider().fetch_orchestration_item(lock, PATIENCE, None).await.unwrap();
    assert_eq!(fetched.expect("the instance is free").0.instance, "i");
}

async fn a_second_failure_of_an_activity_is_dropped(store: Store) {
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
    node.says("i", "handled").await;
    // Even one that would end the instance if it were the first.
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
