//! The provider: each verb is encoded, sent to a lane, and its answer awaited.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use everturn_core::{OrchestrationStatus, SystemStats};
use everturn_provider::store::{
    CustomStatus, ExecutionRead, Feature, FetchedTurn, FetchedWork, OrchestrationName, RawWrites, Receipt,
    Renewal, Renewed, Settlement, StepAnswer, StepCommit, Store, StoreIdentity, StoreLimits, StoredExecution,
    Submission, Sweep, Swept, TurnAbandon, TurnCommit, TurnFetch, WorkFetch,
};
use everturn_provider::{Clock, InstanceWatch, ProviderAdmin, ProviderError, SystemClock};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::{Mutex, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use crate::abandon_turn::AbandonTurn;
use crate::commit_lane::{CommitLane, timed_out};
use crate::commit_queue::CommitQueue;
use crate::commit_turn::CommitTurn;
use crate::error::PostgresError;
use crate::fetch_lane::{FetchCommand, FetchLane};
use crate::link::Link;
use crate::needs::Needs;
use crate::notices::{self, Notices};
use crate::operation::{BatchOrder, Run, Verb};
use crate::options::PostgresOptions;
use crate::parked_fetches::FetchReply;
use crate::readers::Readers;
use crate::renew::Renew;
use crate::retry::RareWarning;
use crate::server::Server;
use crate::session::Purpose;
use crate::settle_work::SettleWork;
use crate::shared::{NOW, News, Shared, TimeSource};
use crate::submit::Submit;
use crate::unit_of_work::UnitOfWork;
use crate::{commit_step, due, fetch_turns, fetch_work, kv, load, read, schema, sweep, url, watches, writes};

/// A provider that stores everything in a PostgreSQL database, which several processes may share.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use everturn_postgres::{PostgresOptions, PostgresProvider};
/// use everturn_provider::Provider;
///
/// let provider = PostgresProvider::connect("postgres://localhost/orders", PostgresOptions::default()).await?;
/// assert_eq!(provider.name(), "postgres");
/// # Ok(())
/// # }
/// ```
///
/// Its tasks run on the async runtime that it was made on.
pub struct PostgresProvider {
    commits: Arc<CommitQueue>,
    fetches: UnboundedSender<FetchCommand>,
    shared: Arc<Shared>,
    readers: Readers,
    payload_bytes_max: usize,
    call_timeout: Duration,
    identity: StoreIdentity,
    tasks: Mutex<JoinSet<()>>,
}

impl std::fmt::Debug for PostgresProvider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresProvider").field("identity", &self.identity).finish_non_exhaustive()
    }
}

impl PostgresProvider {
    /// Connects to the database at `postgres://user:password@host:port/database`, and creates or migrates the tables.
    ///
    /// A server that is not on this machine must show a certificate that the operating system trusts, unless the url says
    /// otherwise: `sslmode=` `disable`, `prefer`, `require`, `verify-ca` or `verify-full` (the default), and
    /// `sslrootcert=` names a file with the certificates to trust. Several hosts may be named, `host1,host2`: the one that
    /// takes writes is used. Each of them is tried for two seconds, or as long as `connect_timeout=` says.
    ///
    /// Fails if the url or an option is not understood, the server cannot be reached, the schema was written by a newer
    /// version, or a connection pooler is in between that does not keep sessions apart.
    pub async fn connect(url: &str, options: PostgresOptions) -> Result<Self, PostgresError> {
        Self::open(url, options, Arc::new(SystemClock::new()), TimeSource::Server).await
    }

    /// The same, with the clock of this process.
    pub(crate) async fn open(
        url: &str,
        options: PostgresOptions,
        clock: Arc<dyn Clock>,
        source: TimeSource,
    ) -> Result<Self, PostgresError> {
        options.check()?;
        let server = Arc::new(Server::new(url::parse(url)?, &options));
        let session = schema::prepare(&server, &options.schema).await?;
        let shared = Arc::new(Shared::new(clock, source == TimeSource::ClockOfTest));
        // The second reading does not contain the preparation of its statement.
        for _ in 0..2 {
            let read = session.within(shared.refresh_time(&session)).await;
            read.map_err(|error| PostgresError::exchange("asking the server for its time", error))?;
        }
        drop(session);
        let commits = Arc::<CommitQueue>::default();
        let mut tasks = JoinSet::new();
        let commit_statements = [load::STATEMENTS, writes::STATEMENTS].concat();
        let lane = CommitLane {
            queue: Arc::clone(&commits),
            link: Link::new(Arc::clone(&server), Purpose::HotPath, commit_statements),
            shared: Arc::clone(&shared),
            operations_max: options.batch_operations_max,
            bytes_max: options.batch_payload_bytes_max,
            warning: RareWarning::default(),
        };
        tasks.spawn(lane.run());
        let (fetches, commands) = unbounded_channel();
        let fetch_statements =
            [&[NOW], fetch_turns::STATEMENTS, fetch_work::STATEMENTS, due::STATEMENTS].concat();
        let lane = FetchLane {
            commands,
            commits: Arc::clone(&commits),
            link: Link::new(Arc::clone(&server), Purpose::HotPath, fetch_statements),
            shared: Arc::clone(&shared),
            turns: Vec::new(),
            work: Vec::new(),
            walk: fetch_turns::TurnWalk::default(),
            warning: RareWarning::default(),
        };
        tasks.spawn(lane.run());
        let (said, heard) = unbounded_channel();
        let channel = notices::channel(&options.schema);
        let listen = format!("LISTEN {channel}");
        let link = Link::new(Arc::clone(&server), Purpose::Other, notices::STATEMENTS.to_vec())
            .listening(listen, said);
        tasks.spawn(Notices { link, shared: Arc::clone(&shared), heard, channel }.run());
        tasks.spawn(watches::poll(Arc::clone(&shared)));
        let identity = StoreIdentity::named(server.identity());
        let readers = Readers::new(server, options.readers_max, options.call_timeout);
        Ok(Self {
            commits,
            fetches,
            shared,
            readers,
            payload_bytes_max: options.payload_bytes_max,
            call_timeout: options.call_timeout,
            identity,
            tasks: Mutex::new(tasks),
        })
    }

    /// Refuses further calls, executes those that were made, and closes the connections. A server that does not answer is
    /// waited for no longer than the time-out of calls: what was not executed then fails as retryable.
    pub async fn close(&self) {
        self.commits.close();
        let mut tasks = self.tasks.lock().await;
        let ended = async { while tasks.join_next().await.is_some() {} };
        if timeout(self.call_timeout, ended).await.is_err() {
            tasks.shutdown().await;
        }
        self.readers.close();
    }

    /// How many transactions were committed for callers: what the provider costs, counted in syncs of the server's disk.
    pub fn commit_count(&self) -> u64 {
        self.shared.commits.load(std::sync::atomic::Ordering::Relaxed)
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.shared.clock
    }

    /// The time that statements go by, if a test says it.
    pub(crate) fn test_now_ms(&self) -> Option<i64> {
        self.shared.test_now_ms()
    }

    /// The time of the store, as far as this process knows it.
    pub(crate) fn now_ms(&self) -> i64 {
        self.shared.now_ms()
    }

    /// The queue of the commit lane.
    pub(crate) fn commits(&self) -> &Arc<CommitQueue> {
        &self.commits
    }

    /// Names this provider in locks and totals.
    pub(crate) fn owner(&self) -> i64 {
        self.shared.owner
    }

    /// Connections for everything but commits and fetches.
    pub(crate) fn readers(&self) -> &Readers {
        &self.readers
    }

    /// Clients can see a change of these instances.
    pub(crate) fn touched(&self, instances: &[String]) {
        self.shared.watches.bump(instances);
        self.shared.tell(News { clients: true, ..News::default() });
    }

    /// Sends an operation to the commit lane and waits until it is durable. Fails as retryable after the time-out of calls: then
    /// it may have taken effect.
    pub(crate) async fn call<V: Verb>(&self, verb: V) -> Result<V::Answer, ProviderError> {
        let (reply, answer) = oneshot::channel();
        let verb = Arc::new(verb);
        let deadline = Instant::now() + self.call_timeout;
        self.commits.send(Arc::clone(&verb), deadline, reply).map_err(|_closed| closed(V::NAME))?;
        let answer = timeout_at(deadline, answer).await;
        drop(verb);
        match answer {
            Ok(answer) => answer.unwrap_or_else(|_ended| Err(closed(V::NAME))),
            Err(_elapsed) => Err(timed_out(V::NAME)),
        }
    }

    /// Waits until the outcome of every operation that was sent before is decided.
    pub(crate) async fn settled(&self) -> Result<(), ProviderError> {
        self.call(Nothing).await
    }

    /// Parks a fetch in its lane for up to `poll_timeout`; zero is one look.
    pub(crate) async fn park<A: Send>(
        &self,
        operation: &str,
        poll_timeout: Duration,
        command: impl FnOnce(FetchReply<A>) -> FetchCommand,
    ) -> Result<Vec<A>, ProviderError> {
        let (reply, mut answer) = oneshot::channel();
        self.fetches.send(command(reply)).map_err(|_closed| closed(operation))?;
        if poll_timeout.is_zero() {
            return match timeout(self.call_timeout, answer).await {
                Ok(answer) => answer.unwrap_or_else(|_ended| Err(closed(operation))),
                Err(_elapsed) => Err(timed_out(operation)),
            };
        }
        tokio::select! {
            biased;
            answer = &mut answer => answer.unwrap_or_else(|_ended| Err(closed(operation))),
            () = tokio::time::sleep(poll_timeout) => {
                // An answer that crosses the time-out is still taken; a later one returns its work.
                answer.close();
                answer.try_recv().unwrap_or(Ok(Vec::new()))
            }
        }
    }
}

impl Drop for PostgresProvider {
    fn drop(&mut self) {
        // What was sent is still executed, as long as the async runtime runs.
        self.commits.close();
        if let Ok(mut tasks) = self.tasks.try_lock() {
            tasks.detach_all();
        }
    }
}

/// An operation that changes nothing.
struct Nothing;

impl Verb for Nothing {
    type Answer = ();
    const NAME: &'static str = "settle";
    const ORDER: BatchOrder = BatchOrder::NewWork;

    fn needs(&self, _needs: &mut Needs) {}

    fn run(&self, _unit: &mut UnitOfWork, _run: Run) -> Result<(), ProviderError> {
        Ok(())
    }
}

fn closed(operation: &str) -> ProviderError {
    ProviderError::permanent(operation, "the provider is closed")
}

#[async_trait]
impl Store for PostgresProvider {
    fn name(&self) -> &str {
        "postgres"
    }

    fn version(&self) -> &str {
        env!("CARGO_PKG_VERSION")
    }

    fn identity(&self) -> Option<StoreIdentity> {
        Some(self.identity.clone())
    }

    fn supports(&self, feature: Feature) -> bool {
        // Named one by one: a feature that is new to this library is not supported until it is listed here.
        matches!(
            feature,
            Feature::WarmInstances
                | Feature::StartReceipts
                | Feature::MessageNotes
                | Feature::DeadLetters
                | Feature::SessionPlaces
                | Feature::HandlerLookup
                | Feature::LateRenewals
                | Feature::FusedSteps
        )
    }

    fn limits(&self) -> StoreLimits {
        StoreLimits::new(self.payload_bytes_max)
    }

    fn now_ms(&self) -> u64 {
        self.shared.now_ms_unsigned()
    }

    /// Starts come with other starts, instances in memory with others in memory; any other instance comes alone.
    async fn fetch_turns(&self, fetch: &TurnFetch) -> Result<Vec<FetchedTurn>, ProviderError> {
        fetch_turns::fetch(self, fetch).await
    }

    async fn commit_turn(&self, commit: &TurnCommit) -> Result<(), ProviderError> {
        self.call(CommitTurn::encode(CommitTurn::NAME, commit, self.clock(), self.shared.now_ms())?).await
    }

    async fn commit_step(&self, step: &StepCommit) -> Result<StepAnswer, ProviderError> {
        commit_step::commit(self, step).await
    }

    async fn abandon_turn(&self, abandon: &TurnAbandon) -> Result<(), ProviderError> {
        self.call(AbandonTurn::new(abandon, self.shared.now_ms())?).await
    }

    async fn fetch_work(&self, fetch: &WorkFetch) -> Result<Vec<FetchedWork>, ProviderError> {
        fetch_work::fetch(self, fetch).await
    }

    async fn settle_work(&self, settlement: &Settlement) -> Result<(), ProviderError> {
        self.call(SettleWork::encode(settlement, self.shared.now_ms())?).await
    }

    async fn renew(&self, renewal: &Renewal) -> Result<Renewed, ProviderError> {
        if renewal.locks.is_empty() && renewal.sessions.as_ref().is_none_or(|of| of.owner_ids.is_empty()) {
            return Ok(Renewed::default());
        }
        self.call(Renew::new(renewal, self.shared.now_ms())?).await
    }

    async fn submit(&self, submission: &Submission) -> Result<Vec<Receipt>, ProviderError> {
        self.call(Submit::encode(submission)?).await
    }

    async fn sweep(&self, sweep: &Sweep) -> Result<Swept, ProviderError> {
        sweep::sweep(self, sweep).await
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
        kv::value(self, instance, key).await
    }

    async fn read_kv_values(&self, instance: &str) -> Result<HashMap<String, String>, ProviderError> {
        kv::all_values(self, instance).await
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
        InstanceWatch::woken(self.shared.watches.watch(instance))
    }

    fn admin(&self) -> Option<&dyn ProviderAdmin> {
        Some(self)
    }

    fn raw_writes(&self) -> Option<&dyn RawWrites> {
        Some(self)
    }
}
