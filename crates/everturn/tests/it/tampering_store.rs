//! A store that forwards every call after asking the test, which can make the call fail.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use everturn::providers::{
    DispatcherCapabilityFilter, ExecutionMetadata, FetchedTurn, InstanceWatch, LockRenewal,
    OrchestrationItem, Provider, ProviderAdmin, ProviderError, ScheduledActivityIdentifier,
    SessionFetchConfig, TagFilter, TurnCommit, WarmView, WorkItem,
};
use everturn::{Event, OrchestrationStatus, SystemStats};
use tokio::sync::Semaphore;

type Tamper = Box<dyn FnMut(&'static str) -> Option<ProviderError> + Send>;

pub(crate) struct TamperingStore {
    inner: Arc<dyn Provider>,
    tamper: Mutex<Tamper>,
    /// Every operation that was called, in order.
    calls: Mutex<Vec<&'static str>>,
    /// Every operation that failed, in the test or in the store, in order.
    failures: Mutex<Vec<&'static str>>,
    /// Whether fetches ignore the capability filter.
    ignores_filter: bool,
    /// An item that the worker queue returns first.
    stray: Mutex<Option<WorkItem>>,
    /// Every turn that was committed, in order.
    commits: Mutex<Vec<TurnCommit>>,
    /// Permits that commits need before they are answered.
    answers: Mutex<Option<Arc<Semaphore>>>,
    /// The owners whose leases were renewed, call by call.
    renewed_owners: Mutex<Vec<Vec<String>>>,
}

/// The lock token of an item that does not belong in the worker queue.
const STRAY_TOKEN: &str = "stray";

impl TamperingStore {
    pub(crate) fn new(
        inner: Arc<dyn Provider>,
        tamper: impl FnMut(&'static str) -> Option<ProviderError> + Send + 'static,
    ) -> Arc<Self> {
        Arc::new(Self::around(inner, tamper))
    }

    fn around(
        inner: Arc<dyn Provider>,
        tamper: impl FnMut(&'static str) -> Option<ProviderError> + Send + 'static,
    ) -> Self {
        Self {
            inner,
            tamper: Mutex::new(Box::new(tamper)),
            calls: Mutex::default(),
            failures: Mutex::default(),
            ignores_filter: false,
            stray: Mutex::default(),
            commits: Mutex::default(),
            answers: Mutex::default(),
            renewed_owners: Mutex::default(),
        }
    }

    /// A store that ignores capability filters.
    pub(crate) fn ignoring_filters(inner: Arc<dyn Provider>) -> Arc<Self> {
        Arc::new(Self { ignores_filter: true, ..Self::around(inner, |_| None) })
    }

    /// A store whose worker queue holds an item that the engine never puts there.
    pub(crate) fn with_stray(inner: Arc<dyn Provider>, item: WorkItem) -> Arc<Self> {
        Arc::new(Self { stray: Mutex::new(Some(item)), ..Self::around(inner, |_| None) })
    }

    /// From now on a commit takes effect at once, but is answered only when a permit is added.
    pub(crate) fn withhold_answers(&self) -> Arc<Semaphore> {
        let answers = Arc::new(Semaphore::new(0));
        *self.answers.lock().unwrap() = Some(Arc::clone(&answers));
        answers
    }

    /// Every turn that was committed, in order.
    pub(crate) fn commits(&self) -> Vec<TurnCommit> {
        self.commits.lock().unwrap().clone()
    }

    /// The owners whose leases were renewed, call by call.
    pub(crate) fn renewed_owners(&self) -> Vec<Vec<String>> {
        self.renewed_owners.lock().unwrap().clone()
    }

    pub(crate) fn count(&self, operation: &str) -> usize {
        self.calls.lock().unwrap().iter().filter(|call| **call == operation).count()
    }

    /// Every operation that failed, in order.
    pub(crate) fn failures(&self) -> Vec<&'static str> {
        self.failures.lock().unwrap().clone()
    }

    fn ask(&self, operation: &'static str) -> Result<(), ProviderError> {
        self.calls.lock().unwrap().push(operation);
        let error = (*self.tamper.lock().unwrap_or_else(PoisonError::into_inner))(operation);
        self.noted(operation, error.map_or(Ok(()), Err))
    }

    fn noted<T>(
        &self,
        operation: &'static str,
        answer: Result<T, ProviderError>,
    ) -> Result<T, ProviderError> {
        if answer.is_err() {
            self.failures.lock().unwrap().push(operation);
        }
        answer
    }
}

/// Asks the test, then forwards the call.
macro_rules! forward {
    ($self:ident . $name:ident ( $($argument:expr),* )) => {{
        $self.ask(stringify!($name))?;
        let answer = $self.inner.$name($($argument),*).await;
        $self.noted(stringify!($name), answer)
    }};
}

#[async_trait]
impl Provider for TamperingStore {
    async fn fetch_orchestration_item(
        &self,
        lock_timeout: Duration,
        poll_timeout: Duration,
        filter: Option<&DispatcherCapabilityFilter>,
    ) -> Result<Option<(OrchestrationItem, String, u32)>, ProviderError> {
        let filter = filter.filter(|_| !self.ignores_filter);
        forward!(self.fetch_orchestration_item(lock_timeout, poll_timeout, filter))
    }

    async fn ack_orchestration_item(
        &self,
        token: &str,
        execution_id: u64,
        delta: Vec<Event>,
        worker_items: Vec<WorkItem>,
        items: Vec<WorkItem>,
        metadata: ExecutionMetadata,
        cancelled: Vec<ScheduledActivityIdentifier>,
    ) -> Result<(), ProviderError> {
        forward!(self.ack_orchestration_item(
            token,
            execution_id,
            delta,
            worker_items,
            items,
            metadata,
            cancelled
        ))
    }

    async fn abandon_orchestration_item(
        &self,
        token: &str,
        delay: Option<Duration>,
        ignore_attempt: bool,
    ) -> Result<(), ProviderError> {
        forward!(self.abandon_orchestration_item(token, delay, ignore_attempt))
    }

    async fn read(&self, instance: &str) -> Result<Vec<Event>, ProviderError> {
        forward!(self.read(instance))
    }

    async fn read_with_execution(
        &self,
        instance: &str,
        execution_id: u64,
    ) -> Result<Vec<Event>, ProviderError> {
        forward!(self.read_with_execution(instance, execution_id))
    }

    async fn append_with_execution(
        &self,
        instance: &str,
        execution_id: u64,
        events: Vec<Event>,
    ) -> Result<(), ProviderError> {
        forward!(self.append_with_execution(instance, execution_id, events))
    }

    async fn enqueue_for_worker(&self, item: WorkItem) -> Result<(), ProviderError> {
        forward!(self.enqueue_for_worker(item))
    }

    async fn fetch_work_item(
        &self,
        lock_timeout: Duration,
        poll_timeout: Duration,
        session: Option<&SessionFetchConfig>,
        tags: &TagFilter,
    ) -> Result<Option<(WorkItem, String, u32)>, ProviderError> {
        if let Some(item) = self.stray.lock().unwrap().take() {
            return Ok(Some((item, STRAY_TOKEN.to_owned(), 1)));
        }
        forward!(self.fetch_work_item(lock_timeout, poll_timeout, session, tags))
    }

    async fn ack_work_item(&self, token: &str, completion: Option<WorkItem>) -> Result<(), ProviderError> {
        if token == STRAY_TOKEN {
            assert_eq!(completion, None, "a stray item has no completion");
            return self.ask("ack_stray");
        }
        forward!(self.ack_work_item(token, completion))
    }

    async fn renew_work_item_lock(&self, token: &str, extend_for: Duration) -> Result<(), ProviderError> {
        forward!(self.renew_work_item_lock(token, extend_for))
    }

    async fn renew_session_lock(
        &self,
        owners: &[&str],
        extend_for: Duration,
        idle: Duration,
    ) -> Result<usize, ProviderError> {
        self.renewed_owners.lock().unwrap().push(owners.iter().map(|owner| (*owner).to_owned()).collect());
        forward!(self.renew_session_lock(owners, extend_for, idle))
    }

    async fn cleanup_orphaned_sessions(&self, idle: Duration) -> Result<usize, ProviderError> {
        forward!(self.cleanup_orphaned_sessions(idle))
    }

    async fn abandon_work_item(
        &self,
        token: &str,
        delay: Option<Duration>,
        ignore_attempt: bool,
    ) -> Result<(), ProviderError> {
        forward!(self.abandon_work_item(token, delay, ignore_attempt))
    }

    async fn renew_orchestration_item_lock(
        &self,
        token: &str,
        extend_for: Duration,
    ) -> Result<(), ProviderError> {
        forward!(self.renew_orchestration_item_lock(token, extend_for))
    }

    async fn enqueue_for_orchestrator(
        &self,
        item: WorkItem,
        delay: Option<Duration>,
    ) -> Result<(), ProviderError> {
        forward!(self.enqueue_for_orchestrator(item, delay))
    }

    fn as_management_capability(&self) -> Option<&dyn ProviderAdmin> {
        self.inner.as_management_capability()
    }

    async fn get_custom_status(
        &self,
        instance: &str,
        last_seen: u64,
    ) -> Result<Option<(Option<String>, u64)>, ProviderError> {
        forward!(self.get_custom_status(instance, last_seen))
    }

    async fn get_kv_value(&self, instance: &str, key: &str) -> Result<Option<String>, ProviderError> {
        forward!(self.get_kv_value(instance, key))
    }

    async fn get_kv_all_values(&self, instance: &str) -> Result<HashMap<String, String>, ProviderError> {
        forward!(self.get_kv_all_values(instance))
    }

    async fn get_instance_stats(&self, instance: &str) -> Result<Option<SystemStats>, ProviderError> {
        forward!(self.get_instance_stats(instance))
    }

    fn now_ms(&self) -> u64 {
        self.inner.now_ms()
    }

    async fn fetch_turn(
        &self,
        lock_timeout: Duration,
        poll_timeout: Duration,
        filter: Option<&DispatcherCapabilityFilter>,
        warm: Arc<dyn WarmView>,
    ) -> Result<Option<FetchedTurn>, ProviderError> {
        let filter = filter.filter(|_| !self.ignores_filter);
        forward!(self.fetch_turn(lock_timeout, poll_timeout, filter, warm))
    }

    /// The test is asked for `commit_turn`, for `check_in` (on an error the check-in does not run), and for
    /// `answer_commit` (on an error the turn is committed but the answer is that error).
    async fn commit_turn(&self, commit: &TurnCommit) -> Result<(), ProviderError> {
        self.ask("commit_turn")?;
        let without_check_in = TurnCommit { check_in: None, ..commit.clone() };
        let checks_in = self.ask("check_in").is_ok();
        let answer = self.inner.commit_turn(if checks_in { commit } else { &without_check_in }).await;
        self.noted("commit_turn", answer)?;
        self.commits.lock().unwrap().push(without_check_in);
        let answers = self.answers.lock().unwrap().clone();
        if let Some(answers) = answers {
            answers.acquire().await.unwrap().forget();
        }
        self.ask("answer_commit")
    }

    async fn renew_locks(&self, renewals: &[LockRenewal]) -> Vec<Result<(), ProviderError>> {
        match self.ask("renew_locks") {
            Ok(()) => self.inner.renew_locks(renewals).await,
            Err(error) => renewals.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    async fn read_status(&self, instance: &str) -> Result<OrchestrationStatus, ProviderError> {
        forward!(self.read_status(instance))
    }

    fn watch_instance(&self, instance: &str) -> InstanceWatch {
        self.inner.watch_instance(instance)
    }

    async fn read_orchestration_name(
        &self,
        instance: &str,
    ) -> Result<Option<(String, String)>, ProviderError> {
        forward!(self.read_orchestration_name(instance))
    }
}
