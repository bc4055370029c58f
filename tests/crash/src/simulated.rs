//! The store of a simulated world on SQLite: one file on one disk that fails, and every process with a provider of its own.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use async_trait::async_trait;
use everturn::providers::{Clock, LockKind, Provider, ProviderError};
use everturn_proof::is_stress_run;
use everturn_simulation::{Chance, Fault, Opened, Plan, Standing, Store};
use everturn_sqlite::testing::{self, Environment};
use everturn_sqlite::{SqliteOptions, SqliteProvider, Synchronous};
use rusqlite::{Connection, OpenFlags, OptionalExtension};
use tempfile::TempDir;

use crate::disk::{Class, Disk, Fault as DiskFault};
use crate::vfs::Vfs;

/// Of so many calls after it was decided, one is where the power fails.
const CALLS_TO_CUT_MAX: u64 = 150;
/// Of so many calls of its kind after it was decided, one is where a fault of the disk begins.
const CALLS_TO_FAULT_MAX: u64 = 8;
/// How many tenths of a second a fault of the disk lasts at most.
const FAULT_TENTHS_MAX: u64 = 15;
/// In one of so many tenths of a second some process moves the log into the file.
const CHECKPOINT_ONE_IN: u64 = 30;

/// A store on a disk that fails, for a world with this plan.
pub fn found(clock: Arc<dyn Clock>, plan: &Plan) -> Arc<dyn Store> {
    found_with(clock, plan, Synchronous::Full)
}

/// The same, but commits are not synced: what was acknowledged may be lost with the power.
pub fn found_carelessly(clock: Arc<dyn Clock>, plan: &Plan) -> Arc<dyn Store> {
    found_with(clock, plan, Synchronous::Normal)
}

fn found_with(clock: Arc<dyn Clock>, plan: &Plan, synchronous: Synchronous) -> Arc<dyn Store> {
    let mut chance = Chance::of(plan.seed, "disk");
    let disk = Arc::new(Disk::new(chance.next_u64()));
    let vfs = Vfs::register(Arc::clone(&disk), chance.next_u64());
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("world.db");
    let drawn = chance.pick([1, 3, 512, 512]);
    let batch_operations_max = if is_stress_run() { 1 } else { drawn };
    Arc::new(SimulatedStore {
        look: Mutex::default(),
        vfs,
        disk,
        _folder: folder,
        file,
        clock,
        synchronous,
        batch_operations_max,
        doors: Arc::default(),
        state: Mutex::default(),
    })
}

struct SimulatedStore {
    /// Sees what is stored, past the providers. Closed before the file system goes.
    look: Mutex<Option<Connection>>,
    vfs: Vfs,
    disk: Arc<Disk>,
    /// Holds the lock beside the file, the only thing that is on a real disk.
    _folder: TempDir,
    file: PathBuf,
    clock: Arc<dyn Clock>,
    synchronous: Synchronous,
    batch_operations_max: usize,
    /// The provider takes all of a program's openings and closings of a file for those of one process: one at a time.
    doors: Arc<tokio::sync::Mutex<()>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    open: Vec<Weak<SqliteProvider>>,
    outage: Option<Outage>,
    /// Faults that took effect and are over.
    effects: Vec<(Fault, String)>,
    /// What could not be seen, and why.
    unseen: Vec<String>,
}

/// A fault of the disk that goes on.
struct Outage {
    fault: Fault,
    tenths_left: u64,
    lasting: bool,
}

impl SimulatedStore {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at what is stored. Who only looks, while there is power, sees everything: what cannot be seen is a flaw.
    fn look<T>(&self, what: &str, look: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Option<T> {
        if self.disk.is_dark() {
            self.state().unseen.push(format!("{what} cannot be seen without power"));
            return None;
        }
        let mut conn = self.look.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = self.disk.quietly(|| {
            if conn.is_none() {
                let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
                *conn = Some(Connection::open_with_flags_and_vfs(&self.file, flags, self.vfs.name())?);
            }
            conn.as_ref().map(look).transpose()
        });
        seen.unwrap_or_else(|error| {
            self.state().unseen.push(format!("{what} cannot be seen: {error}"));
            None
        })
    }

    /// The fault that goes on is over.
    fn end_outage(&self) {
        let Some(outage) = self.state().outage.take() else { return };
        let failed = self.disk.heal();
        if failed > 0 {
            self.state().effects.push((outage.fault, format!("{failed} calls of the disk failed")));
        }
    }

    /// Some process moves the log into the file.
    fn checkpoint(&self, chance: &mut Chance) {
        let mut open: Vec<_> = self.state().open.iter().filter_map(Weak::upgrade).collect();
        let index = chance.below(open.len() as u64) as usize;
        if index < open.len() {
            let provider = open.swap_remove(index);
            // A reader in the way, or a disk that fails: the log stays as it is.
            drop(tokio::spawn(async move { drop(provider.checkpoint().await) }));
        }
    }
}

#[async_trait]
impl Store for SimulatedStore {
    async fn open(&self) -> Result<Arc<dyn Opened>, ProviderError> {
        let _alone = self.doors.lock().await;
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
                Ok(Arc::new(OpenedFile { provider, doors: Arc::clone(&self.doors) }))
            }
            Err(error) => Err(ProviderError::retryable("open", error.to_string())),
        }
    }

    fn standing(&self, kind: LockKind, token: &str) -> Standing {
        let sql = match kind {
            LockKind::Orchestration => "SELECT locked_until_ms FROM instances WHERE lock_token = ?1",
            LockKind::WorkItem => "SELECT locked_until_ms FROM worker_queue WHERE lock_token = ?1",
        };
        // A lock that was handed out when the power failed is as void as its holder is dead.
        if self.disk.is_dark() {
            return Standing::Void;
        }
        let until_ms: Option<i64> = self
            .look("a lock", |conn| conn.prepare_cached(sql)?.query_row([token], |row| row.get(0)).optional())
            .flatten();
        match until_ms {
            Some(until_ms) => Standing::HeldUntil { until_ms: until_ms.cast_unsigned() },
            None => Standing::Void,
        }
    }

    fn rows_left(&self, instance: &str) -> usize {
        const ROWS: &str = "SELECT (SELECT count(*) FROM orchestrator_queue JOIN instances USING (instance_key) \
             WHERE instance_id = ?1) + (SELECT count(*) FROM worker_queue WHERE instance_id = ?1)";
        let rows =
            self.look("a queue", |conn| conn.prepare_cached(ROWS)?.query_row([instance], |row| row.get(0)));
        rows.map_or(0, |rows: i64| rows.cast_unsigned() as usize)
    }

    fn locked_instances(&self) -> Vec<String> {
        const LOCKED: &str = "SELECT instance_id FROM instances WHERE lock_token IS NOT NULL";
        let locked = self.look("the locks", |conn| {
            conn.prepare_cached(LOCKED)?.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()
        });
        locked.unwrap_or_default()
    }

    fn flaws(&self) -> Vec<String> {
        let check = |conn: &Connection| conn.query_row("PRAGMA integrity_check", [], |row| row.get(0));
        let integrity: Option<String> = self.look("the file", check);
        let mut flaws = std::mem::take(&mut self.state().unseen);
        if let Some(found) = integrity.filter(|found| found != "ok") {
            flaws.push(format!("the file is damaged: {found}"));
        }
        flaws
    }

    fn place(&self) -> Option<String> {
        Some(self.file.display().to_string())
    }

    fn strike(&self, fault: Fault, chance: &mut Chance) {
        let (class, full) = match fault {
            Fault::ReadError => (Class::Read, false),
            Fault::WriteError => (Class::Write, false),
            Fault::DiskFull => (Class::Write, true),
            Fault::SyncError => (Class::Sync, false),
            Fault::PowerCut => {
                if !self.disk.is_dark() {
                    self.disk.cut_power_after(chance.below(CALLS_TO_CUT_MAX));
                }
                return;
            }
            _ => return,
        };
        let (at, lasting) = (chance.below(CALLS_TO_FAULT_MAX), chance.one_in(2));
        let tenths_left = chance.between(1, FAULT_TENTHS_MAX);
        let mut state = self.state();
        if state.outage.is_none() {
            state.outage = Some(Outage { fault, tenths_left, lasting });
            self.disk.inject(DiskFault { class, at, lasting, full });
        }
    }

    fn tick(&self, chance: &mut Chance) -> Vec<(Fault, String)> {
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
        if chance.one_in(CHECKPOINT_ONE_IN) {
            self.checkpoint(chance);
        }
        std::mem::take(&mut self.state().effects)
    }

    fn heal(&self) {
        self.end_outage();
        self.disk.keep_power();
    }

    async fn outage(&self) {
        self.disk.darkness().await;
    }

    fn restart(&self) {
        *self.look.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.disk.restart();
    }
}

/// The file as one process has it open.
struct OpenedFile {
    provider: Arc<SqliteProvider>,
    doors: Arc<tokio::sync::Mutex<()>>,
}

#[async_trait]
impl Opened for OpenedFile {
    fn provider(&self) -> Arc<dyn Provider> {
        Arc::clone(&self.provider) as Arc<dyn Provider>
    }

    async fn close(&self) {
        let _alone = self.doors.lock().await;
        self.provider.close().await;
    }

    async fn kill(&self) {
        let _alone = self.doors.lock().await;
        testing::kill(&self.provider).await;
    }
}
