//! Many instances and activities that wait at once.

use std::sync::Arc;
use std::time::Duration;

use everturn_core::{SemverRange, WorkItem};
use everturn_postgres::PostgresProvider;
use everturn_provider::DispatcherCapabilityFilter;
use everturn_provider::store::{
    FetchedWork, LentInstance, Stamp, Store as _, Submission, TurnFetch, WarmView, WorkFetch,
};
use futures::future::join_all;
use semver::Version;

use crate::proxy::Proxy;
use crate::store::{LOCK, TestSchema, activity, begin, first_turn, signal, start};

/// More than one round of a fetch looks at.
const MANY: i64 = 1_200;
/// More than five rounds look at.
const VERY_MANY: i64 = 6_000;

/// Copies of the ready instance `stuck-0`, which is pinned to this version.
async fn copy_stuck_instance(
    schema: &TestSchema,
    provider: &PostgresProvider,
    pin: Option<Version>,
    count: i64,
) {
    provider.submit(&Submission::of(start("stuck-0"))).await.unwrap();
    let turn = provider.fetch_turns(&TurnFetch::new(LOCK, Duration::ZERO)).await.unwrap().remove(0);
    let mut first = first_turn("stuck-0", &turn.lock_token, &[]);
    first.update.pinned_engine_version = pin;
    provider.commit_turn(&first).await.unwrap();
    provider.submit(&Submission::of(signal("stuck-0"))).await.unwrap();
    let sql = schema.sql().await;
    let copies = "WITH copied AS (INSERT INTO everturn_instances (instance_id, orchestration_name, orchestration_version, \
             current_execution_id, root_instance_id, created_at_ms, updated_at_ms, status, turn_stamp, event_count, \
             event_bytes, last_event_id, startable, ready_seq) \
         SELECT 'stuck-' || n, orchestration_name, orchestration_version, current_execution_id, 'stuck-' || n, \
             created_at_ms, updated_at_ms, status, turn_stamp, event_count, event_bytes, last_event_id, startable, ready_seq \
         FROM everturn_instances, generate_series(1, $1::bigint) AS n RETURNING instance_key), \
         messages AS (INSERT INTO everturn_orchestrator_queue (instance_key, kind, is_start, arrived_at_ms, visible_at_ms, work_item) \
         SELECT c.instance_key, q.kind, q.is_start, q.arrived_at_ms, q.visible_at_ms, q.work_item \
         FROM everturn_orchestrator_queue AS q, copied AS c RETURNING instance_key) \
         INSERT INTO everturn_executions (instance_key, execution_id, status, started_at_ms, pinned_engine_version, pinned_order) \
         SELECT c.instance_key, e.execution_id, e.status, e.started_at_ms, e.pinned_engine_version, e.pinned_order \
         FROM everturn_executions AS e, copied AS c";
    let copied = sql.execute(copies, &[&count]).await.unwrap();
    assert_eq!(copied, count.unsigned_abs());
    let number = "UPDATE everturn_instances AS i SET ready_seq = (SELECT min(q.seq) FROM everturn_orchestrator_queue AS q \
         WHERE q.instance_key = i.instance_key)";
    sql.execute(number, &[]).await.unwrap();
}

#[tokio::test]
async fn instances_pinned_to_another_version_hold_up_no_other() {
    let schema = TestSchema::new();
    let provider = schema.open().await;
    copy_stuck_instance(&schema, &provider, Some(Version::new(99, 0, 0)), MANY).await;
    provider.submit(&Submission::of(start("free"))).await.unwrap();
    let filter = DispatcherCapabilityFilter::default_for_current_build();
    let fetch = TurnFetch::new(LOCK, Duration::ZERO).with_filter(filter);
    let turn = provider.fetch_turns(&fetch).await.unwrap().pop();
    assert_eq!(turn.map(|turn| turn.item.instance).as_deref(), Some("free"));
    let newer = SemverRange::new(Version::new(99, 0, 0), Version::new(99, 0, 0));
    let filter = DispatcherCapabilityFilter { supported_engine_versions: vec![newer] };
    let fetch = TurnFetch::new(LOCK, Duration::ZERO).with_filter(filter);
    let turn = provider.fetch_turns(&fetch).await.unwrap().pop();
    assert_eq!(turn.map(|turn| turn.item.instance).as_deref(), Some("stuck-0"), "the oldest comes first");
}

/// A runtime that takes steps of all instances but one.
struct SteppingAllBut(&'static str);

impl WarmView for SteppingAllBut {
    fn lend(&self, _instance: &str, _execution_id: u64, _stamp: Stamp) -> Option<LentInstance> {
        None
    }

    fn is_stepping(&self, instance: &str) -> bool {
        instance != self.0
    }
}

#[tokio::test]
async fn instances_with_steps_under_way_hold_up_no_other() {
    let schema = TestSchema::new();
    let provider = schema.open().await;
    copy_stuck_instance(&schema, &provider, None, VERY_MANY).await;
    provider.submit(&Submission::of(start("free"))).await.unwrap();
    let warm = Arc::new(SteppingAllBut("free"));
    // Each round begins at once: not when the lane looks at everything again, once a second.
    let fetch = TurnFetch::new(LOCK, Duration::from_secs(3)).with_warm(warm);
    let turn = provider.fetch_turns(&fetch).await.unwrap().pop();
    assert_eq!(turn.map(|turn| turn.item.instance).as_deref(), Some("free"));
}

#[tokio::test]
async fn parked_fetches_share_one_look() {
    const WORKERS: u64 = 64;
    let schema = TestSchema::new();
    let proxy = Proxy::open().await;
    let provider = PostgresProvider::connect(&proxy.url(), schema.options()).await.unwrap();
    let ids: Vec<u64> = (2..2 + WORKERS).collect();
    let fetches = ids.iter().map(|_| async {
        let fetched = provider.fetch_work(&WorkFetch::new(LOCK, Duration::from_secs(20))).await;
        fetched.unwrap().pop()
    });
    let beginning = async {
        begin(&provider, "i", &ids).await;
        proxy.answers()
    };
    let before = proxy.answers();
    let (fetched, begun) = tokio::join!(biased; join_all(fetches), beginning);
    let expected: Vec<WorkItem> = ids.iter().map(|id| activity("i", *id)).collect();
    let fetched: Vec<FetchedWork> = fetched.into_iter().flatten().collect();
    let items: Vec<WorkItem> = fetched.into_iter().map(|work| work.item).collect();
    assert_eq!(items, expected, "the worker that waits longest gets the oldest");
    let answers = proxy.answers() - begun;
    assert!(answers < 32, "{answers} statements for all, {} for the beginning", begun - before);
}
