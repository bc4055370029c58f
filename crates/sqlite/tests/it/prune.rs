//! Which instances a bulk prune leaves alone.

use std::sync::Arc;
use std::time::Duration;

use everturn_core::{Event, EventKind};
use everturn_provider::management::{InstanceFilter, PruneOptions};
use everturn_provider::{Clock, ExecutionMetadata, ManualClock, Provider, ProviderAdmin};
use everturn_sqlite::SqliteProvider;

use crate::store::{Store, begin, fetch, named, signal};

/// An instance whose second execution, the current one, ends now.
async fn end_now(provider: &SqliteProvider, instance: &str) {
    begin(provider, instance, vec![]).await;
    for (execution_id, status) in [(1, "ContinuedAsNew"), (2, "Completed")] {
        provider.enqueue_for_orchestrator(signal(instance), None).await.unwrap();
        let (_, token, _) = fetch(provider).await.expect("its turn");
        let kind = EventKind::OrchestrationCompleted { output: String::new() };
        let event = Event::with_event_id(2, instance, execution_id, None, kind);
        let update = ExecutionMetadata { status: Some(status.to_owned()), ..named() };
        provider
            .ack_orchestration_item(&token, execution_id, vec![event], vec![], vec![], update, vec![])
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn a_prune_counts_no_events_by_a_damaged_number() {
    let store = Store::new();
    let provider = store.open().await;
    end_now(&provider, "sound").await;
    begin(&provider, "damaged", vec![]).await;
    for (execution_id, status) in [(1, "ContinuedAsNew"), (2, "ContinuedAsNew"), (3, "Completed")] {
        provider.enqueue_for_orchestrator(signal("damaged"), None).await.unwrap();
        let (_, token, _) = fetch(&provider).await.expect("its turn");
        let event = |id| Event::with_event_id(id, "damaged", execution_id, None, EventKind::KeyValuesCleared);
        let update = ExecutionMetadata { status: Some(status.to_owned()), ..named() };
        let events = vec![event(2), event(3), event(4)];
        provider
            .ack_orchestration_item(&token, execution_id, events, vec![], vec![], update, vec![])
            .await
            .unwrap();
    }
    let damage = "UPDATE everturn_executions SET event_count = 9223372036854775807 WHERE execution_id = 1 \
         AND instance_key = (SELECT instance_key FROM everturn_instances WHERE instance_id = 'damaged')";
    assert_eq!(store.sql().execute(damage, []).unwrap(), 1);
    let before = provider.get_system_metrics().await.unwrap();
    let pruned = provider.prune_executions("damaged", PruneOptions::default()).await.unwrap();
    assert_eq!((pruned.executions_deleted, pruned.events_deleted), (2, 3), "a damaged count is none");
    let after = provider.get_system_metrics().await.unwrap();
    assert_eq!(
        (after.total_instances, after.total_executions, after.total_events),
        (before.total_instances, before.total_executions - 2, before.total_events - 3)
    );
}

#[tokio::test]
async fn a_bulk_prune_by_end_leaves_running_and_later_ended_instances_alone() {
    let (store, clock) = (Store::new(), Arc::new(ManualClock::new(1_000_000)));
    let provider = store.open_at(&clock).await;
    end_now(&provider, "before").await;
    clock.advance(Duration::from_secs(5));
    let bound = clock.wall_ms();
    end_now(&provider, "at the bound").await;
    clock.advance(Duration::from_secs(5));
    end_now(&provider, "after").await;
    begin(&provider, "running", vec![]).await;
    let filter = InstanceFilter { completed_before: Some(bound), ..InstanceFilter::default() };
    let pruned = provider.prune_executions_bulk(filter, PruneOptions::default()).await.unwrap();
    assert_eq!(
        (pruned.instances_processed, pruned.executions_deleted),
        (1, 1),
        "that ended before the bound"
    );
    for (instance, left) in [("before", vec![2]), ("at the bound", vec![1, 2]), ("after", vec![1, 2])] {
        assert_eq!(provider.list_executions(instance).await.unwrap(), left, "executions of {instance}");
    }
}
