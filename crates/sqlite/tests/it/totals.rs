//! The totals are what a count of all rows would give.

use std::path::Path;
use std::time::Duration;

use everturn_core::{Event, EventKind};
use everturn_provider::{ExecutionMetadata, Provider, ProviderAdmin};
use rusqlite::Connection;

use crate::large_store::StoreContent;
use crate::store::{Store, begin, fetch, signal};

/// The totals, and the same numbers counted, of one moment.
const BOTH: &str = "SELECT printf('%d %d %d %d %d %d', instances, running, completed, failed, executions, events), \
     printf('%d %d %d %d %d %d', \
     (SELECT count(*) FROM instances WHERE created_at_ms IS NOT NULL), \
     (SELECT count(*) FROM instances JOIN executions USING (instance_key) \
         WHERE execution_id = current_execution_id AND status = 'Running'), \
     (SELECT count(*) FROM instances JOIN executions USING (instance_key) \
         WHERE execution_id = current_execution_id AND status = 'Completed'), \
     (SELECT count(*) FROM instances JOIN executions USING (instance_key) \
         WHERE execution_id = current_execution_id AND status = 'Failed'), \
     (SELECT count(*) FROM executions JOIN instances USING (instance_key)), \
     (SELECT coalesce(sum(event_count), 0) FROM executions JOIN instances USING (instance_key))) FROM totals";

/// Fails if a total is not what a count gives.
pub(crate) fn assert_right(path: &Path) {
    let conn = Connection::open(path).unwrap();
    conn.busy_timeout(Duration::from_secs(5)).unwrap();
    let (kept, counted): (String, String) =
        conn.query_row(BOTH, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    assert_eq!(kept, counted, "instances, running, completed, failed, executions, events");
}

/// Ends the instance's current execution with this status.
async fn end(provider: &impl Provider, store: &Store, instance: &str, status: &str) {
    provider.enqueue_for_orchestrator(signal(instance), None).await.unwrap();
    let (item, token, _) = provider
        .fetch_orchestration_item(Duration::from_secs(30), Duration::ZERO, None)
        .await
        .unwrap()
        .expect("its turn");
    let kind = EventKind::CustomStatusUpdated { status: None };
    let event = Event::with_event_id(2, instance, item.execution_id, None, kind);
    let update = ExecutionMetadata { status: Some(status.to_owned()), ..ExecutionMetadata::default() };
    provider
        .ack_orchestration_item(&token, item.execution_id, vec![event], vec![], vec![], update, vec![])
        .await
        .unwrap();
    assert_right(&store.path());
}

#[tokio::test]
async fn totals_follow_instances_from_their_start_to_their_deletion() {
    let store = Store::new();
    let provider = store.open().await;
    for instance in ["a", "b", "c", "d"] {
        begin(&provider, instance, vec![]).await;
        assert_right(&store.path());
    }
    end(&provider, &store, "a", "Completed").await;
    end(&provider, &store, "b", "Failed").await;
    end(&provider, &store, "c", "ContinuedAsNew").await;
    let totals = provider.get_system_metrics().await.unwrap();
    assert_eq!(
        (
            totals.total_instances,
            totals.running_instances,
            totals.completed_instances,
            totals.failed_instances
        ),
        (4, 1, 1, 1)
    );
    let beginning = Event::with_event_id(1, "c", 2, None, EventKind::KeyValuesCleared);
    provider.enqueue_for_orchestrator(signal("c"), None).await.unwrap();
    let (_, token, _) = fetch(&provider).await.unwrap();
    provider
        .ack_orchestration_item(
            &token,
            2,
            vec![beginning],
            vec![],
            vec![],
            ExecutionMetadata::default(),
            vec![],
        )
        .await
        .unwrap();
    assert_right(&store.path());
    let appended = Event::with_event_id(9, "d", 7, None, EventKind::KeyValuesCleared);
    provider.append_with_execution("d", 7, vec![appended.clone()]).await.unwrap();
    provider.append_with_execution("unnamed", 1, vec![appended]).await.unwrap();
    provider.prune_executions("c", Default::default()).await.unwrap();
    assert_right(&store.path());
    for instance in ["a", "b", "c", "d"] {
        provider.delete_instance(instance, true).await.unwrap();
        assert_right(&store.path());
    }
    assert_eq!(provider.get_system_metrics().await.unwrap().total_instances, 0);
}

#[tokio::test]
async fn a_large_store_knows_its_totals_and_depths() {
    let store = Store::filled(StoreContent { completed: 20_000, events: 2, asleep: 20_000 }).await;
    assert_right(&store.path());
    let provider = store.open().await;
    let totals = provider.get_system_metrics().await.unwrap();
    assert_eq!(
        (totals.total_instances, totals.running_instances, totals.total_events),
        (40_000, 20_000, 60_000)
    );
    assert_eq!(provider.get_queue_depths().await.unwrap().orchestrator_queue, 20_000);
}
