//! Deleting much at once: other calls go on between the slices.
#![allow(clippy::print_stdout, reason = "the measured figures belong to the test's output")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use everturn_provider::management::{InstanceFilter, PruneOptions};
use everturn_provider::{Provider, ProviderAdmin};
use everturn_sqlite::SqliteProvider;

use crate::large_store::StoreContent;
use crate::store::{LOCK, Store, begin, signal, started, until};

fn of_ids(ids: impl Iterator<Item = u32>) -> InstanceFilter {
    let ids = ids.map(|nth| format!("done-{nth}")).collect();
    InstanceFilter { instance_ids: Some(ids), ..InstanceFilter::default() }
}

/// The longest that a signal waited while `work` was under way, and how long that took.
async fn longest_wait(
    provider: &Arc<SqliteProvider>,
    work: impl Future<Output = ()>,
) -> (Duration, Duration) {
    let over = Arc::new(AtomicBool::new(false));
    let (sender, is_over) = (Arc::clone(provider), Arc::clone(&over));
    let signals = tokio::spawn(async move {
        let mut longest = Duration::ZERO;
        while !is_over.load(Ordering::SeqCst) {
            let began = Instant::now();
            sender.enqueue_for_orchestrator(signal("other"), None).await.unwrap();
            longest = longest.max(began.elapsed());
            tokio::task::yield_now().await;
        }
        longest
    });
    let began = Instant::now();
    work.await;
    let took = began.elapsed();
    over.store(true, Ordering::SeqCst);
    (signals.await.unwrap(), took)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleting_listed_instances_of_a_large_store_takes_time_for_those_alone() {
    let store = Store::filled(StoreContent::completed(200_000)).await;
    let provider = Arc::new(store.open_with_batches().await);
    for (from, count) in [(0, 100), (1_000, 500)] {
        let deletion = async {
            let deleted = provider.delete_instance_bulk(of_ids(from..from + count)).await.unwrap();
            let count = u64::from(count);
            assert_eq!(
                (deleted.instances_deleted, deleted.executions_deleted, deleted.events_deleted),
                (count, count, 2 * count)
            );
        };
        let (waited, took) = longest_wait(&provider, deletion).await;
        println!("{count} listed ids of 200,000 took {took:?}; another call waited {waited:?} at most");
    }
}

fn rows(store: &Store, table: &str) -> u64 {
    let sql = format!("SELECT count(*) FROM {table}");
    store.sql().query_row(&sql, [], |row| row.get::<_, i64>(0)).unwrap().unsigned_abs()
}

/// Waits until the garbage list is empty.
async fn until_swept(store: &Store) {
    until(async || rows(store, "everturn_garbage") == 0).await;
}

/// Ten instances, each with more events than fit into a slice.
async fn long_histories() -> Store {
    Store::filled(StoreContent { completed: 10, events: 3_000, asleep: 0 }).await
}

#[tokio::test]
async fn a_deletion_is_as_many_transactions_as_it_has_slices() {
    let store = Store::filled(StoreContent::completed(2_000)).await;
    let provider = store.open_with_batches().await;
    let before = provider.commit_count();
    let deleted =
        provider.delete_instance_bulk(InstanceFilter { limit: Some(2_000), ..InstanceFilter::default() });
    assert_eq!(deleted.await.unwrap().instances_deleted, 2_000);
    // An instance costs two looks, one row of its execution and two of its events; a slice is a thousand of these.
    let slices = provider.commit_count() - before;
    assert!((8..=16).contains(&slices), "{slices} slices");
    until_swept(&store).await;
    assert_eq!(
        (
            rows(&store, "everturn_instances"),
            rows(&store, "everturn_executions"),
            rows(&store, "everturn_history")
        ),
        (0, 0, 0)
    );
}

#[tokio::test]
async fn a_long_history_is_gone_at_once_and_its_rows_are_removed_in_slices() {
    let store = long_histories().await;
    let provider = store.open_with_batches().await;
    let before = provider.commit_count();
    let ids: Vec<String> = (0..10).map(|nth| format!("done-{nth}")).collect();
    let deleted = provider.delete_instances_atomic(&ids, false).await.unwrap();
    assert_eq!(
        (deleted.instances_deleted, deleted.executions_deleted, deleted.events_deleted),
        (10, 10, 30_000)
    );
    assert_eq!(provider.commit_count() - before, 1, "one transaction");
    assert!(rows(&store, "everturn_history") > 20_000, "most rows are left for later");
    let totals = provider.get_system_metrics().await.unwrap();
    assert_eq!((totals.total_instances, totals.total_executions, totals.total_events), (0, 0, 0));
    assert!(provider.list_instances().await.unwrap().is_empty());
    assert_eq!(provider.read("done-3").await.unwrap(), []);
    until_swept(&store).await;
    assert_eq!((rows(&store, "everturn_executions"), rows(&store, "everturn_history")), (0, 0));
    assert!(provider.commit_count() - before > 30, "thirty slices of a thousand rows");
}

fn pragma(store: &Store, name: &str) -> i64 {
    store.sql().query_row(&format!("PRAGMA {name}"), [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn the_file_shrinks_after_a_deletion_while_the_writer_is_idle() {
    let store = long_histories().await;
    let provider = store.open_with_batches().await;
    assert_eq!(pragma(&store, "auto_vacuum"), 2, "pages can be given back step by step");
    let before = pragma(&store, "page_count");
    let ids: Vec<String> = (0..9).map(|nth| format!("done-{nth}")).collect();
    provider.delete_instances_atomic(&ids, false).await.unwrap();
    until(async || pragma(&store, "page_count") < before / 3).await;
    until(async || pragma(&store, "freelist_count") <= 256).await;
    assert_eq!(provider.read("done-9").await.unwrap().len(), 3_000);
    provider.checkpoint().await.unwrap();
    let bytes = std::fs::metadata(store.path()).unwrap().len();
    assert!(bytes < before.unsigned_abs() * 4_096 / 3, "{bytes} bytes of {before} pages");
}

#[tokio::test]
async fn the_file_shrinks_although_another_process_commits_all_the_time() {
    let store = long_histories().await;
    let provider = store.open_with_batches().await;
    let before = pragma(&store, "page_count");
    let ids: Vec<String> = (0..9).map(|nth| format!("done-{nth}")).collect();
    provider.delete_instances_atomic(&ids, false).await.unwrap();
    until(async || {
        store.sql().execute("UPDATE everturn_totals SET totals_key = totals_key", []).unwrap();
        pragma(&store, "page_count") < before / 3
    })
    .await;
}

#[tokio::test]
async fn an_empty_database_of_another_program_can_shrink_later() {
    let store = Store::new();
    store.sql().execute_batch("PRAGMA journal_mode = WAL").unwrap();
    store.open().await.close().await;
    assert_eq!(pragma(&store, "auto_vacuum"), 2);
}

#[tokio::test]
async fn an_id_that_is_used_again_sees_nothing_of_the_deleted_instance() {
    let store = long_histories().await;
    let provider = store.open_with_batches().await;
    let ids: Vec<String> = (0..10).map(|nth| format!("done-{nth}")).collect();
    provider.delete_instances_atomic(&ids, false).await.unwrap();
    for id in &ids {
        begin(&provider, id, vec![]).await;
    }
    assert!(rows(&store, "everturn_garbage") > 0, "the old rows are still there");
    for id in &ids {
        assert_eq!(provider.read(id).await.unwrap().len(), 1);
    }
    until_swept(&store).await;
    for id in &ids {
        assert_eq!(provider.read(id).await.unwrap().len(), 1);
    }
    assert_eq!((rows(&store, "everturn_executions"), rows(&store, "everturn_history")), (10, 10));
}

#[tokio::test]
async fn garbage_is_removed_after_a_restart() {
    let store = long_histories().await;
    let provider = store.open_with_batches().await;
    provider.delete_instance("done-0", false).await.unwrap();
    provider.close().await;
    assert!(rows(&store, "everturn_garbage") > 0, "the writer ended before it was swept");
    let provider = store.open_with_batches().await;
    until_swept(&store).await;
    assert_eq!((rows(&store, "everturn_executions"), rows(&store, "everturn_history")), (9, 27_000));
    provider.close().await;
}

#[tokio::test]
async fn garbage_of_a_process_that_has_ended_is_removed_by_one_that_runs() {
    let store = long_histories().await;
    let running = Arc::new(store.open_with_batches().await);
    let dispatcher = tokio::spawn({
        let running = Arc::clone(&running);
        async move { running.fetch_orchestration_item(LOCK, Duration::from_secs(60), None).await }
    });
    let ended = store.open_with_batches().await;
    ended.delete_instance("done-0", false).await.unwrap();
    ended.close().await;
    until_swept(&store).await;
    assert_eq!((rows(&store, "everturn_executions"), rows(&store, "everturn_history")), (9, 27_000));
    dispatcher.abort();
}

/// Gives every instance a second execution without events, which has completed.
fn continue_all(store: &Store) {
    store
        .sql()
        .execute_batch(
            "UPDATE everturn_instances SET current_execution_id = 2, event_count = 0, event_bytes = 0, last_event_id = 0; \
             INSERT INTO everturn_executions (instance_key, execution_id, status, started_at_ms, completed_at_ms) \
             SELECT instance_key, 2, 'Completed', 1, 1 FROM everturn_instances; \
             UPDATE everturn_totals SET executions = 2 * instances",
        )
        .unwrap();
}

#[tokio::test]
async fn a_pruned_execution_with_a_long_history_is_gone_at_once() {
    let store = long_histories().await;
    continue_all(&store);
    let provider = store.open_with_batches().await;
    let pruned =
        provider.prune_executions_bulk(InstanceFilter::default(), PruneOptions::default()).await.unwrap();
    assert_eq!(
        (pruned.instances_processed, pruned.executions_deleted, pruned.events_deleted),
        (10, 10, 30_000)
    );
    assert!(rows(&store, "everturn_garbage") > 0, "the old rows are still there");
    assert_eq!(provider.read_with_execution("done-4", 1).await.unwrap(), []);
    provider.append_with_execution("done-4", 1, vec![started("done-4")]).await.unwrap();
    assert_eq!(provider.read_with_execution("done-4", 1).await.unwrap().len(), 1, "it exists again");
    until_swept(&store).await;
    assert_eq!(rows(&store, "everturn_history"), 1);
    let totals = provider.get_system_metrics().await.unwrap();
    assert_eq!((totals.total_instances, totals.total_executions, totals.total_events), (10, 11, 1));
}

#[tokio::test]
async fn a_damaged_entry_of_the_garbage_list_removes_nothing_that_exists() {
    let store = Store::filled(StoreContent::completed(3)).await;
    store
        .sql()
        .execute_batch(
            "INSERT INTO everturn_garbage SELECT instance_key, instance_key - 1 FROM everturn_instances",
        )
        .unwrap();
    let provider = store.open_with_batches().await;
    until_swept(&store).await;
    assert_eq!((rows(&store, "everturn_executions"), rows(&store, "everturn_history")), (3, 6));
    assert_eq!(provider.read("done-0").await.unwrap().len(), 2);
}

/// The key values from before each execution ended, and records that instances own.
fn fill_beside(store: &Store) {
    store
        .sql()
        .execute_batch(
            "INSERT INTO everturn_kv_undo (instance_key, execution_id, key, old_value) \
                 SELECT instance_key, execution_id, 'key', 'value' FROM everturn_executions; \
             INSERT INTO everturn_records (kind, id, version, owner, data) \
                 SELECT 'reply', instance_id, 1, instance_id, '{}' FROM everturn_instances",
        )
        .unwrap();
}

#[tokio::test]
async fn a_deleted_instance_leaves_no_row_in_any_table() {
    for (content, is_large) in
        [(StoreContent::completed(3), false), (StoreContent { completed: 3, events: 3_000, asleep: 0 }, true)]
    {
        let store = Store::filled(content).await;
        fill_beside(&store);
        let provider = store.open_with_batches().await;
        let ids = ["done-0".to_owned(), "done-1".to_owned()];
        provider.delete_instances_atomic(&ids, false).await.unwrap();
        assert_eq!(rows(&store, "everturn_garbage") > 0, is_large);
        until_swept(&store).await;
        for table in ["instances", "executions", "kv_undo", "records"] {
            assert_eq!(rows(&store, &format!("everturn_{table}")), 1, "{table}: the other instance");
        }
    }
}

#[tokio::test]
async fn a_pruned_execution_leaves_nothing_of_its_keys() {
    for (content, is_large) in
        [(StoreContent::completed(3), false), (StoreContent { completed: 3, events: 3_000, asleep: 0 }, true)]
    {
        let store = Store::filled(content).await;
        continue_all(&store);
        fill_beside(&store);
        let provider = store.open_with_batches().await;
        let pruned = provider.prune_executions_bulk(InstanceFilter::default(), PruneOptions::default());
        assert_eq!(pruned.await.unwrap().executions_deleted, 3);
        assert_eq!(rows(&store, "everturn_garbage") > 0, is_large);
        // One of them exists again before its garbage is swept.
        provider.append_with_execution("done-2", 1, vec![started("done-2")]).await.unwrap();
        until_swept(&store).await;
        assert_eq!(rows(&store, "everturn_kv_undo WHERE execution_id = 1"), 0);
        assert_eq!(rows(&store, "everturn_kv_undo WHERE execution_id = 2"), 3);
    }
}
