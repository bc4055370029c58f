//! A store for the simulation: one SQLite file on a failing disk, opened by every process with its own provider.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use async_trait::async_trait;
use everturn::providers::store::{LockKind, Store};
use everturn::providers::{Clock, ProviderError};
use everturn_proof::is_stress_run;
use everturn_simulation::{Fault, LockState, OpenedStore, Plan, SeededRandom, WorldStore};
use everturn_sqlite::testing::{self, Environment};
use everturn_sqlite::{SqliteOptions, SqliteProvider, Synchronous};
use rusqlite::{Connection, OpenFlags, OptionalExtension};
use tempfile::TempDir;

use crate::disk::{CallClass, Disk, DiskFault};
use crate::vfs::Vfs;

/// A power cut happens within this many disk calls.
const CALLS_TO_CUT_MAX: u64 = 150;
/// A disk fault begins within this many calls of its class.
const CALLS_TO_FAULT_MAX: u64 = 8;
/// How many tenths of a second a disk fault lasts at most.
const FAULT_TENTHS_MAX: u64 = 15;
/// In one of this many tenths of a second some process checkpoints.
const CHECKPOINT_ONE_IN: u64 = 30;

/// A store on a failing disk, for this plan.
pub fn sqlite_store(clock: Arc<dyn Clock>, plan: &Plan) -> Arc<dyn WorldStore> {
    store_with(clock, plan, Synchronous::Full)
}

/// The same, but commits are not synced: a power cut may lose acknowledged ones.
pub fn sqlite_store_without_sync(clock: Arc<dyn Clock>, plan: &Plan) -> Arc<dyn WorldStore> {
    store_with(clock, plan, Synchronous::Normal)
}

fn store_with(clock: Arc<dyn Clock>, plan: &Plan, synchronous: Synchronous) -> Arc<dyn WorldStore> {
    let mut random = SeededRandom::of(plan.seed, "disk");
    let disk = Arc::new(Disk::new(random.next_u64()));
    let vfs = Vfs::register(Arc::clone(&disk), random.next_u64());
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("world.db");
    let drawn = random.pick([1, 3, 512, 512]);
    let batch_operations_max = if is_stress_run() { 1 } else { drawn };
    Arc::new(SimulatedStore {
        reader: Mutex::default(),
        vfs,
        disk,
        _folder: folder,
        file,
        clock,
        synchronous,
        batch_operations_max,
        open_close: Arc::default(),
        state: Mutex::default(),
    })
}

struct SimulatedStore {
    /// Reads past the providers. Closed before the file system is dropped.
    reader: Mutex<Option<Connection>>,
    vfs: Vfs,
    disk: Arc<Disk>,
    /// Holds the lock file, which is on a real disk.
    _folder: TempDir,
    file: PathBuf,
    clock: Arc<dyn Clock>,
    synchronous: Synchronous,
    batch_operations_max: usize,
    /// Only one provider is opened or closed at a time: all simulated processes are one process to the provider.
    open_close: Arc<tokio::sync::Mutex<()>>,
    state: Mutex<SimulatedStoreState>,
}

#[derive(Default)]
struct SimulatedStoreState {
    open: Vec<Weak<SqliteProvider>>,
    outage: Option<DiskOutage>,
    /// Faults that took effect and are over.
    effects: Vec<(Fault, String)>,
    /// Reads past the providers that failed, and why.
    failed_reads: Vec<String>,
}

/// A disk fault that has not ended.
struct DiskOutage {
    fault: Fault,
    tenths_left: u64,
    lasting: bool,
}

impl SimulatedStore {
    fn state(&self) -> MutexGuard<'_, SimulatedStoreState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads past the providers. With power this always succeeds: a failure is reported as a flaw.
    fn read<T>(&self, what: &str, read: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Option<T> {
        if self.disk.is_powered_off() {
            self.state().failed_reads.push(format!("{what} cannot be read without power"));
            return None;
        }
        let mut conn = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let result = self.disk.without_faults(|| {
            if conn.is_none() {
                let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
                *conn = Some(Connection::open_with_flags_and_vfs(&self.file, flags, self.vfs.name())?);
            }
            conn.as_ref().map(read).transpose()
        });
        result.unwrap_or_else(|error| {
            self.state().failed_reads.push(format!("{what} cannot be read: {error}"));
            None
        })
    }

    /// Ends the current disk fault.
    fn end_outage(&self) {
        let Some(outage) = self.state().outage.take() else { return };
        let failed = self.disk.heal();
        if failed > 0 {
            self.state().effects.push((outage.fault, format!("{failed} disk calls failed")));
        }
    }

    /// Some process checkpoints.
    fn checkpoint(&self, random: &mut SeededRandom) {
        let mut open: Vec<_> = self.state().open.iter().filter_map(Weak::upgrade).collect();
        let index = random.below(open.len() as u64) as usize;
        if index < open.len() {
            let provider = open.swap_remove(index);
            // A reader in the way or a failing disk is no problem: the log stays as it is.
            drop(tokio::spawn(async move { drop(provider.checkpoint().await) }));
        }
    }
}

#[async_trait]
impl WorldStore for SimulatedStore {
    async fn open(&self) -> Result<Arc<dyn OpenedStore>, ProviderError> {
        let _guard = self.open_close.lock().await;
        let options = SqliteOptions {
            synchronous: self.synchronous,
            clock: Arc::clone(&self.clock),
            batch_operations_max: self.batch_operations_max,
            ..SqliteOptions::default()
        };
        let environment = Environment { vfs: Some(self.vfs.name().to_owned()), writer_in_task: true };
        let url = format!("sqlite:{}", self.file.display());
        match testing::open(&url, options, environment).await {
            Ok(provider) => {
                let provider = Arc::new(provider);
                let mut state = self.state();
                state.open.retain(|other| other.strong_count() > 0);
                state.open.push(Arc::downgrade(&provider));
                Ok(Arc::new(OpenedFile { provider, open_close: Arc::clone(&self.open_close) }))
            }
            Err(error) => Err(ProviderError::retryable("open", error.to_string())),
        }
    }

    fn lock_state(&self, kind: LockKind, token: &str) -> LockState {
        let sql = match kind {
            LockKind::Orchestration => "SELECT locked_until_ms FROM everturn_instances WHERE lock_token = ?1",
            LockKind::WorkItem => "SELECT locked_until_ms FROM everturn_worker_queue WHERE lock_token = ?1",
        };
        // A lock that was handed out when the power failed is void: its holder does not run any more.
        if self.disk.is_powered_off() {
            return LockState::Void;
        }
        let until_ms: Option<i64> = self
            .read("a lock", |conn| conn.prepare_cached(sql)?.query_row([token], |row| row.get(0)).optional())
            .flatten();
        match until_ms {
            Some(until_ms) => LockState::HeldUntil { until_ms: until_ms.cast_unsigned() },
            None => LockState::Void,
        }
    }

    fn releases_locks_of_ended_processes(&self) -> bool {
        true
    }

    fn rows_left(&self, instance: &str) -> usize {
        const ROWS: &str = "SELECT (SELECT count(*) FROM everturn_orchestrator_queue JOIN everturn_instances USING (instance_key) \
             WHERE instance_id = ?1) + (SELECT count(*) FROM everturn_worker_queue WHERE instance_id = ?1)";
        let rows =
            self.read("a queue", |conn| conn.prepare_cached(ROWS)?.query_row([instance], |row| row.get(0)));
        rows.map_or(0, |rows: i64| rows.cast_unsigned() as usize)
    }

    fn locked_instances(&self) -> Vec<String> {
        const LOCKED: &str = "SELECT instance_id FROM everturn_instances WHERE lock_token IS NOT NULL";
        let locked = self.read("the locks", |conn| {
            conn.prepare_cached(LOCKED)?.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()
        });
        locked.unwrap_or_default()
    }

    fn flaws(&self) -> Vec<String> {
        let check = |conn: &Connection| conn.query_row("PRAGMA integrity_check", [], |row| row.get(0));
        let integrity: Option<String> = self.read("the file", check);
        let mut flaws = std::mem::take(&mut self.state().failed_reads);
        if let Some(found) = integrity.filter(|found| found != "ok") {
            flaws.push(format!("the file is damaged: {found}"));
        }
        flaws
    }

    fn path(&self) -> Option<String> {
        Some(self.file.display().to_string())
    }

    fn strike(&self, fault: Fault, random: &mut SeededRandom) {
        let (class, full) = match fault {
            Fault::ReadError => (CallClass::Read, false),
            Fault::WriteError => (CallClass::Write, false),
            Fault::DiskFull => (CallClass::Write, true),
            Fault::SyncError => (CallClass::Sync, false),
            Fault::PowerCut => {
                if !self.disk.is_powered_off() {
                    self.disk.cut_power_after(random.below(CALLS_TO_CUT_MAX));
                }
                return;
            }
            _ => return,
        };
        let (at, lasting) = (random.below(CALLS_TO_FAULT_MAX), random.one_in(2));
        let tenths_left = random.between(1, FAULT_TENTHS_MAX);
        let mut state = self.state();
        if state.outage.is_none() {
            state.outage = Some(DiskOutage { fault, tenths_left, lasting });
            self.disk.inject(DiskFault { class, at, lasting, full });
        }
    }

    fn tick(&self, random: &mut SeededRandom) -> Vec<(Fault, String)> {
        let is_over = match &mut self.state().outage {
            Some(outage) => {
                outage.tenths_left = outage.tenths_left.saturating_sub(1);
                outage.tenths_left == 0 || (!outage.lasting && self.disk.faults_hit() > 0)
            }
            None => false,
        };
        if is_over {
            self.end_outage();
        }
        if random.one_in(CHECKPOINT_ONE_IN) {
            self.checkpoint(random);
        }
        std::mem::take(&mut self.state().effects)
    }

    fn heal(&self) {
        self.end_outage();
        self.disk.keep_power();
    }

    async fn power_failure(&self) {
        self.disk.power_lost().await;
    }

    fn restart(&self) {
        *self.reader.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.disk.restart();
    }
}

/// The file, opened by one process.
struct OpenedFile {
    provider: Arc<SqliteProvider>,
    open_close: Arc<tokio::sync::Mutex<()>>,
}

#[async_trait]
impl OpenedStore for OpenedFile {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.provider) as Arc<dyn Store>
    }

    async fn close(&self) {
        let _guard = self.open_close.lock().await;
        self.provider.close().await;
    }

    async fn kill(&self) {
        let _guard = self.open_close.lock().await;
        testing::kill(&self.provider).await;
    }
}
