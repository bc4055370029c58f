//! A machine with a disk: it is switched on, works, and loses power.

mod pages;
mod prepare;
mod run_end;
mod setup;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use everturn::providers::{Clock, SystemClock, TagFilter};
use everturn::runtime::Runtime;
use everturn::{Client, ClientError, OrchestrationStatus, RuntimeOptions};
use everturn_simulation::{SeededRandom, SimClock};
use everturn_sqlite::testing::{self, Environment};
use everturn_sqlite::{SqliteOptions, SqliteProvider};
use rusqlite::{Connection, OpenFlags};
use tempfile::TempDir;
use tokio::task::JoinSet;

pub use self::pages::{PageKind, StoredPage};
pub use self::prepare::Prepared;
pub use self::run_end::{ClientAnswer, DamagedInstance, NOT_THERE, RunEnd, STANDS_STILL};
pub use self::setup::MachineSetup;
use crate::activities::{activities, tag_filter};
use crate::clients::drive;
use crate::disk::Disk;
use crate::instance_script::orchestrations;
use crate::observations::{Observation, ObservationLog};
use crate::observed_store::ObservedStore;
use crate::tables;
use crate::vfs::Vfs;

/// When the first run of a machine begins, in milliseconds since the epoch.
const BEGINNING_MS: u64 = 1_800_000_000_000;
/// How long all instances together may take to end, in simulated time, once nothing fails any more.
const INSTANCES_END_MAX: Duration = Duration::from_secs(900);
/// How long the queues may take to become empty when all instances have ended.
const QUEUES_EMPTY_MAX: Duration = Duration::from_secs(60);
/// Both limits on a real clock: below the watchdog's limit, and enough for a few locks of earlier runs, of five seconds
/// each, to expire one after the other.
const REAL_TIME_MAX: Duration = Duration::from_secs(30);
/// How long a call of a client, or closing everything, may take whatever the disk does.
const ANSWER_MAX: Duration = Duration::from_secs(120);
/// How long a permanent fault lasts before the clients' answers are checked: longer than some locks last.
const PERMANENT_FAULT: Duration = Duration::from_secs(2);

/// A machine with a disk, and the log of what clients observe of it.
pub struct CrashMachine {
    /// Its disk.
    pub disk: Arc<Disk>,
    /// What clients, activities and runtimes have observed.
    pub log: Arc<ObservationLog>,
    /// How it is set up, the same in all its runs.
    pub setup: MachineSetup,
    /// At which disk call after the runtimes' start the power fails, in its next run.
    pub cut_at_work: Option<u64>,
    /// The disk fault does not end in the next run: some time after the first failed call everything is shut down.
    pub has_permanent_fault: bool,
    /// Instances whose rows the test damages: they need not end.
    pub damaged: BTreeSet<String>,
    vfs: Vfs,
    database: PathBuf,
    /// Where the lock files are. It is removed with the machine.
    _folder: TempDir,
    random: SeededRandom,
    now_ms: u64,
    commits: AtomicU64,
    faults_at_work: AtomicU64,
    damaged_at_end: Mutex<Vec<DamagedInstance>>,
}

impl CrashMachine {
    /// A machine with this disk, on which `log`'s instances will run. `folder` is where its lock files are, on a real disk; it
    /// is removed with the machine.
    pub fn new(
        disk: Arc<Disk>,
        folder: TempDir,
        log: ObservationLog,
        setup: MachineSetup,
        random: SeededRandom,
    ) -> Self {
        let vfs = Vfs::register(Arc::clone(&disk), random.branch(1).next_u64());
        Self {
            disk,
            log: Arc::new(log),
            setup,
            cut_at_work: None,
            has_permanent_fault: false,
            damaged: BTreeSet::new(),
            vfs,
            database: Self::database_in(&folder),
            _folder: folder,
            random,
            now_ms: BEGINNING_MS,
            commits: AtomicU64::new(0),
            faults_at_work: AtomicU64::new(0),
            damaged_at_end: Mutex::default(),
        }
    }

    /// The database file of a machine with this folder.
    pub fn database_in(folder: &TempDir) -> PathBuf {
        folder.path().join("machine.db")
    }

    /// Switches the machine on and runs it until all instances have ended, or it cannot go on. `meanwhile` runs beside
    /// the clients.
    pub fn run<F: Future<Output = ()>>(&mut self, meanwhile: impl FnOnce(Arc<Disk>) -> F) -> RunEnd {
        let runtime = if self.setup.threads {
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build()
        } else {
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()
        };
        let runtime = runtime.unwrap();
        let began_ms = self.now_ms;
        let random = self.random.branch(began_ms);
        let (end, now_ms) = runtime.block_on(async {
            let clock: Arc<dyn Clock> = if self.setup.threads {
                Arc::new(SystemClock::new())
            } else {
                Arc::new(SimClock::starting_at(began_ms, random))
            };
            let meanwhile = meanwhile(Arc::clone(&self.disk));
            let work = self.work(clock.clone());
            let both = async {
                tokio::pin!(meanwhile);
                tokio::pin!(work);
                tokio::select! {
                    biased;
                    end = &mut work => return end,
                    () = &mut meanwhile => {}
                }
                work.await
            };
            (both.await, clock.wall_ms())
        });
        // Tasks that still run are dropped here, between any two of their steps.
        drop(runtime);
        self.cut_at_work = None;
        self.has_permanent_fault = false;
        self.now_ms = now_ms + 1 + self.random.modulo(3_000);
        assert_eq!(self.vfs.open_files(), 0, "the machine is off, and a file is still open");
        end
    }

    async fn work(&self, clock: Arc<dyn Clock>) -> RunEnd {
        let mut nodes = Vec::new();
        let end = self.work_with(&mut nodes, clock).await;
        if self.setup.threads {
            // A thread cannot be dropped; closing ends it, and its disk calls fail by now.
            for node in &nodes {
                node.close().await;
            }
        }
        end
    }

    async fn work_with(&self, nodes: &mut Vec<Arc<SqliteProvider>>, clock: Arc<dyn Clock>) -> RunEnd {
        for _ in 0..self.setup.nodes {
            match self.open(clock.clone()).await {
                Ok(provider) => nodes.push(provider),
                Err(_) if self.disk.is_powered_off() => return RunEnd::PowerLost { at_work: false },
                Err(error) => return RunEnd::NotOpened(error.to_string()),
            }
        }
        let mut runtimes = Vec::new();
        for (index, provider) in nodes.iter().enumerate() {
            let filter = tag_filter(index, nodes.len());
            runtimes.push(self.start(Arc::clone(provider), filter, clock.clone()).await);
        }
        let faults_before = self.disk.faults_hit();
        if let Some(calls) = self.cut_at_work {
            self.disk.cut_power_after(calls);
        }
        let mut clients = JoinSet::new();
        let end = tokio::select! {
            biased;
            () = self.disk.power_lost() => RunEnd::PowerLost { at_work: true },
            () = self.checkpoints(nodes) => unreachable!("checkpoints never end"),
            end = self.all_done(nodes, &mut clients) => end,
            end = self.permanent_fault(nodes) => end,
        };
        self.faults_at_work.fetch_add(self.disk.faults_hit() - faults_before, Ordering::Relaxed);
        clients.shutdown().await;
        let commits: u64 = nodes.iter().map(|node| node.commit_count()).sum();
        self.commits.fetch_add(commits, Ordering::Relaxed);
        if matches!(end, RunEnd::PowerLost { .. }) {
            return end;
        }
        let closing = async {
            for runtime in runtimes {
                runtime.shutdown(None).await;
            }
            for provider in nodes.iter() {
                provider.close().await;
            }
        };
        tokio::select! {
            biased;
            () = self.disk.power_lost() => RunEnd::PowerLost { at_work: false },
            closed = tokio::time::timeout(self.limit(ANSWER_MAX), closing) => {
                if closed.is_ok() { end } else { RunEnd::NotClosed }
            }
        }
    }

    /// This limit in simulated time, or the limit on a real clock.
    fn limit(&self, simulated: Duration) -> Duration {
        if self.setup.threads { REAL_TIME_MAX } else { simulated }
    }

    /// Waits until a permanent fault has lasted a while, then collects the answers that clients get.
    async fn permanent_fault(&self, nodes: &[Arc<SqliteProvider>]) -> RunEnd {
        if !self.has_permanent_fault {
            std::future::pending::<()>().await;
        }
        self.disk.fault_struck().await;
        tokio::time::sleep(PERMANENT_FAULT).await;
        let instances = self.log.snapshot().instances;
        let (instance, observed) = instances.first_key_value().expect("a machine that fails has instances");
        let (mut writes, mut reads) = (Vec::new(), Vec::new());
        for node in nodes {
            let client = Client::new(node.clone());
            self.log.record(Observation::Asked(instance.clone(), "start".to_owned()));
            let start = client.start_orchestration(
                instance,
                observed.script.orchestration(),
                observed.script.input(),
            );
            writes.push(answer(start).await);
            reads.push(answer(client.get_orchestration_status(instance)).await);
        }
        RunEnd::DiskFailed { writes, reads }
    }

    async fn open(&self, clock: Arc<dyn Clock>) -> Result<Arc<SqliteProvider>, everturn_sqlite::SqliteError> {
        let options = SqliteOptions {
            synchronous: self.setup.synchronous,
            clock,
            batch_operations_max: self.setup.batch_operations_max,
            ..SqliteOptions::default()
        };
        let vfs = Some(self.vfs.name().to_owned());
        let environment = Environment { vfs, writer_in_task: !self.setup.threads };
        let url = format!("sqlite:{}", self.database.display());
        testing::open(&url, options, environment).await.map(Arc::new)
    }

    async fn start(
        &self,
        provider: Arc<SqliteProvider>,
        filter: TagFilter,
        clock: Arc<dyn Clock>,
    ) -> Arc<Runtime> {
        let options = RuntimeOptions {
            orchestration_concurrency: 3,
            worker_concurrency: 4,
            orchestrator_lock_timeout: self.setup.lock_timeout,
            worker_lock_timeout: self.setup.lock_timeout,
            session_lock_timeout: self.setup.lock_timeout,
            session_idle_timeout: Duration::from_secs(3_600),
            max_attempts: self.setup.max_attempts,
            worker_tag_filter: filter.clone(),
            clock,
            warm_instances_max: self.setup.warm_instances_max,
            shadow_replay: self.setup.shadow_replay,
            ..RuntimeOptions::default()
        };
        let store = Arc::new(ObservedStore::new(provider, Arc::clone(&self.log)));
        let activities = activities(&self.log, filter);
        Runtime::start_with_options(store, activities, orchestrations(), options).await
    }

    /// Waits until all instances have ended and the queues are empty.
    async fn all_done(&self, nodes: &[Arc<SqliteProvider>], clients: &mut JoinSet<()>) -> RunEnd {
        let end = self.drive_all(nodes, clients).await;
        if end == RunEnd::Finished {
            self.wait_for_empty_queues().await;
        }
        if !self.damaged.is_empty() {
            tokio::time::sleep(self.limit(QUEUES_EMPTY_MAX)).await;
            self.read_damaged(&Client::new(nodes[0].clone())).await;
        }
        end
    }

    /// Reads the final state of the damaged instances.
    async fn read_damaged(&self, client: &Client) {
        for id in &self.damaged {
            let (state, reason) = match client.get_orchestration_status(id).await {
                Ok(OrchestrationStatus::Completed { .. }) => ("that completed", None),
                Ok(OrchestrationStatus::Failed { details, .. }) => {
                    ("that failed", Some(details.display_message()))
                }
                Ok(OrchestrationStatus::Running { .. }) => (STANDS_STILL, None),
                Ok(OrchestrationStatus::NotFound) => (NOT_THERE, None),
                Err(error) => ("that are said to be damaged", Some(error.to_string())),
            };
            let damaged = DamagedInstance { instance: id.clone(), state, reason };
            self.damaged_at_end.lock().unwrap_or_else(PoisonError::into_inner).push(damaged);
        }
    }

    /// What a client read of the damaged instances at the end.
    pub fn damaged_at_end(&self) -> Vec<DamagedInstance> {
        self.damaged_at_end.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for the queues to become empty; the inspector reports rows that are left.
    async fn wait_for_empty_queues(&self) {
        let mut waited = Duration::ZERO;
        while waited < self.limit(QUEUES_EMPTY_MAX) {
            let pause = Duration::from_millis(20).max(waited);
            tokio::time::sleep(pause).await;
            waited += pause;
            if self.read_undamaged(tables::pending_rows) == Ok(0) {
                return;
            }
        }
    }

    /// Checkpoints again and again: most unsynced writes are those of a checkpoint.
    async fn checkpoints(&self, nodes: &[Arc<SqliteProvider>]) {
        loop {
            let every_ms = self.setup.checkpoint_every_ms;
            if every_ms == 0 {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(Duration::from_millis(every_ms)).await;
            for node in nodes {
                // A reader in the way or a failing disk is no problem: the log stays as it is.
                drop(node.checkpoint().await);
            }
        }
    }

    async fn drive_all(&self, nodes: &[Arc<SqliteProvider>], clients: &mut JoinSet<()>) -> RunEnd {
        // Clients of damaged instances need not end; they are dropped with the run.
        let mut clients_of_damaged = JoinSet::new();
        for (index, instance) in self.log.snapshot().instances.into_keys().enumerate() {
            let client = Client::new(nodes[index % nodes.len()].clone());
            let log = Arc::clone(&self.log);
            let set = if self.damaged.contains(&instance) { &mut clients_of_damaged } else { &mut *clients };
            set.spawn(async move { drive(&client, &log, &instance).await });
        }
        let all = async {
            while let Some(client) = clients.join_next().await {
                client.unwrap();
            }
        };
        if tokio::time::timeout(self.limit(INSTANCES_END_MAX), all).await.is_err() {
            let running = self.log.snapshot().instances.into_iter();
            let running = running.filter(|(_, observed)| observed.outcome.is_none());
            return RunEnd::Stuck(running.map(|(id, observed)| format!("{id}: {observed:?}")).collect());
        }
        RunEnd::Finished
    }

    /// Reads a copy of the disk, so that reading changes nothing on the machine.
    pub fn read_copy<T>(&self, read: impl FnOnce(&Connection) -> T) -> T {
        let copy = Arc::new(Disk::with_image(&self.disk.image(), 0));
        let vfs = Vfs::register(copy, 0);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        let conn = Connection::open_with_flags_and_vfs(&self.database, flags, vfs.name()).unwrap();
        let read = read(&conn);
        drop(conn);
        read
    }

    /// The same without the rows of damaged instances.
    pub fn read_undamaged<T>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        self.read_copy(|conn| {
            if !self.damaged.is_empty() {
                let ids = self.log.snapshot().instances.into_keys();
                tables::keep_only(conn, &ids.filter(|id| !self.damaged.contains(id)).collect())?;
            }
            read(conn)
        })
    }

    /// Opens connections to the database past the machine's providers, as another process would.
    pub fn connections(&self) -> impl Fn() -> Connection + use<> {
        let (database, vfs) = (self.database.clone(), self.vfs.name().to_owned());
        move || {
            let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
            Connection::open_with_flags_and_vfs(&database, flags, vfs.as_str()).unwrap()
        }
    }

    /// The time when the last run ended, or a little later.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// How many commits there were in all runs: each holds at least one turn, outcome, message or lock.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    /// How many disk calls failed while the runtimes were at work, in all runs.
    pub fn faults_at_work(&self) -> u64 {
        self.faults_at_work.load(Ordering::Relaxed)
    }

    /// The set-up, for the report of a failure.
    pub fn describe(&self) -> String {
        format!("{:?}", self.setup)
    }
}

/// The answer to a call of a client; an error if there is none in time.
async fn answer<T>(call: impl Future<Output = Result<T, ClientError>>) -> ClientAnswer {
    match tokio::time::timeout(ANSWER_MAX, call).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("no answer".to_owned()),
    }
}
