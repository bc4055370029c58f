//! The totals are what a count of all rows would give.

use std::path::Path;
use std::time::Duration;

use everturn_core::{Event, EventKind};
use everturn_provider::{ExecutionMetadata, Provider, ProviderAdmin};
use rusqlite::Connection;

use crate::large_store::StoreContent;
use crate::store::{Store, begin, fetch, loosen, signal};

/// The totals, and the same numbers counted, of one moment.
const BOTH: &str = "SELECT printf('%d %d %d %d %d %d', instances, running, completed, failed, executions, events), \
     printf('%d %d %d %d %d %d', \
     (SELECT count(*) FROM everturn_instances WHERE created_at_ms IS NOT NULL), \
     (SELECT count(*) FROM everturn_instances JOIN everturn_executions USING (instance_key) \
         WHERE execution_id = current_execution_id AND everturn_executions.status = 'Running'), \
     (SELECT count(*) FROM everturn_instances JOIN everturn_executions USING (instance_key) \
         WHERE execution_id = current_execution_id AND everturn_executions.status = 'Completed'), \
     (SELECT count(*) FROM everturn_instances JOIN everturn_executions USING (instance_key) \
         WHERE execution_id = current_execution_id AND everturn_executions.status = 'Failed'), \
     (SELECT count(*) FROM everturn_executions JOIN everturn_instances USING (instance_key)), \
     (SELECT coalesce(sum(iif(e.execution_id = i.current_execution_id, i.event_count, e.event_count)), 0) \
         FROM everturn_executions AS e JOIN everturn_instances AS i USING (instance_key))) FROM everturn_totals";

/// Instances whose row does not say what became of their current execution.
const MISDERIVED: &str = "SELECT count(*) FROM everturn_instances AS i LEFT JOIN everturn_executions AS e \
     ON e.instance_key = i.instance_key AND e.execution_id = i.current_execution_id \
     WHERE i.status IS NOT e.status \
     OR (i.ended_at_ms IS NOT NULL) <> coalesce(i.status IN ('Completed', 'Failed'), 0) \
     OR (i.failure_kind IS NOT NULL AND i.status IS NOT 'Failed')";

/// Fails if a total is not what a count gives, or if the row of an instance contradicts that of its current execution.
pub(crate) fn assert_right(path: &Path) {
    let conn = Connection::open(path).unwrap();
    conn.busy_timeout(Duration::from_secs(5)).unwrap();
    let (kept, counted): (String, String) =
        conn.query_row(BOTH, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    assert_eq!(kept, counted, "instances, running, completed, failed, executions, events");
    let misderived: i64 = conn.query_row(MISDERIVED, [], |row| row.get(0)).unwrap();
    assert_eq!(misderived, 0, "instances whose row contradicts their current execution");
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

#[tokio::test]
async fn a_total_that_is_a_fraction_fails_no_turn() {
    let store = Store::new();
    let provider = store.open().await;
    let sql = store.sql();
    loosen(&sql, "everturn_totals");
    sql.execute("UPDATE everturn_totals SET running = 123.5, events = 1e300", []).unwrap();
    begin(&provider, "a", vec![]).await;
    let totals = provider.get_system_metrics().await.unwrap();
    assert_eq!((totals.total_instances, totals.running_instances), (1, 124));
}
