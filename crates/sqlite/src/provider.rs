//! The provider: each verb is encoded here, sent to the writer, and its answer awaited.

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

use crate::abandon_orchestration_item::AbandonTurn;
use crate::abandon_work_item::AbandonWorkItem;
use crate::ack_orchestration_item::CommitTurn;
use crate::ack_work_item::AckWorkItem;
use crate::append_with_execution::Append;
use crate::enqueue::{Activity, EnqueueForOrchestrator, EnqueueForWorker};
use crate::error::SqliteError;
use crate::inbox::Message;
use crate::locks::{RenewLocks, Renewal};
use crate::mailbox::Mailbox;
use crate::moment::Moment;
use crate::operation::{Call, Verb, storage_error};
use crate::options::SqliteOptions;
use crate::readers::Readers;
use crate::sessions::{CleanupSessions, RenewSessions};
use crate::shared::Shared;
use crate::url::{self, Location};
use crate::waiters::FetchReply;
use crate::writer::Letter;
use crate::{fetch_orchestration_item, fetch_work_item, kv, open, process_lock, read};

/// A provider that keeps everything in one SQLite file, or in memory.
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
/// Dropping it lets the writer finish what it was given; [`close`](Self::close) waits for that.
pub struct SqliteProvider {
    mailbox: Arc<Mailbox>,
    shared: Arc<Shared>,
    clock: Arc<dyn Clock>,
    /// None for a database in memory: only the writer's connection sees it.
    readers: Option<Arc<Readers>>,
    payload_bytes_max: usize,
    next_waiter: AtomicU64,
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
        Self::open(url::parse(url)?, options.unwrap_or_default()).await
    }

    /// Opens a database in memory that nobody else sees.
    pub async fn new_in_memory() -> Result<Self, SqliteError> {
        Self::new_in_memory_with_options(None).await
    }

    /// The same, with options.
    pub async fn new_in_memory_with_options(options: Option<SqliteOptions>) -> Result<Self, SqliteError> {
        Self::open(Location::Memory, options.unwrap_or_default()).await
    }

    async fn open(location: Location, options: SqliteOptions) -> Result<Self, SqliteError> {
        let location = location.absolute()?;
        let mailbox = Arc::new(Mailbox::default());
        let shared = Arc::new(Shared::default());
        let readers = match &location {
            Location::Memory => None,
            Location::File { path, .. } => Some(Arc::new(Readers::new(path.clone(), &options))),
        };
        let clock = Arc::clone(&options.clock);
        let payload_bytes_max = options.payload_bytes_max;
        let open::Started { ended, task } =
            open::start(location, options, Arc::clone(&mailbox), Arc::clone(&shared)).await?;
        let next_waiter = AtomicU64::new(0);
        Ok(Self { mailbox, shared, clock, readers, payload_bytes_max, next_waiter, ended, task })
    }

    /// Moves the write-ahead log into the database file. Does nothing for a database in memory.
    ///
    /// Fails if a reader, here or in another process, keeps part of the log.
    pub async fn checkpoint(&self) -> Result<(), SqliteError> {
        let (reply, answer) = oneshot::channel();
        let closed = || SqliteError::closed("checkpointing: the provider is closed");
        self.mailbox.send(Letter::Checkpoint(reply)).map_err(|_closed| closed())?;
        answer.await.unwrap_or_else(|_| Err(closed()))
    }

    /// Takes no more calls, lets the writer finish what it was given, and waits until the file is closed.
    pub async fn close(&self) {
        if let Some(readers) = &self.readers {
            readers.close();
        }
        self.begin_closing();
        let mut ended = self.ended.clone();
        // An error means that the writer is gone, which is what is waited for.
        drop(ended.wait_for(|ended| *ended).await);
    }

    /// Ends a writer that is a task where it stands, as the death of its process would: what it was given and has not
    /// begun never happens. Waits until the file is closed.
    #[doc(hidden)]
    pub async fn kill(&self) {
        if let Some(task) = &self.task {
            task.abort();
        }
        self.close().await;
    }

    fn begin_closing(&self) {
        self.mailbox.close(|| {
            if let Some(readers) = &self.readers {
                process_lock::begin_closing(readers.path());
            }
        });
    }

    /// How many transactions were committed that wrote something: the currency this provider is paid in.
    pub fn commit_count(&self) -> u64 {
        self.shared.commits.load(Ordering::Relaxed)
    }

    pub(crate) fn now(&self) -> Moment {
        Moment::of(&*self.clock)
    }

    /// Has the writer do something and waits until it is durable.
    pub(crate) async fn call<V: Verb>(&self, verb: V) -> Result<V::Answer, ProviderError> {
        let (reply, answer) = oneshot::channel();
        let letter = Letter::Call(Box::new(Call::new(verb, Some(reply))));
        self.mailbox.send(letter).map_err(|_closed| closed(V::NAME))?;
        answer.await.unwrap_or_else(|_| Err(closed(V::NAME)))
    }

    /// Reads beside the writer, or through it if the database is in memory.
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

    /// The same for what may go over everything that is stored.
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
        let letter = Letter::Read(Box::new(move |conn: &Connection| {
            // Whoever asked may have left.
            drop(reply.send(read(conn)));
        }));
        self.mailbox.send(letter).map_err(|_closed| closed(operation))?;
        match answer.await {
            Ok(outcome) => outcome.map_err(|error| storage_error(operation, error)),
            Err(_) => Err(closed(operation)),
        }
    }

    /// Waits in the writer for an assignment, up to `poll_timeout`; zero is one look.
    pub(crate) async fn wait_for<A: Send + 'static>(
        &self,
        poll_timeout: Duration,
        letter: impl FnOnce(u64, bool, FetchReply<A>) -> Letter,
    ) -> Result<Option<A>, ProviderError> {
        let id = self.next_waiter.fetch_add(1, Ordering::Relaxed);
        let (reply, mut answer) = oneshot::channel();
        let once = poll_timeout.is_zero();
        let mut moved = self.clock.moved();
        self.mailbox.send(letter(id, once, reply)).map_err(|_closed| closed("fetch"))?;
        let mut withdrawal = Withdrawal { mailbox: &self.mailbox, id, is_due: !once };
        if once {
            return answer.await.unwrap_or_else(|_| Err(closed("fetch")));
        }
        let timeout = tokio::time::sleep(poll_timeout);
        tokio::pin!(timeout);
        loop {
            tokio::select! {
                biased;
                answer = &mut answer => {
                    withdrawal.is_due = false;
                    return answer.unwrap_or_else(|_| Err(closed("fetch")));
                }
                () = &mut moved => {
                    moved = self.clock.moved();
                    // A closed mailbox has answered or will not.
                    drop(self.mailbox.send(Letter::Poke));
                }
                () = &mut timeout => {
                    // An answer that crosses the time-out is still taken; a later one is handed back.
                    answer.close();
                    return answer.try_recv().unwrap_or(Ok(None));
                }
            }
        }
    }
}

/// Takes a waiter out of the writer when its fetch ends without an answer.
struct Withdrawal<'a> {
    mailbox: &'a Mailbox,
    id: u64,
    is_due: bool,
}

impl Drop for Withdrawal<'_> {
    fn drop(&mut self) {
        if self.is_due {
            self.mailbox.send_last(Letter::Withdraw(self.id));
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
        let fetched = fetch_orchestration_item::fetch(self, lock_timeout, poll_timeout, filter, None).await?;
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
        self.call(Append::encode(instance, execution_id, &new_events)?).await
    }

    async fn enqueue_for_worker(&self, item: WorkItem) -> Result<(), ProviderError> {
        self.call(EnqueueForWorker(Activity::encode("enqueue_for_worker", &item)?)).await
    }

    async fn fetch_work_item(
        &self,
        lock_timeout: Duration,
        poll_timeout: Duration,
        session: Option<&SessionFetchConfig>,
        tag_filter: &TagFilter,
    ) -> Result<Option<(WorkItem, String, u32)>, ProviderError> {
        fetch_work_item::fetch(self, lock_timeout, poll_timeout, session, tag_filter).await
    }

    async fn ack_work_item(&self, token: &str, completion: Option<WorkItem>) -> Result<(), ProviderError> {
        self.call(AckWorkItem::encode(token, completion.as_ref(), self.now())?).await
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
        // An owner who is named twice has no more sessions than that.
        let owner_ids: BTreeSet<String> = owner_ids.iter().map(|id| (*id).to_owned()).collect();
        self.call(RenewSessions { owner_ids, extend_for, idle_timeout, called: self.now() }).await
    }

    async fn cleanup_orphaned_sessions(&self, _idle_timeout: Duration) -> Result<usize, ProviderError> {
        self.call(CleanupSessions).await
    }

    async fn abandon_work_item(
        &self,
        token: &str,
        delay: Option<Duration>,
        ignore_attempt: bool,
    ) -> Result<(), ProviderError> {
        let token = token.to_owned();
        self.call(AbandonWorkItem { token, delay, ignore_attempt, called: self.now() }).await
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
        let message = Message::encode(EnqueueForOrchestrator::NAME, &item)?;
        self.call(EnqueueForOrchestrator { message, delay }).await
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
        fetch_orchestration_item::fetch(self, lock_timeout, poll_timeout, filter, Some(warm)).await
    }

    async fn commit_turn(&self, commit: &TurnCommit) -> Result<(), ProviderError> {
        self.call(CommitTurn::encode(commit, self.now())?).await
    }

    async fn renew_locks(&self, renewals: &[LockRenewal]) -> Vec<Result<(), ProviderError>> {
        if renewals.is_empty() {
            return Vec::new();
        }
        let asked = renewals.iter().map(|renewal| Renewal {
            kind: renewal.kind,
            token: renewal.token.clone(),
            extend_for: renewal.extend_for,
        });
        match self.call(RenewLocks { renewals: asked.collect(), called: self.now() }).await {
            Ok(answers) => answers,
            Err(error) => renewals.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    async fn read_status(&self, instance: &str) -> Result<OrchestrationStatus, ProviderError> {
        read::status(self, instance).await
    }

    fn watch_instance(&self, instance: &str) -> InstanceWatch {
        let watch = InstanceWatch::woken(self.shared.watches.watch(instance));
        // The writer may be asleep for good; with a watch it looks for other processes' commits.
        if self.shared.dozes.load(Ordering::SeqCst) {
            self.mailbox.send_last(Letter::Watched);
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
        let renewals = vec![Renewal { kind, token: token.to_owned(), extend_for }];
        let answers = self.call(RenewLocks { renewals, called: self.now() }).await?;
        answers.into_iter().next().unwrap_or_else(|| Err(closed(RenewLocks::NAME)))
    }
}
