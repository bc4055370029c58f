//! The provider: each verb is encoded, sent to the writer, and its answer awaited.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use everturn_core::{OrchestrationStatus, SystemStats};
use everturn_provider::store::{
    CustomStatus, ExecutionRead, Feature, FetchedTurn, FetchedWork, OrchestrationName, RawWrites, Receipt,
    Renewal, Renewed, Settlement, StepAnswer, StepCommit, Store, StoreIdentity, StoreLimits, StoredExecution,
    Submission, Sweep, Swept, TurnAbandon, TurnCommit, TurnFetch, WorkFetch,
};
use everturn_provider::{Clock, InstanceWatch, ProviderAdmin, ProviderError};
use rusqlite::Connection;
use tokio::sync::{oneshot, watch};
use tokio::task::AbortHandle;

use crate::abandon_turn::AbandonTurn;
use crate::clock_reading::ClockReading;
use crate::command_queue::{Command, CommandQueue, QueueClosed};
use crate::commit_turn::CommitTurn;
use crate::error::SqliteError;
use crate::operation::{PendingOperation, Verb, storage_error};
use crate::options::SqliteOptions;
use crate::parked_fetches::{FIRST_IN_LINE, FetchReply, ParkedFetch};
use crate::readers::Readers;
use crate::renew::Renew;
use crate::settle_work::SettleWork;
use crate::submit::Submit;
use crate::sweep::SweepExpired;
use crate::testing::Environment;
use crate::url::{self, Location};
use crate::writer::WriterShared;
use crate::{commit_step, fetch_turns, fetch_work, identity, kv, open, process_lock, read};

/// A provider that stores everything in one SQLite file, or in memory.
///
/// ```
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use everturn_provider::Provider;
/// use everturn_sqlite::SqliteProvider;
///
/// let provider = SqliteProvider::new_in_memory().await?;
/// assert_eq!(provider.name(), "sqlite");
/// # Ok(())
/// # }
/// ```
///
/// After it is dropped, the writer still executes the calls that it has; [`close`](Self::close) waits for that.
pub struct SqliteProvider {
    commands: Arc<CommandQueue>,
    shared: Arc<WriterShared>,
    clock: Arc<dyn Clock>,
    /// None for a database in memory: only the writer's connection sees it.
    readers: Option<Arc<Readers>>,
    payload_bytes_max: usize,
    identity: StoreIdentity,
    next_fetch_id: AtomicU64,
    ended: watch::Receiver<bool>,
    /// The writer, if it is a task.
    task: Option<AbortHandle>,
}

impl std::fmt::Debug for SqliteProvider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteProvider").field("readers", &self.readers).finish_non_exhaustive()
    }
}

impl SqliteProvider {
    /// Opens the database at `sqlite:{path}`, or one in memory at `sqlite::memory:`.
    ///
    /// A missing file is created, unless the url ends in `?mode=rw`. With `?mode=ro` the file is only read: it may be
    /// read-only, on a full disk or in use by others, and every call that writes is refused.
    ///
    /// Fails if the url is not understood, the file cannot be opened, it belongs to another application or was written by a
    /// newer version, or it must be migrated while another process has it open.
    pub async fn new(url: &str, options: Option<SqliteOptions>) -> Result<Self, SqliteError> {
        Self::open(url::parse(url)?, options.unwrap_or_default(), Environment::default()).await
    }

    /// Opens a database in memory that only this provider sees.
    pub async fn new_in_memory() -> Result<Self, SqliteError> {
        Self::new_in_memory_with_options(None).await
    }

    /// The same, with options.
    pub async fn new_in_memory_with_options(options: Option<SqliteOptions>) -> Result<Self, SqliteError> {
        Self::open(Location::Memory, options.unwrap_or_default(), Environment::default()).await
    }

    pub(crate) async fn open(
        location: Location,
        options: SqliteOptions,
        environment: Environment,
    ) -> Result<Self, SqliteError> {
        let location = location.absolute()?;
        let commands = Arc::new(CommandQueue::default());
        let shared = Arc::new(WriterShared::default());
        let readers = match &location {
            Location::Memory => None,
            Location::File { path, mode } => {
                let (shared, commands) = (Arc::clone(&shared), Arc::clone(&commands));
                let path = path.clone();
                Some(Arc::new(Readers::new(path, *mode, &options, &environment, shared, commands)))
            }
        };
        let clock = Arc::clone(&options.clock);
        let payload_bytes_max = options.payload_bytes_max;
        let file = location.clone();
        let open::StartedWriter { ended, task } =
            open::start(location, options, environment, Arc::clone(&commands), Arc::clone(&shared)).await?;
        let identity = identity::of(&file, shared.guard.identity());
        let next_fetch_id = AtomicU64::new(FIRST_IN_LINE + 1);
        Ok(Self { commands, shared, clock, readers, payload_bytes_max, identity, next_fetch_id, ended, task })
    }

    /// Moves the write-ahead log into the database file. Does nothing for a database in memory.
    ///
    /// Fails if a reader, here or in another process, keeps part of the log.
    pub async fn checkpoint(&self) -> Result<(), SqliteError> {
        let (reply, answer) = oneshot::channel();
        let closed = || SqliteError::closed("checkpointing: the provider is closed");
        self.commands.send(Command::Checkpoint(reply)).map_err(|_closed| closed())?;
        answer.await.unwrap_or_else(|_| Err(closed()))
    }

    /// Refuses further calls, executes those that the writer has, and waits until the file is closed.
    pub async fn close(&self) {
        if let Some(readers) = &self.readers {
            readers.close();
        }
        self.begin_closing();
        let mut ended = self.ended.clone();
        // An error means that the writer has ended, too.
        drop(ended.wait_for(|ended| *ended).await);
    }

    /// Ends a writer that is a task at once.
    pub(crate) fn abort_writer_task(&self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }

    fn begin_closing(&self) {
        self.commands.close(|| {
            if let Some(readers) = &self.readers {
                process_lock::begin_closing(readers.path());
            }
        });
    }

    /// How many transactions were committed that wrote something: what the provider costs, counted in syncs of the disk.
    pub fn commit_count(&self) -> u64 {
        self.shared.commits.load(Ordering::Relaxed)
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    pub(crate) fn now(&self) -> ClockReading {
        ClockReading::of(&*self.clock)
    }

    /// Sends an operation to the writer and waits until it is durable.
    pub(crate) async fn call<V: Verb>(&self, verb: V) -> Result<V::Answer, ProviderError> {
        let (reply, answer) = oneshot::channel();
        let verb = Arc::new(verb);
        let command = Command::Run(Box::new(PendingOperation::called(&verb, reply)));
        self.commands.send(command).map_err(|_closed| closed(V::NAME))?;
        let answer = answer.await.unwrap_or_else(|_| Err(closed(V::NAME)));
        drop(verb);
        answer
    }

    /// The id of the next fetch to park.
    pub(crate) fn next_fetch_id(&self) -> u64 {
        self.next_fetch_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Connections that only read; none for a database in memory.
    pub(crate) fn readers(&self) -> Option<&Arc<Readers>> {
        self.readers.as_ref()
    }

    /// Sends a command that must be executed even while the writer is closing.
    pub(crate) fn send_even_if_closed(&self, command: Command) {
        self.commands.send_even_if_closed(command);
    }

    pub(crate) fn send(&self, command: Command) -> Result<(), QueueClosed> {
        self.commands.send(command)
    }

    /// Runs a short read: beside the writer, or between its batches if the database is in memory.
    pub(crate) async fn read_with<T: Send + 'static>(
        &self,
        operation: &'static str,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, ProviderError> {
        match &self.readers {
            Some(readers) => readers.run(operation, read).await,
            None => self.read_through_writer(operation, read).await,
        }
    }

    /// The same for a read that may scan whole tables.
    pub(crate) async fn read_at_length<T: Send + 'static>(
        &self,
        operation: &'static str,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, ProviderError> {
        match &self.readers {
            Some(readers) => readers.run_at_length(operation, read).await,
            None => self.read_through_writer(operation, read).await,
        }
    }

    /// Computes something that may take long.
    pub(crate) async fn compute_at_length<T: Send + 'static>(
        &self,
        operation: &'static str,
        compute: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ProviderError> {
        match &self.readers {
            Some(readers) => readers.compute_at_length(operation, compute).await,
            None => Ok(compute()),
        }
    }

    /// A database in memory has one connection.
    async fn read_through_writer<T: Send + 'static>(
        &self,
        operation: &'static str,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, ProviderError> {
        let (reply, answer) = oneshot::channel();
        let command = Command::Read(Box::new(move |conn: &Connection| {
            // A caller that left gets no answer.
            drop(reply.send(read(conn)));
        }));
        self.commands.send(command).map_err(|_closed| closed(operation))?;
        match answer.await {
            Ok(outcome) => outcome.map_err(|error| storage_error(operation, error)),
            Err(_) => Err(closed(operation)),
        }
    }

    /// Parks a fetch in the writer for up to `poll_timeout`; zero is one look.
    pub(crate) async fn park<F: ParkedFetch>(
        &self,
        poll_timeout: Duration,
        command: impl FnOnce(u64, bool, FetchReply<F::Answer>) -> Command,
    ) -> Result<Option<F::Answer>, ProviderError> {
        let id = self.next_fetch_id();
        let (reply, mut answer) = oneshot::channel();
        let once = poll_timeout.is_zero();
        let mut moved = self.clock.moved();
        self.commands.send(command(id, once, reply)).map_err(|_closed| closed(F::NAME))?;
        let mut cancellation = FetchCancellation { commands: &self.commands, id, is_due: !once };
        if once {
            return answer.await.unwrap_or_else(|_| Err(closed(F::NAME)));
        }
        let timeout = tokio::time::sleep(poll_timeout);
        tokio::pin!(timeout);
        loop {
            tokio::select! {
                biased;
                answer = &mut answer => {
                    cancellation.is_due = false;
                    return answer.unwrap_or_else(|_| Err(closed(F::NAME)));
                }
                () = &mut moved => {
                    moved = self.clock.moved();
                    // If the queue is closed, the writer answers all fetches anyway.
                    drop(self.commands.send(Command::Wake));
                }
                () = &mut timeout => {
                    // An answer that crosses the time-out is still taken; a later one returns its work.
                    answer.close();
                    return answer.try_recv().unwrap_or(Ok(None));
                }
            }
        }
    }
}

/// Cancels a parked fetch whose caller times out or is dropped.
struct FetchCancellation<'a> {
    commands: &'a CommandQueue,
    id: u64,
    is_due: bool,
}

impl Drop for FetchCancellation<'_> {
    fn drop(&mut self) {
        if self.is_due {
            self.commands.send_even_if_closed(Command::CancelFetch(self.id));
        }
    }
}

impl Drop for SqliteProvider {
    fn drop(&mut self) {
        self.begin_closing();
    }
}

pub(crate) fn closed(operation: &str) -> ProviderError {
    ProviderError::permanent(operation, "the provider is closed")
}

#[async_trait]
impl Store for SqliteProvider {
    fn name(&self) -> &str {
        "sqlite"
    }

    fn version(&self) -> &str {
        env!("CARGO_PKG_VERSION")
    }

    fn identity(&self) -> Option<StoreIdentity> {
        Some(self.identity.clone())
    }

    fn supports(&self, feature: Feature) -> bool {
        let features = [
            Feature::WarmInstances,
            Feature::StartReceipts,
            Feature::MessageNotes,
            Feature::DeadLetters,
            Feature::SessionPlaces,
            Feature::HandlerLookup,
            Feature::LateRenewals,
            Feature::FusedSteps,
        ];
        features.contains(&feature)
    }

    fn limits(&self) -> StoreLimits {
        StoreLimits::new(self.payload_bytes_max)
    }

    fn now_ms(&self) -> u64 {
        self.clock.wall_ms()
    }

    /// Starts come with other starts, instances in memory with others in memory; any other instance comes alone.
    async fn fetch_turns(&self, fetch: &TurnFetch) -> Result<Vec<FetchedTurn>, ProviderError> {
        fetch_turns::fetch(self, fetch).await
    }

    async fn commit_turn(&self, commit: &TurnCommit) -> Result<(), ProviderError> {
        self.call(CommitTurn::encode(CommitTurn::NAME, commit, &*self.clock)?).await
    }

    async fn commit_step(&self, step: &StepCommit) -> Result<StepAnswer, ProviderError> {
        commit_step::commit(self, step).await
    }

    async fn abandon_turn(&self, abandon: &TurnAbandon) -> Result<(), ProviderError> {
        self.call(AbandonTurn { abandon: abandon.clone(), called: self.now() }).await
    }

    /// One activity at a time, whatever the maximum: the others are one call away.
    async fn fetch_work(&self, fetch: &WorkFetch) -> Result<Vec<FetchedWork>, ProviderError> {
        fetch_work::fetch(self, fetch).await
    }

    async fn settle_work(&self, settlement: &Settlement) -> Result<(), ProviderError> {
        self.call(SettleWork::encode(settlement, self.now())?).await
    }

    async fn renew(&self, renewal: &Renewal) -> Result<Renewed, ProviderError> {
        if renewal.locks.is_empty() && renewal.sessions.as_ref().is_none_or(|of| of.owner_ids.is_empty()) {
            return Ok(Renewed::default());
        }
        self.call(Renew { renewal: renewal.clone(), called: self.now() }).await
    }

    async fn submit(&self, submission: &Submission) -> Result<Vec<Receipt>, ProviderError> {
        self.call(Submit::encode(submission)?).await
    }

    async fn sweep(&self, sweep: &Sweep) -> Result<Swept, ProviderError> {
        self.call(SweepExpired { sweep: *sweep }).await
    }

    async fn read_status(&self, instance: &str) -> Result<OrchestrationStatus, ProviderError> {
        read::status(self, instance).await
    }

    async fn read_execution(&self, read: &ExecutionRead) -> Result<StoredExecution, ProviderError> {
        read::stamped_execution(self, read).await
    }

    async fn read_custom_status(
        &self,
        instance: &str,
        last_seen_version: u64,
    ) -> Result<Option<CustomStatus>, ProviderError> {
        read::custom_status(self, instance, last_seen_version).await
    }

    async fn read_kv_value(&self, instance: &str, key: &str) -> Result<Option<String>, ProviderError> {
        let (instance, key) = (instance.to_owned(), key.to_owned());
        self.read_with("read_kv_value", move |conn| kv::value(conn, &instance, &key)).await
    }

    async fn read_kv_values(&self, instance: &str) -> Result<HashMap<String, String>, ProviderError> {
        let instance = instance.to_owned();
        self.read_with("read_kv_values", move |conn| kv::all_values(conn, &instance)).await
    }

    async fn read_stats(&self, instance: &str) -> Result<Option<SystemStats>, ProviderError> {
        read::stats(self, instance).await
    }

    async fn read_orchestration_name(
        &self,
        instance: &str,
    ) -> Result<Option<OrchestrationName>, ProviderError> {
        read::orchestration_name(self, instance).await
    }

    fn watch(&self, instance: &str) -> InstanceWatch {
        let watch = InstanceWatch::woken(self.shared.watches.watch(instance));
        // An idle writer sleeps until a command comes; with a watch it looks for other processes' commits.
        if self.shared.idle.load(Ordering::SeqCst) {
            self.commands.send_even_if_closed(Command::Watched);
        }
        watch
    }

    fn admin(&self) -> Option<&dyn ProviderAdmin> {
        Some(self)
    }

    fn raw_writes(&self) -> Option<&dyn RawWrites> {
        Some(self)
    }
}
