//! A store with three running instances.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use everturn_core::{Event, EventKind, WorkItem};
use everturn_provider::{Clock, ExecutionMetadata, ManualClock, Provider, SessionFetchConfig, TagFilter};
use everturn_sqlite::{SqliteOptions, SqliteProvider, Synchronous};
use tokio::sync::OnceCell;

use super::columns::DAMAGED;
use crate::store::{LOCK, Store, fetch, named, signal, start};

/// The instances whose rows are not damaged.
pub(crate) const SOUND: [&str; 2] = ["sound-1", "sound-2"];

/// The time at which every store begins.
const BEGINNING_MS: u64 = 1_700_000_000_000;
/// When the delayed message of each instance is due.
pub(crate) const DELAY: Duration = Duration::from_secs(60);

static TEMPLATE: OnceCell<Vec<u8>> = OnceCell::const_new();

/// A store of its own, with the same content each time.
pub(crate) async fn filled() -> Store {
    let file = TEMPLATE
        .get_or_init(|| async {
            let store = Store::new();
            let provider = open(&store, &clock()).await;
            for instance in [DAMAGED, SOUND[0], SOUND[1]] {
                run_two_executions(&provider, instance).await;
            }
            for instance in [DAMAGED, SOUND[0], SOUND[1]] {
                send(&provider, instance).await;
            }
            provider.close().await;
            insert_dead_letter(&store.path());
            std::fs::read(store.path()).unwrap()
        })
        .await;
    let store = Store::new();
    std::fs::write(store.path(), file).unwrap();
    store
}

pub(crate) fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(BEGINNING_MS))
}

pub(crate) async fn open(store: &Store, clock: &Arc<ManualClock>) -> SqliteProvider {
    let options = SqliteOptions {
        clock: Arc::clone(clock) as Arc<dyn Clock>,
        // This tests damage, not power failure.
        synchronous: Synchronous::Normal,
        ..SqliteOptions::default()
    };
    SqliteProvider::new(&store.url(), Some(options)).await.unwrap()
}

pub(crate) fn session() -> SessionFetchConfig {
    SessionFetchConfig { owner_id: "worker".to_owned(), lock_timeout: LOCK }
}

/// The next activity, whatever its tag and session.
pub(crate) async fn fetch_any_work(provider: &SqliteProvider) -> Option<(WorkItem, String, u32)> {
    provider.fetch_work_item(LOCK, Duration::ZERO, Some(&session()), &TagFilter::Any).await.unwrap()
}

fn event(instance: &str, execution_id: u64, event_id: u64, kind: EventKind) -> Event {
    Event::with_event_id(event_id, instance, execution_id, None, kind)
}

fn started() -> EventKind {
    EventKind::OrchestrationStarted {
        name: "order".to_owned(),
        version: "1.0.0".to_owned(),
        input: "input".to_owned(),
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        carry_forward_events: Some(vec![("mail".to_owned(), "text".to_owned())]),
        initial_custom_status: None,
    }
}

fn kv_set(key: &str) -> EventKind {
    EventKind::KeyValueSet { key: key.to_owned(), value: format!("{key} value"), last_updated_at_ms: 5 }
}

fn pinned() -> ExecutionMetadata {
    ExecutionMetadata { pinned_engine_version: Some(semver::Version::new(0, 1, 0)), ..named() }
}

fn work(instance: &str, id: u64, session_id: Option<String>, tag: Option<&str>) -> WorkItem {
    WorkItem::ActivityExecute {
        instance: instance.to_owned(),
        execution_id: 2,
        id,
        name: "pay".to_owned(),
        // One of them is large.
        input: if id == 4 { "x".repeat(2_000) } else { "input".to_owned() },
        session_id,
        tag: tag.map(str::to_owned),
    }
}

/// Two executions, both parts of the key-value store, a custom status and three activities.
async fn run_two_executions(provider: &SqliteProvider, instance: &str) {
    provider.enqueue_for_orchestrator(start(instance), None).await.unwrap();
    let (_, token, _) = fetch(provider).await.unwrap();
    let first = vec![
        event(instance, 1, 1, started()),
        event(instance, 1, 2, kv_set("base")),
        event(instance, 1, 3, EventKind::OrchestrationContinuedAsNew { input: "next".to_owned() }),
    ];
    let successor = WorkItem::ContinueAsNew {
        instance: instance.to_owned(),
        orchestration: "order".to_owned(),
        input: "next".to_owned(),
        version: Some("1.0.0".to_owned()),
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        carry_forward_events: Vec::new(),
        initial_custom_status: None,
    };
    let ended = ExecutionMetadata {
        status: Some("ContinuedAsNew".to_owned()),
        output: Some("next".to_owned()),
        ..pinned()
    };
    provider.ack_orchestration_item(&token, 1, first, vec![], vec![successor], ended, vec![]).await.unwrap();

    let scheduled = || EventKind::ActivityScheduled {
        name: "pay".to_owned(),
        input: "input".to_owned(),
        session_id: None,
        tag: None,
    };
    let half_way = EventKind::CustomStatusUpdated { status: Some("half way".to_owned()) };
    let in_session = work(instance, 3, Some(format!("session-{instance}")), None);
    let turns = [
        (1, [started(), scheduled()], vec![work(instance, 2, None, None)]),
        (3, [scheduled(), scheduled()], vec![in_session, work(instance, 4, None, Some("gpu"))]),
        (5, [kv_set("delta"), half_way], vec![]),
    ];
    for (first, kinds, activities) in turns {
        let (_, token, _) = fetch(provider).await.unwrap();
        let events = (first..).zip(kinds).map(|(id, kind)| event(instance, 2, id, kind)).collect();
        let next = if first < 5 { vec![signal(instance)] } else { vec![] };
        provider.ack_orchestration_item(&token, 2, events, activities, next, pinned(), vec![]).await.unwrap();
    }
}

/// A message that is visible and one that is not yet.
async fn send(provider: &SqliteProvider, instance: &str) {
    let large = WorkItem::ExternalRaised {
        instance: instance.to_owned(),
        name: "go".to_owned(),
        data: "x".repeat(2_000),
    };
    provider.enqueue_for_orchestrator(large, None).await.unwrap();
    let timer = WorkItem::TimerFired {
        instance: instance.to_owned(),
        execution_id: 2,
        id: 9,
        fire_at_ms: BEGINNING_MS + 60_000,
    };
    provider.enqueue_for_orchestrator(timer, Some(DELAY)).await.unwrap();
}

fn insert_dead_letter(path: &Path) {
    let sql = "INSERT INTO everturn_dead_letters (dead_lettered_at_ms, reason, instance_id, execution_id, activity_id, work_item) \
         VALUES (1, 'reason', 'damaged', 1, 2, '{')";
    rusqlite::Connection::open(path).unwrap().execute(sql, []).unwrap();
}
