//! The provider contract: on a file, with one operation per commit, with the default bodies of the traits, and in memory
//! (without the cases that damage rows: only the provider can reach them there).

mod in_batches;
mod in_memory;
mod one_operation_per_commit;
mod through_the_adapter;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use everturn_conformance::{PlainProvider, ProviderFactory, WorkerRowDamage};
use everturn_proof::is_stress_run;
use everturn_provider::{Clock, ManualClock, Provider};
use everturn_sqlite::testing::{self, Environment};
use everturn_sqlite::{SqliteOptions, SqliteProvider};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::store::settings;

/// The time at which every store begins.
const BEGINNING_MS: u64 = 1_700_000_000_000;

/// Stores in files of their own.
pub(crate) struct FileFactory {
    folder: TempDir,
    clock: Arc<ManualClock>,
    batch_operations_max: usize,
    opened: Mutex<Option<Arc<SqliteProvider>>>,
}

impl FileFactory {
    pub(crate) fn new(batch_operations_max: usize) -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            clock: Arc::new(ManualClock::new(BEGINNING_MS)),
            batch_operations_max: if is_stress_run() { 1 } else { batch_operations_max },
            opened: Mutex::new(None),
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("store.db")
    }

    /// Changes rows behind the provider, as a failing disk would.
    fn damage(&self, sql: &str, params: impl rusqlite::Params) -> usize {
        let conn = Connection::open(self.path()).unwrap();
        conn.busy_timeout(std::time::Duration::from_secs(5)).unwrap();
        conn.pragma_update(None, "ignore_check_constraints", "ON").unwrap();
        conn.execute(sql, params).unwrap()
    }
}

impl Drop for FileFactory {
    /// After every case the totals are what a count would give.
    fn drop(&mut self) {
        if !std::thread::panicking() && self.path().exists() {
            crate::totals::assert_right(&self.path());
        }
    }
}

#[async_trait]
impl ProviderFactory for FileFactory {
    fn clock(&self) -> Arc<ManualClock> {
        Arc::clone(&self.clock)
    }

    async fn open(&self) -> Arc<dyn Provider> {
        let options = SqliteOptions {
            clock: Arc::clone(&self.clock) as Arc<dyn Clock>,
            batch_operations_max: self.batch_operations_max,
            ..SqliteOptions::default()
        };
        let url = format!("sqlite:{}", self.path().display());
        let provider = Arc::new(SqliteProvider::new(&url, Some(options)).await.unwrap());
        *self.opened.lock().unwrap() = Some(Arc::clone(&provider));
        provider
    }

    async fn open_on_tokio_time(&self, clock: Arc<dyn Clock>) -> Option<Arc<dyn Provider>> {
        let batch_operations_max = self.batch_operations_max;
        let options = SqliteOptions { clock, batch_operations_max, ..SqliteOptions::default() };
        let url = format!("sqlite:{}", self.path().display());
        Some(Arc::new(testing::open(&url, options, in_a_task()).await.unwrap()))
    }

    async fn reopen(&self, provider: Arc<dyn Provider>) -> Option<Arc<dyn Provider>> {
        drop(provider);
        let opened = self.opened.lock().unwrap().take();
        opened.expect("a provider to close").close().await;
        Some(self.open().await)
    }

    async fn damage_event(
        &self,
        _provider: &Arc<dyn Provider>,
        instance: &str,
        execution_id: u64,
        event_id: u64,
    ) {
        let damaged = self.damage(
            "UPDATE everturn_history SET events = '[{damaged' \
             WHERE execution_id = ?2 AND ?3 BETWEEN first_event_id AND last_event_id \
             AND instance_key = (SELECT instance_key FROM everturn_instances WHERE instance_id = ?1)",
            (instance, i64::try_from(execution_id).unwrap(), i64::try_from(event_id).unwrap()),
        );
        assert_eq!(damaged, 1, "there is such an event");
    }

    async fn message_attempts(&self, _provider: &Arc<dyn Provider>, instance: &str) -> Option<Vec<u32>> {
        let conn = Connection::open(self.path()).unwrap();
        let mut select = conn
            .prepare(
                "SELECT q.attempt_count FROM everturn_orchestrator_queue AS q JOIN everturn_instances AS i \
                 ON i.instance_key = q.instance_key WHERE i.instance_id = ?1 ORDER BY q.seq",
            )
            .unwrap();
        let counts = select.query_map([instance], |row| row.get(0)).unwrap();
        Some(counts.collect::<Result<_, _>>().unwrap())
    }

    async fn damage_orchestrator_rows(&self, _provider: &Arc<dyn Provider>, instance: &str) -> bool {
        let damaged = self.damage(
            "UPDATE everturn_orchestrator_queue SET work_item = '{damaged' \
             WHERE instance_key = (SELECT instance_key FROM everturn_instances WHERE instance_id = ?1)",
            [instance],
        );
        damaged > 0
    }

    async fn damage_worker_rows(
        &self,
        _provider: &Arc<dyn Provider>,
        instance: &str,
        damage: WorkerRowDamage,
    ) -> bool {
        let sql = match damage {
            WorkerRowDamage::Item => {
                "UPDATE everturn_worker_queue SET work_item = CAST(x'ff00fe' AS TEXT) WHERE instance_id = ?1"
            }
            WorkerRowDamage::ItemAndIdentity => {
                "UPDATE everturn_worker_queue SET work_item = '{damaged', instance_id = '', execution_id = 0, activity_id = 0 \
                 WHERE instance_id = ?1"
            }
        };
        self.damage(sql, [instance]) > 0
    }
}

/// The writer and all reads are on the caller's thread.
fn in_a_task() -> Environment {
    Environment { writer_in_task: true, ..Environment::default() }
}

/// Stores in files with their plain verbs only: the suite reaches them through the adapter.
struct PlainFactory(FileFactory);

impl PlainFactory {
    fn new() -> Self {
        Self(FileFactory::new(512))
    }
}

#[async_trait]
impl ProviderFactory for PlainFactory {
    fn clock(&self) -> Arc<ManualClock> {
        self.0.clock()
    }

    async fn open(&self) -> Arc<dyn Provider> {
        Arc::new(PlainProvider::over(self.0.open().await))
    }

    async fn damage_event(&self, bare: &Arc<dyn Provider>, instance: &str, execution_id: u64, event_id: u64) {
        self.0.damage_event(bare, instance, execution_id, event_id).await;
    }

    async fn message_attempts(&self, bare: &Arc<dyn Provider>, instance: &str) -> Option<Vec<u32>> {
        self.0.message_attempts(bare, instance).await
    }
}

/// Stores in memory.
pub(crate) struct MemoryFactory {
    clock: Arc<ManualClock>,
}

impl MemoryFactory {
    pub(crate) fn new() -> Self {
        Self { clock: Arc::new(ManualClock::new(BEGINNING_MS)) }
    }
}

#[async_trait]
impl ProviderFactory for MemoryFactory {
    fn clock(&self) -> Arc<ManualClock> {
        Arc::clone(&self.clock)
    }

    async fn open(&self) -> Arc<dyn Provider> {
        let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        let options = SqliteOptions { clock, ..settings() };
        Arc::new(SqliteProvider::new_in_memory_with_options(Some(options)).await.unwrap())
    }

    async fn open_on_tokio_time(&self, clock: Arc<dyn Clock>) -> Option<Arc<dyn Provider>> {
        let options = SqliteOptions { clock, ..settings() };
        Some(Arc::new(testing::open("sqlite::memory:", options, in_a_task()).await.unwrap()))
    }

    async fn damage_event(&self, _: &Arc<dyn Provider>, _: &str, _: u64, _: u64) {
        panic!("rows in memory cannot be damaged from outside");
    }

    async fn message_attempts(&self, _: &Arc<dyn Provider>, _: &str) -> Option<Vec<u32>> {
        None
    }
}
