//! The write-ahead log stays short while callers read without a pause, and listings in pages are whole.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use everturn_core::WorkItem;
use everturn_provider::Provider;
use everturn_sqlite::SqliteProvider;
use rusqlite::Connection;

use crate::store::{LOCK, Store, activity, begin, fetch, fetch_work};

const MIB: u64 = 1024 * 1024;

/// Fills the store with instances `filled-1` to `filled-{count}`, every third of them completed, several in each millisecond.
fn fill(conn: &mut Connection, count: u32) {
    let filling = conn.transaction().unwrap();
    filling
        .execute(
            "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?1) \
             INSERT INTO everturn_instances (instance_key, instance_id, orchestration_name, orchestration_version, \
                 current_execution_id, created_at_ms, updated_at_ms, startable) \
             SELECT 1000 + n, 'filled-' || n, 'order', '1.0.0', 1, 1000 + n / 7, 1000 + n, 1 FROM n",
            [count],
        )
        .unwrap();
    filling
        .execute(
            "INSERT INTO everturn_executions (instance_key, execution_id, status, started_at_ms, completed_at_ms) \
             SELECT instance_key, 1, iif(instance_key % 3 = 0, 'Completed', 'Running'), 1, \
                 iif(instance_key % 3 = 0, 2, NULL) FROM everturn_instances WHERE instance_key > 1000",
            [],
        )
        .unwrap();
    filling.commit().unwrap();
}

async fn filled_store(count: u32) -> (Store, Arc<SqliteProvider>) {
    let store = Store::new();
    let provider = Arc::new(store.open_with_batches().await);
    begin(&provider, "a", vec![]).await;
    fill(&mut store.sql(), count);
    (store, provider)
}

fn bulky(id: u64, bytes: usize) -> WorkItem {
    let mut item = activity("a", id);
    if let WorkItem::ActivityExecute { input, .. } = &mut item {
        *input = "x".repeat(bytes);
    }
    item
}

/// Writes `total_bytes` in commits of about 1 MiB, and returns the largest size of the log after any of them.
async fn write(store: &Store, provider: &Arc<SqliteProvider>, total_bytes: u64) -> u64 {
    let mut largest = 0;
    for commit in 0..total_bytes / MIB {
        let tasks: Vec<_> = (0..8)
            .map(|n| {
                let provider = Arc::clone(provider);
                let item = bulky(1 + commit * 8 + n, 128 * 1024);
                tokio::spawn(async move { provider.enqueue_for_worker(item).await.unwrap() })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        largest = largest.max(store.log_bytes());
    }
    largest
}

/// Callers that list again and again.
struct ListLoops {
    stop: Arc<AtomicBool>,
    loops: Vec<tokio::task::JoinHandle<u64>>,
}

impl ListLoops {
    fn start(provider: &Arc<SqliteProvider>) -> Self {
        Self::listing(provider, None)
    }

    /// Two callers that list the executions of an instance, or all instances.
    fn listing(provider: &Arc<SqliteProvider>, executions_of: Option<&'static str>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let list = || {
            let (provider, stop) = (Arc::clone(provider), Arc::clone(&stop));
            tokio::spawn(async move {
                let admin = provider.as_management_capability().unwrap();
                let mut lists = 0;
                while !stop.load(Ordering::Relaxed) {
                    match executions_of {
                        Some(instance) => drop(admin.list_executions(instance).await.unwrap()),
                        None => drop(admin.list_instances().await.unwrap()),
                    }
                    lists += 1;
                }
                lists
            })
        };
        let loops = vec![list(), list()];
        Self { stop, loops }
    }

    /// Stops them; each has listed at least once.
    async fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        for listing in self.loops {
            assert!(listing.await.unwrap() > 0, "no list was complete");
        }
    }
}

/// How many instances the callers list.
const LISTED: u32 = 200_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn the_log_stays_short_while_callers_list_without_a_pause() {
    let (store, provider) = filled_store(LISTED).await;
    let loops = ListLoops::start(&provider);
    let largest = write(&store, &provider, 112 * MIB).await;
    loops.stop().await;
    assert!(largest < 64 * MIB, "the log grew to {} MiB", largest / MIB);
}

/// One list of so many executions is one read, which takes longer than several commits. Two callers leave no moment between
/// their reads.
const EXECUTIONS: u32 = 300_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn the_log_stays_short_while_long_reads_overlap() {
    let (store, provider) = filled_store(1).await;
    store
        .sql()
        .execute(
            "WITH RECURSIVE n(n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM n WHERE n <= ?1) \
             INSERT INTO everturn_executions (instance_key, execution_id, status, started_at_ms, completed_at_ms) \
             SELECT instance_key, n, 'ContinuedAsNew', 1, 1 FROM everturn_instances, n WHERE instance_id = 'filled-1'",
            [EXECUTIONS],
        )
        .unwrap();
    let loops = ListLoops::listing(&provider, Some("filled-1"));
    let largest = write(&store, &provider, 80 * MIB).await;
    loops.stop().await;
    assert!(largest < 64 * MIB, "the log grew to {} MiB", largest / MIB);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_reader_of_another_process_lets_the_log_grow_until_it_leaves() {
    let (store, provider) = filled_store(5_000).await;
    let foreign = store.sql();
    foreign.execute_batch("BEGIN; SELECT count(*) FROM everturn_history").unwrap();
    let loops = ListLoops::start(&provider);
    let largest = write(&store, &provider, 80 * MIB).await;
    assert!(largest > 70 * MIB, "the log has {} MiB, which the reader needs", largest / MIB);
    foreign.execute_batch("COMMIT").unwrap();
    // Until the next attempt the log grows by as much as it had at the last one, 64 MiB at most.
    write(&store, &provider, 72 * MIB).await;
    loops.stop().await;
    assert!(store.log_bytes() < 64 * MIB, "the log still has {} MiB", store.log_bytes() / MIB);
}

/// What a frame of the log takes: a page and its header.
const FRAME_BYTES: u64 = 4_096 + 24;

#[tokio::test]
async fn a_lock_does_not_write_a_large_payload_again() {
    let store = Store::new();
    let provider = store.open().await;
    begin(&provider, "a", vec![]).await;
    provider.enqueue_for_worker(bulky(2, 1_000_000)).await.unwrap();
    let large = WorkItem::ExternalRaised {
        instance: "a".to_owned(),
        name: "go".to_owned(),
        data: "x".repeat(1_000_000),
    };
    provider.enqueue_for_orchestrator(large.clone(), None).await.unwrap();
    let before = store.log_bytes();
    let frames = |what: &str| {
        let frames = (store.log_bytes() - before) / FRAME_BYTES;
        assert!((1..10).contains(&frames), "{what} wrote {frames} frames");
    };
    let (item, work_token, _) = fetch_work(&provider).await.unwrap();
    assert_eq!(item, bulky(2, 1_000_000));
    frames("a lock of an activity");
    provider.abandon_work_item(&work_token, None, false).await.unwrap();
    let (turn, turn_token, _) = fetch(&provider).await.unwrap();
    assert_eq!(turn.messages, [large]);
    provider.renew_orchestration_item_lock(&turn_token, LOCK).await.unwrap();
    provider.abandon_orchestration_item(&turn_token, None, false).await.unwrap();
    let frames = (store.log_bytes() - before) / FRAME_BYTES;
    assert!(frames < 40, "two locks, a renewal and their ends wrote {frames} frames");
}

#[tokio::test]
async fn a_listing_of_many_pages_is_whole_and_in_order() {
    let (store, provider) = filled_store(5_003).await;
    let sql = store.sql();
    let expected = |select: &str| {
        let mut select = sql.prepare(select).unwrap();
        let ids = select.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap);
        ids.collect::<Vec<String>>()
    };
    let admin = provider.as_management_capability().unwrap();
    assert_eq!(
        admin.list_instances().await.unwrap(),
        expected("SELECT instance_id FROM everturn_instances ORDER BY created_at_ms DESC, instance_id")
    );
    assert_eq!(
        admin.list_instances_by_status("Completed").await.unwrap(),
        expected(
            "SELECT instance_id FROM everturn_instances JOIN everturn_executions USING (instance_key) \
             WHERE everturn_executions.status = 'Completed' ORDER BY created_at_ms DESC, instance_id"
        )
    );
    assert!(admin.list_instances_by_status("Failed").await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn an_instance_that_exists_throughout_is_listed_once_while_others_come_and_go() {
    let (_store, provider) = filled_store(5_000).await;
    let stop = Arc::new(AtomicBool::new(false));
    let changes = {
        let (provider, stop) = (Arc::clone(&provider), Arc::clone(&stop));
        tokio::spawn(async move {
            let admin = provider.as_management_capability().unwrap();
            for round in 0_u64.. {
                if stop.load(Ordering::Relaxed) {
                    return round;
                }
                // The second of them takes the key of the first when that is gone.
                for id in ["passing-1", "passing-2"] {
                    begin(&provider, id, vec![]).await;
                    admin.delete_instance(id, true).await.unwrap();
                }
            }
            0
        })
    };
    let admin = provider.as_management_capability().unwrap();
    for _ in 0..20 {
        let listed = admin.list_instances().await.unwrap();
        let unique: HashSet<&String> = listed.iter().collect();
        assert_eq!(unique.len(), listed.len(), "an instance is listed twice");
        assert_eq!(listed.iter().filter(|id| id.starts_with("filled-")).count(), 5_000);
    }
    stop.store(true, Ordering::Relaxed);
    assert!(changes.await.unwrap() > 0);
}
