//! A provider under test, with the short forms that the cases are written in.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use everturn_core::WorkItem;
use everturn_provider::{
    DispatcherCapabilityFilter, ManualClock, OrchestrationItem, Provider, ProviderAdmin, ProviderError,
    SessionFetchConfig, TagFilter,
};

use crate::factory::{ProviderFactory, WorkerRowDamage};
use crate::items;
use crate::turn::Turn;

/// How long the locks of the cases last.
pub(crate) const LOCK: Duration = Duration::from_secs(30);
/// A little longer than that.
pub(crate) const PAST_LOCK: Duration = Duration::from_secs(31);

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// A provider under test. Dereferences to the provider itself.
pub struct Harness {
    factory: Box<dyn ProviderFactory>,
    provider: Arc<dyn Provider>,
    clock: Arc<ManualClock>,
}

impl Deref for Harness {
    type Target = dyn Provider;

    fn deref(&self) -> &Self::Target {
        &*self.provider
    }
}

/// What an orchestration fetch handed out.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) item: OrchestrationItem,
    pub(crate) token: String,
    pub(crate) attempts: u32,
}

/// What a worker fetch handed out.
#[derive(Debug)]
pub(crate) struct FetchedWork {
    pub(crate) item: WorkItem,
    pub(crate) token: String,
    pub(crate) attempts: u32,
}

impl FetchedWork {
    pub(crate) fn id(&self) -> u64 {
        items::activity_id(&self.item)
    }
}

impl Harness {
    pub(crate) async fn open(factory: Box<dyn ProviderFactory>) -> Self {
        let provider = factory.open().await;
        let clock = factory.clock();
        Self { factory, provider, clock }
    }

    /// The same store, opened again; `None` if it did not outlive its provider.
    pub(crate) async fn reopened(self) -> Option<Self> {
        let Self { factory, provider, clock } = self;
        let provider = factory.reopen(provider).await?;
        Some(Self { factory, provider, clock })
    }

    /// A handle that tasks can own.
    pub(crate) fn provider(&self) -> Arc<dyn Provider> {
        Arc::clone(&self.provider)
    }

    pub(crate) fn factory(&self) -> &dyn ProviderFactory {
        &*self.factory
    }

    pub(crate) fn admin(&self) -> &dyn ProviderAdmin {
        self.provider.as_management_capability().expect("the provider has a management side")
    }

    /// Lets time pass.
    pub(crate) fn pass(&self, time: Duration) {
        self.clock.advance(time);
    }

    pub(crate) async fn damage_event(&self, instance: &str, execution_id: u64, event_id: u64) {
        self.factory.damage_event(&self.provider, instance, execution_id, event_id).await;
    }

    /// Waits until whatever a dropped call left under way is decided.
    pub(crate) async fn settle(&self) {
        self.factory.settle(&self.provider).await;
    }

    /// How often each message that waits for this instance was fetched; `None` if that cannot be seen.
    pub(crate) async fn message_attempts(&self, instance: &str) -> Option<Vec<u32>> {
        self.factory.message_attempts(&self.provider, instance).await
    }

    pub(crate) async fn damage_orchestrator_rows(&self, instance: &str) -> bool {
        self.factory.damage_orchestrator_rows(&self.provider, instance).await
    }

    pub(crate) async fn damage_worker_rows(&self, instance: &str, damage: WorkerRowDamage) -> bool {
        self.factory.damage_worker_rows(&self.provider, instance, damage).await
    }

    /// Puts a message into the orchestrator queue.
    pub(crate) async fn send(&self, item: WorkItem) {
        self.enqueue_for_orchestrator(item, None).await.unwrap();
    }

    /// Puts a message into the orchestrator queue that becomes visible later.
    pub(crate) async fn send_later(&self, item: WorkItem, delay: Duration) {
        self.enqueue_for_orchestrator(item, Some(delay)).await.unwrap();
    }

    /// Puts an activity into the worker queue.
    pub(crate) async fn queue(&self, item: WorkItem) {
        self.enqueue_for_worker(item).await.unwrap();
    }

    /// One look into the orchestrator queue.
    pub(crate) async fn fetch(&self) -> Option<Fetched> {
        self.try_fetch(None).await.unwrap()
    }

    /// One look into the orchestrator queue that must find something.
    pub(crate) async fn fetched(&self) -> Fetched {
        self.fetch().await.expect("there is an instance to fetch")
    }

    pub(crate) async fn fetch_filtered(&self, filter: &DispatcherCapabilityFilter) -> Option<Fetched> {
        self.try_fetch(Some(filter)).await.unwrap()
    }

    async fn try_fetch(
        &self,
        filter: Option<&DispatcherCapabilityFilter>,
    ) -> Result<Option<Fetched>, ProviderError> {
        let fetched = self.fetch_orchestration_item(LOCK, Duration::ZERO, filter).await?;
        Ok(fetched.map(|(item, token, attempts)| Fetched { item, token, attempts }))
    }

    /// A fetch that waits, and must find something long before it has waited enough.
    pub(crate) async fn fetched_in_time(&self) -> Fetched {
        let fetch = self.fetch_orchestration_item(LOCK, secs(5), None);
        let (item, token, attempts) = fetch.await.unwrap().expect("there is an instance to fetch");
        Fetched { item, token, attempts }
    }

    /// One look into the worker queue for untagged activities without session.
    pub(crate) async fn fetch_work(&self) -> Option<FetchedWork> {
        self.fetch_work_by(None, &TagFilter::DefaultOnly).await
    }

    /// The same, and there must be one.
    pub(crate) async fn fetched_work(&self) -> FetchedWork {
        self.fetch_work().await.expect("there is an activity to fetch")
    }

    pub(crate) async fn fetch_work_tagged(&self, tags: &TagFilter) -> Option<FetchedWork> {
        self.fetch_work_by(None, tags).await
    }

    /// One look into the worker queue by an owner of sessions.
    pub(crate) async fn fetch_work_as(&self, owner: &str, lease: Duration) -> Option<FetchedWork> {
        let session = SessionFetchConfig { owner_id: owner.to_owned(), lock_timeout: lease };
        self.fetch_work_by(Some(&session), &TagFilter::DefaultOnly).await
    }

    async fn fetch_work_by(
        &self,
        session: Option<&SessionFetchConfig>,
        tags: &TagFilter,
    ) -> Option<FetchedWork> {
        let fetched = self.fetch_work_item(LOCK, Duration::ZERO, session, tags).await.unwrap();
        fetched.map(|(item, token, attempts)| FetchedWork { item, token, attempts })
    }

    /// A worker fetch that waits, and must find something long before it has waited enough.
    pub(crate) async fn fetched_work_in_time(&self) -> FetchedWork {
        let fetch = self.fetch_work_item(LOCK, secs(5), None, &TagFilter::DefaultOnly);
        let (item, token, attempts) = fetch.await.unwrap().expect("there is an activity to fetch");
        FetchedWork { item, token, attempts }
    }

    /// Makes a running instance: its first turn is committed.
    pub(crate) async fn create(&self, instance: &str) {
        self.begin(instance, Turn::beginning(instance, 1)).await;
    }

    /// Makes an instance whose first turn is the given one.
    pub(crate) async fn begin(&self, instance: &str, turn: Turn) {
        self.send(items::start(instance)).await;
        self.take_turn(instance, turn).await;
    }

    /// Makes a running child.
    pub(crate) async fn create_child(&self, instance: &str, parent: &str) {
        self.send(items::start_child(instance, parent)).await;
        self.take_turn(instance, Turn::beginning(instance, 1).parent(parent)).await;
    }

    /// Makes an instance that completed in its first turn, with two events.
    pub(crate) async fn create_completed(&self, instance: &str) {
        self.begin(instance, Turn::beginning(instance, 1).completing(2, "done")).await;
    }

    /// Makes a completed child, with two events.
    pub(crate) async fn create_completed_child(&self, instance: &str, parent: &str) {
        self.send(items::start_child(instance, parent)).await;
        let turn = Turn::beginning(instance, 1).parent(parent).completing(2, "done");
        self.take_turn(instance, turn).await;
    }

    /// Makes an instance with so many executions of two events each; the last one is running and has one event.
    pub(crate) async fn create_with_executions(&self, instance: &str, executions: u64) {
        self.send(items::start(instance)).await;
        for execution_id in 1..executions {
            let turn = Turn::beginning(instance, execution_id).continuing_as_new(2);
            self.take_turn(instance, turn).await;
        }
        self.take_turn(instance, Turn::beginning(instance, executions)).await;
    }

    /// Sends a signal to the instance and commits the turn it causes.
    pub(crate) async fn turn(&self, instance: &str, turn: Turn) {
        self.send(items::signal(instance, "go")).await;
        self.take_turn(instance, turn).await;
    }

    /// Commits a turn on the messages that wait; the instance must be the next one.
    pub(crate) async fn take_turn(&self, instance: &str, turn: Turn) {
        let fetched = self.fetched().await;
        assert_eq!(fetched.item.instance, instance, "the instance whose turn it is");
        turn.ack(&*self.provider, &fetched.token).await.unwrap();
    }

    /// Rows of the orchestrator queue that are not locked.
    pub(crate) async fn messages_waiting(&self) -> usize {
        self.admin().get_queue_depths().await.unwrap().orchestrator_queue
    }

    /// Rows of the worker queue that are not locked.
    pub(crate) async fn activities_waiting(&self) -> usize {
        self.admin().get_queue_depths().await.unwrap().worker_queue
    }

    /// The activities that can be fetched now, in order; they stay locked.
    pub(crate) async fn drain_work(&self) -> Vec<u64> {
        let mut ids = Vec::new();
        while let Some(work) = self.fetch_work().await {
            ids.push(work.id());
        }
        ids
    }

    /// Ids of the latest execution's events.
    pub(crate) async fn event_ids(&self, instance: &str) -> Vec<u64> {
        self.read(instance).await.unwrap().iter().map(|event| event.event_id).collect()
    }
}

/// The error of a refused call.
pub(crate) fn refusal<T: std::fmt::Debug>(answer: Result<T, ProviderError>) -> ProviderError {
    answer.expect_err("the call is refused")
}

/// The error of a call that trying again will not help.
pub(crate) fn permanent_refusal<T: std::fmt::Debug>(answer: Result<T, ProviderError>) -> ProviderError {
    let error = refusal(answer);
    assert!(!error.is_retryable(), "trying again does not help: {error}");
    error
}

/// The error of a call whose lock is gone; the caller can tell.
pub(crate) fn lock_lost<T: std::fmt::Debug>(answer: Result<T, ProviderError>) -> ProviderError {
    let error = permanent_refusal(answer);
    assert!(error.is_lock_lost(), "the error says that the lock is gone: {error:?}");
    error
}
