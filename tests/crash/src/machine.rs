//! A machine with a disk: it is switched on, works, and goes dark.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use everturn::providers::{Clock, SystemClock, TagFilter};
use everturn::runtime::{Runtime, ShadowReplay};
use everturn::{Client, ClientError, OrchestrationStatus, RuntimeOptions};
use everturn_proof::is_stress_run;
use everturn_sqlite::testing::{self, Environment};
use everturn_sqlite::{SqliteOptions, SqliteProvider, Synchronous};
use rusqlite::{Connection, OpenFlags};
use tokio::task::JoinSet;

use crate::chance::Chance;
use crate::disk::Disk;
use crate::ledger::{Fact, Ledger};
use crate::load::{activities, see_through, tag_filter};
use crate::plan::orchestrations;
use crate::sim_time::SimTime;
use crate::tables;
use crate::vfs::Vfs;
use crate::watched_store::WatchedStore;

/// When the first life of a machine begins, in milliseconds since the epoch.
const BEGINNING_MS: u64 = 1_800_000_000_000;
/// How long a load may take, in the machine's own time, once nothing goes wrong any more.
const PATIENCE: Duration = Duration::from_secs(900);
/// How long the queues are given to run empty when all instances have ended.
const AFTERMATH_MAX: Duration = Duration::from_secs(60);
/// The same as both on a real clock: what is stuck is told before the watchdog barks, and a few locks of earlier lives, of
/// five seconds each, may have to end one after the other.
const REAL_PATIENCE: Duration = Duration::from_secs(30);
/// How long a call of a client, or the closing of everything, may take whatever the disk does.
const ANSWER_MAX: Duration = Duration::from_secs(120);
/// How long everybody hopes for the end of a fault that never ends: longer than some locks last.
const HOPE: Duration = Duration::from_secs(2);

/// A machine with a disk, and the outside world's ledger of what it said.
pub struct Machine {
    /// Its disk.
    pub disk: Arc<Disk>,
    /// What the outside world knows.
    pub ledger: Arc<Ledger>,
    /// How it is set up, the same in all its lives.
    pub setup: Setup,
    /// At which call after the runtime's start the power fails, in its next life.
    pub cut_at_work: Option<u64>,
    /// The fault of the disk does not end in its next life: some time after it struck, everything is shut down.
    pub fails_for_good: bool,
    /// Instances that nobody waits for: something is done to them that they need not survive.
    pub doomed: BTreeSet<String>,
    vfs: Vfs,
    database: PathBuf,
    chance: Chance,
    now_ms: u64,
    commits: AtomicU64,
    faults_at_work: AtomicU64,
    last_words: Mutex<Vec<LastWords>>,
}

/// How the machine works.
#[derive(Debug, Clone)]
pub struct Setup {
    /// How many processes share the file, each with its own provider and runtime.
    pub nodes: usize,
    /// When a commit counts as done.
    pub synchronous: Synchronous,
    /// How many operations share a commit.
    pub batch_operations_max: usize,
    /// How many instances stay in memory.
    pub warm_instances_max: usize,
    /// Whether turns that began in memory are compared with a replay.
    pub shadow_replay: ShadowReplay,
    /// How long locks last.
    pub lock_timeout: Duration,
    /// How often something is tried before it counts as poison.
    pub max_attempts: u32,
    /// Whether the writers are threads, and time is real: as in production, and never twice the same.
    pub threads: bool,
    /// How often the log is moved into the file: once in so many milliseconds; never if 0.
    pub checkpoint_every_ms: u64,
}

impl Setup {
    /// A set-up by chance.
    pub fn draw(chance: &mut Chance) -> Self {
        let drawn = Self {
            nodes: [1, 1, 1, 2, 3][chance.index(5)],
            synchronous: Synchronous::Full,
            batch_operations_max: if chance.percent(30) { 1 } else { 512 },
            warm_instances_max: [0, 2, 1_000][chance.index(3)],
            shadow_replay: if chance.percent(20) { ShadowReplay::Always } else { ShadowReplay::Off },
            lock_timeout: Duration::from_millis([200, 1_000, 5_000][chance.index(3)]),
            max_attempts: u32::MAX,
            threads: false,
            checkpoint_every_ms: [0, 5, 20][chance.index(3)],
        };
        if is_stress_run() { drawn.cruelly() } else { drawn }
    }

    /// The same under settings that nobody would choose.
    fn cruelly(self) -> Self {
        let lock_timeout = Duration::from_millis(200);
        Self { batch_operations_max: 1, warm_instances_max: 0, lock_timeout, ..self }
    }
}

/// What a client is told of an instance that something was done to.
#[derive(Debug, Clone)]
pub struct LastWords {
    /// Which it is.
    pub instance: String,
    /// What became of it.
    pub word: &'static str,
    /// Why, if that is said.
    pub reason: Option<String>,
}

/// The word for an instance that has not ended, and of which nobody says that anything is wrong.
pub const STANDS_STILL: &str = "that stand still";
/// The word for an instance that nobody knows.
pub const NOT_THERE: &str = "that are not there";

/// How a life of the machine ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The power failed; `at_work` says that all runtimes had started, and none was being shut down.
    Dark {
        /// Whether the runtimes were at work.
        at_work: bool,
    },
    /// The database could not be opened.
    NotOpened(String),
    /// Every instance ended, and everything was closed.
    Finished,
    /// Instances did not end.
    Stuck(Vec<String>),
    /// The disk failed for good, and everything was closed. Before that each node was asked to write something, and to
    /// read something.
    GivenUp {
        /// What came of writing.
        writes: Vec<Answer>,
        /// What came of reading.
        reads: Vec<Answer>,
    },
    /// It was to be closed, and was not.
    NotClosed,
}

/// What a client is told: nothing is wrong, or what is.
pub type Answer = Result<(), String>;

impl Machine {
    /// A machine with this disk, on which `ledger`'s instances will run. `database` names the file: only the lock beside
    /// it is on a real disk.
    pub fn new(disk: Arc<Disk>, database: PathBuf, ledger: Ledger, setup: Setup, chance: Chance) -> Self {
        let vfs = Vfs::register(Arc::clone(&disk), chance.branch(1).next_u64());
        Self {
            disk,
            ledger: Arc::new(ledger),
            setup,
            cut_at_work: None,
            fails_for_good: false,
            doomed: BTreeSet::new(),
            vfs,
            database,
            chance,
            now_ms: BEGINNING_MS,
            commits: AtomicU64::new(0),
            faults_at_work: AtomicU64::new(0),
            last_words: Mutex::default(),
        }
    }

    /// Switches the machine on and lets it work until everything is done, or nothing works any more. `meanwhile` runs
    /// beside the load.
    pub fn live<F: Future<Output = ()>>(&mut self, meanwhile: impl FnOnce(Arc<Disk>) -> F) -> End {
        let runtime = if self.setup.threads {
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build()
        } else {
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()
        };
        let runtime = runtime.unwrap();
        let began_ms = self.now_ms;
        let chance = self.chance.branch(began_ms);
        let (end, now_ms) = runtime.block_on(async {
            let clock: Arc<dyn Clock> = if self.setup.threads {
                Arc::new(SystemClock::new())
            } else {
                Arc::new(SimTime::new(began_ms, chance))
            };
            let meanwhile = meanwhile(Arc::clone(&self.disk));
            let life = self.work(clock.clone());
            let both = async {
                tokio::pin!(meanwhile);
                tokio::pin!(life);
                tokio::select! {
                    biased;
                    end = &mut life => return end,
                    () = &mut meanwhile => {}
                }
                life.await
            };
            (both.await, clock.wall_ms())
        });
        // Whatever still runs dies here, between any two of its steps.
        drop(runtime);
        self.cut_at_work = None;
        self.fails_for_good = false;
        self.now_ms = now_ms + 1 + self.chance.below(3_000);
        assert_eq!(self.vfs.open_files(), 0, "the machine is off, and somebody has a file open");
        end
    }

    async fn work(&self, clock: Arc<dyn Clock>) -> End {
        let mut nodes = Vec::new();
        let end = self.work_with(&mut nodes, clock).await;
        if self.setup.threads {
            // A thread cannot be dropped: what it has in hand comes to nothing, and it ends.
            for node in &nodes {
                node.close().await;
            }
        }
        end
    }

    async fn work_with(&self, nodes: &mut Vec<Arc<SqliteProvider>>, clock: Arc<dyn Clock>) -> End {
        for _ in 0..self.setup.nodes {
            match self.open(clock.clone()).await {
                Ok(provider) => nodes.push(provider),
                Err(_) if self.disk.is_dark() => return End::Dark { at_work: false },
                Err(error) => return End::NotOpened(error.to_string()),
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
            () = self.disk.darkness() => End::Dark { at_work: true },
            () = self.checkpoints(nodes) => unreachable!("checkpoints go on for ever"),
            end = self.all_done(nodes, &mut clients) => end,
            end = self.hope_in_vain(nodes) => end,
        };
        self.faults_at_work.fetch_add(self.disk.faults_hit() - faults_before, Ordering::Relaxed);
        clients.shutdown().await;
        let commits: u64 = nodes.iter().map(|node| node.commit_count()).sum();
        self.commits.fetch_add(commits, Ordering::Relaxed);
        if matches!(end, End::Dark { .. }) {
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
            () = self.disk.darkness() => End::Dark { at_work: false },
            closed = tokio::time::timeout(self.patience(ANSWER_MAX), closing) => {
                if closed.is_ok() { end } else { End::NotClosed }
            }
        }
    }

    /// How long something may take that may take so long when time costs nothing.
    fn patience(&self, simulated: Duration) -> Duration {
        if self.setup.threads { REAL_PATIENCE } else { simulated }
    }

    /// A disk that fails for good: hears what clients are told then.
    async fn hope_in_vain(&self, nodes: &[Arc<SqliteProvider>]) -> End {
        if !self.fails_for_good {
            std::future::pending::<()>().await;
        }
        self.disk.fault_struck().await;
        tokio::time::sleep(HOPE).await;
        let known = self.ledger.known().instances;
        let (instance, told) = known.first_key_value().expect("a machine that fails has instances");
        let (mut writes, mut reads) = (Vec::new(), Vec::new());
        for node in nodes {
            let client = Client::new(node.clone());
            self.ledger.learn(Fact::Asked(instance.clone(), "start".to_owned()));
            let start = client.start_orchestration(instance, told.plan.orchestration(), told.plan.input());
            writes.push(answer(start).await);
            reads.push(answer(client.get_orchestration_status(instance)).await);
        }
        End::GivenUp { writes, reads }
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
        let store = Arc::new(WatchedStore::new(provider, Arc::clone(&self.ledger)));
        let activities = activities(&self.ledger, filter);
        Runtime::start_with_options(store, activities, orchestrations(), options).await
    }

    /// All instances ended, and what was asked for and is not needed any more came to its end too.
    async fn all_done(&self, nodes: &[Arc<SqliteProvider>], clients: &mut JoinSet<()>) -> End {
        let end = self.all_seen_through(nodes, clients).await;
        if end == End::Finished {
            self.aftermath().await;
        }
        if !self.doomed.is_empty() {
            tokio::time::sleep(self.patience(AFTERMATH_MAX)).await;
            self.hear_the_doomed(&Client::new(nodes[0].clone())).await;
        }
        end
    }

    /// What a client is told of those that something was done to, when all that could come of it has come.
    async fn hear_the_doomed(&self, client: &Client) {
        for id in &self.doomed {
            let (word, reason) = match client.get_orchestration_status(id).await {
                Ok(OrchestrationStatus::Completed { .. }) => ("that completed", None),
                Ok(OrchestrationStatus::Failed { details, .. }) => {
                    ("that failed", Some(details.display_message()))
                }
                Ok(OrchestrationStatus::Running { .. }) => (STANDS_STILL, None),
                Ok(OrchestrationStatus::NotFound) => (NOT_THERE, None),
                Err(error) => ("that are said to be damaged", Some(error.to_string())),
            };
            let words = LastWords { instance: id.clone(), word, reason };
            self.last_words.lock().unwrap_or_else(PoisonError::into_inner).push(words);
        }
    }

    /// What clients were told of the instances that are doomed.
    pub fn last_words(&self) -> Vec<LastWords> {
        self.last_words.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for the queues to run empty; what does not is found by whoever looks.
    async fn aftermath(&self) {
        let mut waited = Duration::ZERO;
        while waited < self.patience(AFTERMATH_MAX) {
            let pause = Duration::from_millis(20).max(waited);
            tokio::time::sleep(pause).await;
            waited += pause;
            if self.look_at_the_sound(tables::left_over) == Ok(0) {
                return;
            }
        }
    }

    /// Moves the log into the file again and again: that is where most of what is written is not synced yet.
    async fn checkpoints(&self, nodes: &[Arc<SqliteProvider>]) {
        loop {
            let every_ms = self.setup.checkpoint_every_ms;
            if every_ms == 0 {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(Duration::from_millis(every_ms)).await;
            for node in nodes {
                // A reader in the way, or a disk that fails: the log stays as it is.
                drop(node.checkpoint().await);
            }
        }
    }

    async fn all_seen_through(&self, nodes: &[Arc<SqliteProvider>], clients: &mut JoinSet<()>) -> End {
        let mut hopeless = JoinSet::new();
        for (index, instance) in self.ledger.known().instances.into_keys().enumerate() {
            let client = Client::new(nodes[index % nodes.len()].clone());
            let ledger = Arc::clone(&self.ledger);
            let line = if self.doomed.contains(&instance) { &mut hopeless } else { &mut *clients };
            line.spawn(async move { see_through(&client, &ledger, &instance).await });
        }
        let all = async {
            while let Some(client) = clients.join_next().await {
                client.unwrap();
            }
        };
        if tokio::time::timeout(self.patience(PATIENCE), all).await.is_err() {
            let known = self.ledger.known().instances;
            return End::Stuck(
                known
                    .into_iter()
                    .filter(|(_, told)| told.outcome.is_none())
                    .map(|(id, told)| format!("{id}: {told:?}"))
                    .collect(),
            );
        }
        End::Finished
    }

    /// What is on the disk, as a database of its own: looking at it changes nothing of the machine's.
    pub fn look<T>(&self, look: impl FnOnce(&Connection) -> T) -> T {
        let copy = Arc::new(Disk::with_image(&self.disk.image(), 0));
        let vfs = Vfs::register(copy, 0);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        let conn = Connection::open_with_flags_and_vfs(&self.database, flags, vfs.name()).unwrap();
        let seen = look(&conn);
        drop(conn);
        seen
    }

    /// The same without the instances that are doomed.
    pub fn look_at_the_sound<T>(
        &self,
        look: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        self.look(|conn| {
            if !self.doomed.is_empty() {
                let sound = self.ledger.known().instances.into_keys().filter(|id| !self.doomed.contains(id));
                tables::keep_only(conn, &sound.collect())?;
            }
            look(conn)
        })
    }

    /// A way to the database as another process has it: past the machine's providers.
    pub fn back_door(&self) -> impl Fn() -> Connection + use<> {
        let (database, vfs) = (self.database.clone(), self.vfs.name().to_owned());
        move || {
            let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
            Connection::open_with_flags_and_vfs(&database, flags, vfs.as_str()).unwrap()
        }
    }

    /// The time when it was last switched off, or a little later.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// How many commits there were in all its lives: each holds at least one turn, outcome, message or lock.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    /// How many calls failed while its runtimes were at work, in all its lives.
    pub fn faults_at_work(&self) -> u64 {
        self.faults_at_work.load(Ordering::Relaxed)
    }

    /// Everything that could matter in a report of a failure.
    pub fn describe(&self) -> String {
        format!("{:?}", self.setup)
    }
}

/// What a client is told in the end; that it is told something.
async fn answer<T>(call: impl Future<Output = Result<T, ClientError>>) -> Answer {
    match tokio::time::timeout(ANSWER_MAX, call).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("no answer".to_owned()),
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let mut lock = self.database.clone().into_os_string();
        lock.push("-lock");
        // Whether it is there or not, afterwards it is not.
        drop(std::fs::remove_file(lock));
    }
}
