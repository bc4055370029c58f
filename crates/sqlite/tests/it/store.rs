//! A store in a folder of its own, and short forms of the verbs.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use everturn_core::{Event, EventKind, WorkItem};
use everturn_proof::is_stress_run;
use everturn_provider::{Clock, ExecutionMetadata, ManualClock, OrchestrationItem, Provider, TagFilter};
use everturn_sqlite::{SqliteOptions, SqliteProvider};
use rusqlite::Connection;
use tempfile::TempDir;

pub(crate) const LOCK: Duration = Duration::from_secs(30);

/// A folder with one database.
pub(crate) struct Store {
    folder: TempDir,
}

impl Store {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("store.db")
    }

    pub(crate) fn url(&self) -> String {
        format!("sqlite:{}", self.path().display())
    }

    pub(crate) async fn open(&self) -> SqliteProvider {
        SqliteProvider::new(&self.url(), Some(settings())).await.unwrap()
    }

    /// Opens it with batches, under stress settings too: batches are what is tested.
    pub(crate) async fn open_with_batches(&self) -> SqliteProvider {
        SqliteProvider::new(&self.url(), None).await.unwrap()
    }

    pub(crate) async fn open_at(&self, clock: &Arc<ManualClock>) -> SqliteProvider {
        let options = SqliteOptions { clock: Arc::clone(clock) as Arc<dyn Clock>, ..settings() };
        SqliteProvider::new(&self.url(), Some(options)).await.unwrap()
    }

    /// The database without the provider.
    pub(crate) fn sql(&self) -> Connection {
        let conn = Connection::open(self.path()).unwrap();
        conn.busy_timeout(Duration::from_secs(5)).unwrap();
        conn
    }

    /// The folder with a locked file for each provider that has the database open.
    pub(crate) fn owners(&self) -> PathBuf {
        self.folder.path().join("store.db-owners")
    }

    /// The names of all files in the folder.
    pub(crate) fn files(&self) -> Vec<String> {
        let files = std::fs::read_dir(self.folder.path()).unwrap();
        let mut names: Vec<_> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    pub(crate) fn log_bytes(&self) -> u64 {
        std::fs::metadata(self.folder.path().join("store.db-wal")).map_or(0, |log| log.len())
    }
}

pub(crate) fn start(instance: &str) -> WorkItem {
    WorkItem::StartOrchestration {
        instance: instance.to_owned(),
        orchestration: "order".to_owned(),
        input: "input".to_owned(),
        version: Some("1.0.0".to_owned()),
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        execution_id: 1,
    }
}

pub(crate) fn signal(instance: &str) -> WorkItem {
    WorkItem::ExternalRaised { instance: instance.to_owned(), name: "go".to_owned(), data: String::new() }
}

pub(crate) fn activity(instance: &str, id: u64) -> WorkItem {
    WorkItem::ActivityExecute {
        instance: instance.to_owned(),
        execution_id: 1,
        id,
        name: "pay".to_owned(),
        input: "input".to_owned(),
        session_id: None,
        tag: None,
    }
}

pub(crate) fn completion(instance: &str, id: u64) -> WorkItem {
    WorkItem::ActivityCompleted {
        instance: instance.to_owned(),
        execution_id: 1,
        id,
        result: "paid".to_owned(),
    }
}

pub(crate) fn started(instance: &str) -> Event {
    let kind = EventKind::OrchestrationStarted {
        name: "order".to_owned(),
        version: "1.0.0".to_owned(),
        input: "input".to_owned(),
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        carry_forward_events: None,
        initial_custom_status: None,
    };
    Event::with_event_id(1, instance, 1, None, kind)
}

pub(crate) fn scheduled(instance: &str, id: u64) -> Event {
    let kind = EventKind::ActivityScheduled {
        name: "pay".to_owned(),
        input: "input".to_owned(),
        session_id: None,
        tag: None,
    };
    Event::with_event_id(id, instance, 1, None, kind)
}

pub(crate) fn named() -> ExecutionMetadata {
    ExecutionMetadata {
        orchestration_name: Some("order".to_owned()),
        orchestration_version: Some("1.0.0".to_owned()),
        ..ExecutionMetadata::default()
    }
}

/// One look into the orchestrator queue.
pub(crate) async fn fetch(provider: &SqliteProvider) -> Option<(OrchestrationItem, String, u32)> {
    provider.fetch_orchestration_item(LOCK, Duration::ZERO, None).await.unwrap()
}

/// One look into the worker queue.
pub(crate) async fn fetch_work(provider: &SqliteProvider) -> Option<(WorkItem, String, u32)> {
    provider.fetch_work_item(LOCK, Duration::ZERO, None, &TagFilter::Any).await.unwrap()
}

/// Starts an instance and commits its first turn, which schedules these activities.
pub(crate) async fn begin(provider: &SqliteProvider, instance: &str, activities: Vec<WorkItem>) {
    provider.enqueue_for_orchestrator(start(instance), None).await.unwrap();
    let (item, token, _) = fetch(provider).await.expect("the start");
    assert_eq!(item.instance, instance);
    provider
        .ack_orchestration_item(&token, 1, vec![started(instance)], activities, vec![], named(), vec![])
        .await
        .unwrap();
}

/// Lets a table take values of any type, as a failing disk would store them.
pub(crate) fn loosen(conn: &Connection, table: &str) {
    conn.pragma_update(None, "writable_schema", "ON").unwrap();
    let loosen = "UPDATE sqlite_schema SET sql = replace(sql, ') STRICT', ')') WHERE name = ?1";
    assert_eq!(conn.execute(loosen, [table]).unwrap(), 1);
    conn.pragma_update(None, "writable_schema", "RESET").unwrap();
}

/// Waits until a condition holds; fails after 20 seconds.
pub(crate) async fn until(mut holds: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while !holds().await {
        assert!(tokio::time::Instant::now() < deadline, "the condition never held");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// The usual options; under stress settings with one operation per commit.
pub(crate) fn settings() -> SqliteOptions {
    let usual = SqliteOptions::default();
    let batch_operations_max = if is_stress_run() { 1 } else { usual.batch_operations_max };
    SqliteOptions { batch_operations_max, ..usual }
}
