//! The provider: each verb is encoded, sent to the writer, and its answer awaited.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use everturn_core::{Event, OrchestrationStatus, SystemStats, WorkItem};
use everturn_provider::{
    Clock, DispatcherCapabilityFilter, ExecutionMetadata, FetchedTurn, InstanceWatch, LockKind, LockRenewal,
    OrchestrationItem, Provider, ProviderAdmin, ProviderError, ScheduledActivityIdentifier,
    SessionFetchConfig, Stamp, TagFilter, TurnCommit, WarmView,
};
use rusqlite::Connection;
use tokio::sync::{oneshot, watch};
use tokio::task::AbortHandle;

use crate::abandon_turn::AbandonTurn;
use crate::append::{AppendActivity, AppendEvents};
use crate::clock_reading::ClockReading;
use crate::command_queue::{Command, CommandQueue};
use crate::commit_turn::CommitTurn;
use crate::error::SqliteError;
use crate::operation::{PendingOperation, Verb, storage_error};
use crate::options::SqliteOptions;
use crate::orchestrator_queue::StoredMessage;
use crate::parked_fetches::FetchReply;
use crate::readers::Readers;
use crate::renew::{RenewLocks, RenewSessions};
use crate::settle_work::{EndWork, ReturnWork};
use crate::submit::Submit;
use crate::sweep::Sweep;
use crate::testing::Environment;
use crate::url::{self, Location};
use crate::worker_queue::StoredActivity;
use crate::writer::WriterShared;
use crate::{fetch_turns, fetch_work, kv, open, process_lock, read};

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
    /// Opens the database at `sqlite:{path}`, or one in memory at `sqlite::memory:`. A missing file is created.
    ///
    /// Fails if the url is not understood, the file cannot be opened, or it was written by a newer version.
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
            Location::File { path, .. } => {
                Some(Arc::new(Readers::new(path.clone(), options.readers_max, &environment)))
            }
        };
        let clock = Arc::clone(&options.clock);
        let payload_bytes_max = options.payload_bytes_max;
        let open::StartedWriter { ended, task } =
            open::start(location, options, environment, Arc::clone(&commands), Arc::clone(&shared)).await?;
        let next_fetch_id = AtomicU64::new(0);
        Ok(Self { commands, shared, clock, readers, payload_bytes_max, next_fetch_id, ended, task })
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

    pub(crate) fn now(&self) -> ClockReading {
        ClockReading::of(&*self.clock)
    }

    /// Sends an operation to the writer and waits until it is durable.
    pub(crate) async fn call<V: Verb>(&self, verb: V) -> Result<V::Answer, ProviderError> {
        let (reply, answer) = oneshot::channel();
        let command = Command::Run(Box::new(PendingOperation::new(verb, Some(reply))));
        self.commands.send(command).map_err(|_closed| closed(V::NAME))?;
        answer.await.unwrap_or_else(|_| Err(closed(V::NAME)))
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
    pub(crate) async fn wait_for<A: Send + 'static>(
        &self,
        poll_timeout: Duration,
        command: impl FnOnce(u64, bool, FetchReply<A>) -> Command,
    ) -> Result<Option<A>, ProviderError> {
        let id = self.next_fetch_id.fetch_add(1, Ordering::Relaxed);
        let (reply, mut answer) = oneshot::channel();
        let once = poll_timeout.is_zero();
        let mut moved = self.clock.moved();
        self.commands.send(command(id, once, reply)).map_err(|_closed| closed("fetch"))?;
        let mut cancellation = FetchCancellation { commands: &self.commands, id, is_due: !once };
        if once {
            return answer.await.unwrap_or_else(|_| Err(closed("fetch")));
        }
        let timeout = tokio::time::sleep(poll_timeout);
        tokio::pin!(timeout);
        loop {
            tokio::select! {
                biased;
                answer = &mut answer => {
                    cancellation.is_due = false;
                    return answer.unwrap_or_else(|_| Err(closed("fetch")));
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
impl Provider for SqliteProvider {
    fn name(&self) -> &str {
        "sqlite"
    }

    fn version(&self) -> &str {
        env!("CARGO_PKG_VERSION")
    }

    async fn fetch_orchestration_item(
        &self,
        lock_timeout: Duration,
        poll_timeout: Duration,
        filter: Option<&DispatcherCapabilityFilter>,
    ) -> Result<Option<(OrchestrationItem, String, u32)>, ProviderError> {
        let fetched = fetch_turns::fetch(self, lock_timeout, poll_timeout, filter, None).await?;
        Ok(fetched.map(|turn| (turn.item, turn.lock_token, turn.attempt_count)))
    }

    async fn ack_orchestration_item(
        &self,
        lock_token: &str,
        execution_id: u64,
        history_delta: Vec<Event>,
        worker_items: Vec<WorkItem>,
        orchestrator_items: Vec<WorkItem>,
        metadata: ExecutionMetadata,
        cancelled_activities: Vec<ScheduledActivityIdentifier>,
    ) -> Result<(), ProviderError> {
        let commit = TurnCommit {
            lock_token: lock_token.to_owned(),
            execution_id,
            history_delta,
            worker_items,
            orchestrator_items,
            metadata,
            cancelled_activities,
            base: None,
            stamp: Stamp(u64::try_from(self.clock.random_u128() >> 64).unwrap_or(0)),
            check_in: None,
        };
        self.commit_turn(&commit).await
    }

    async fn abandon_orchestration_item(
        &self,
        lock_token: &str,
        delay: Option<Duration>,
        ignore_attempt: bool,
    ) -> Result<(), ProviderError> {
        let lock_token = lock_token.to_owned();
        self.call(AbandonTurn { lock_token, delay, ignore_attempt, called: self.now() }).await
    }

    async fn read(&self, instance: &str) -> Result<Vec<Event>, ProviderError> {
        read::latest_history(self, instance).await
    }

    async fn read_with_execution(
        &self,
        instance: &str,
        execution_id: u64,
    ) -> Result<Vec<Event>, ProviderError> {
        read::history_of(self, instance, execution_id).await
    }

    async fn append_with_execution(
        &self,
        instance: &str,
        execution_id: u64,
        new_events: Vec<Event>,
    ) -> Result<(), ProviderError> {
        self.call(AppendEvents::encode(instance, execution_id, &new_events)?).await
    }

    async fn enqueue_for_worker(&self, item: WorkItem) -> Result<(), ProviderError> {
        self.call(AppendActivity(StoredActivity::encode(AppendActivity::NAME, &item)?)).await
    }

    async fn fetch_work_item(
        &self,
        lock_timeout: Duration,
        poll_timeout: Duration,
        session: Option<&SessionFetchConfig>,
        tag_filter: &TagFilter,
    ) -> Result<Option<(WorkItem, String, u32)>, ProviderError> {
        fetch_work::fetch(self, lock_timeout, poll_timeout, session, tag_filter).await
    }

    async fn ack_work_item(&self, token: &str, completion: Option<WorkItem>) -> Result<(), ProviderError> {
        self.call(EndWork::encode(token, completion.as_ref(), self.now())?).await
    }

    async fn renew_work_item_lock(&self, token: &str, extend_for: Duration) -> Result<(), ProviderError> {
        self.renew_one(LockKind::WorkItem, token, extend_for).await
    }

    async fn renew_session_lock(
        &self,
        owner_ids: &[&str],
        extend_for: Duration,
        idle_timeout: Duration,
    ) -> Result<usize, ProviderError> {
        if owner_ids.is_empty() {
            return Ok(0);
        }
        // An owner that is named twice counts once.
        let owner_ids: BTreeSet<String> = owner_ids.iter().map(|id| (*id).to_owned()).collect();
        self.call(RenewSessions { owner_ids, extend_for, idle_timeout, called: self.now() }).await
    }

    async fn cleanup_orphaned_sessions(&self, _idle_timeout: Duration) -> Result<usize, ProviderError> {
        self.call(Sweep).await
    }

    async fn abandon_work_item(
        &self,
        token: &str,
        delay: Option<Duration>,
        ignore_attempt: bool,
    ) -> Result<(), ProviderError> {
        let token = token.to_owned();
        self.call(ReturnWork { token, delay, ignore_attempt, called: self.now() }).await
    }

    async fn renew_orchestration_item_lock(
        &self,
        token: &str,
        extend_for: Duration,
    ) -> Result<(), ProviderError> {
        self.renew_one(LockKind::Orchestration, token, extend_for).await
    }

    async fn enqueue_for_orchestrator(
        &self,
        item: WorkItem,
        delay: Option<Duration>,
    ) -> Result<(), ProviderError> {
        let message = StoredMessage::encode(Submit::NAME, &item)?;
        self.call(Submit { message, delay }).await
    }

    fn as_management_capability(&self) -> Option<&dyn ProviderAdmin> {
        Some(self)
    }

    async fn get_custom_status(
        &self,
        instance: &str,
        last_seen_version: u64,
    ) -> Result<Option<(Option<String>, u64)>, ProviderError> {
        read::custom_status(self, instance, last_seen_version).await
    }

    async fn get_kv_value(&self, instance: &str, key: &str) -> Result<Option<String>, ProviderError> {
        let (instance, key) = (instance.to_owned(), key.to_owned());
        self.read_with("get_kv_value", move |conn| kv::value(conn, &instance, &key)).await
    }

    async fn get_kv_all_values(&self, instance: &str) -> Result<HashMap<String, String>, ProviderError> {
        let instance = instance.to_owned();
        self.read_with("get_kv_all_values", move |conn| kv::all_values(conn, &instance)).await
    }

    async fn get_instance_stats(&self, instance: &str) -> Result<Option<SystemStats>, ProviderError> {
        read::stats(self, instance).await
    }

    fn payload_bytes_max(&self) -> usize {
        self.payload_bytes_max
    }

    fn now_ms(&self) -> u64 {
        self.clock.wall_ms()
    }

    async fn fetch_turn(
        &self,
        lock_timeout: Duration,
        poll_timeout: Duration,
        filter: Option<&DispatcherCapabilityFilter>,
        warm: Arc<dyn WarmView>,
    ) -> Result<Option<FetchedTurn>, ProviderError> {
        fetch_turns::fetch(self, lock_timeout, poll_timeout, filter, Some(warm)).await
    }

    async fn commit_turn(&self, commit: &TurnCommit) -> Result<(), ProviderError> {
        self.call(CommitTurn::encode(commit, self.now())?).await
    }

    async fn renew_locks(&self, renewals: &[LockRenewal]) -> Vec<Result<(), ProviderError>> {
        if renewals.is_empty() {
            return Vec::new();
        }
        match self.call(RenewLocks { renewals: renewals.to_vec(), called: self.now() }).await {
            Ok(answers) => answers,
            Err(error) => renewals.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    async fn read_status(&self, instance: &str) -> Result<OrchestrationStatus, ProviderError> {
        read::status(self, instance).await
    }

    fn watch_instance(&self, instance: &str) -> InstanceWatch {
        let watch = InstanceWatch::woken(self.shared.watches.watch(instance));
        // An idle writer sleeps until a command comes; with a watch it looks for other processes' commits.
        if self.shared.idle.load(Ordering::SeqCst) {
            self.commands.send_even_if_closed(Command::Watched);
        }
        watch
    }

    async fn read_orchestration_name(
        &self,
        instance: &str,
    ) -> Result<Option<(String, String)>, ProviderError> {
        read::orchestration_name(self, instance).await
    }
}

impl SqliteProvider {
    pub(crate) async fn renew_one(
        &self,
        kind: LockKind,
        token: &str,
        extend_for: Duration,
    ) -> Result<(), ProviderError> {
        let renewals = vec![LockRenewal { kind, token: token.to_owned(), extend_for }];
        let answers = self.call(RenewLocks { renewals, called: self.now() }).await?;
        answers.into_iter().next().unwrap_or_else(|| Err(closed(RenewLocks::NAME)))
    }
}
