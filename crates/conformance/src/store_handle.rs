//! The store under test, with the short forms of its verbs that the cases are written in.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use everturn_core::{Event, WorkItem};
use everturn_provider::store::{
    CustomStatus, ExecutionRead, FetchedTurn, FetchedWork, LockKind, LockRenewal, NewMessage, RawWrites,
    Renewal, SessionRenewal, Settlement, Store, Submission, Sweep, TurnAbandon, TurnFetch, WorkFetch,
};
use everturn_provider::{
    DispatcherCapabilityFilter, ProviderAdmin, ProviderError, SessionFetchConfig, TagFilter,
};

use crate::items;

/// How long the locks of the cases last.
pub(crate) const LOCK: Duration = Duration::from_secs(30);
/// A little longer than that.
pub(crate) const PAST_LOCK: Duration = Duration::from_secs(31);
/// How long a fetch may wait that must find something.
const IN_TIME: Duration = Duration::from_secs(5);

/// A store under test. Dereferences to the store itself; a task owns a clone.
#[derive(Clone)]
pub struct StoreHandle(Arc<dyn Store>);

impl Deref for StoreHandle {
    type Target = dyn Store;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl StoreHandle {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self(store)
    }

    /// The store without the short forms.
    pub(crate) fn inner(&self) -> Arc<dyn Store> {
        Arc::clone(&self.0)
    }

    pub(crate) fn admin(&self) -> &dyn ProviderAdmin {
        self.0.admin().expect("the store has a management side")
    }

    fn raw_writes(&self) -> &dyn RawWrites {
        self.0.raw_writes().expect("the store has writes that bypass the engine")
    }

    /// Submits one message.
    pub(crate) async fn enqueue(&self, item: WorkItem, delay: Option<Duration>) -> Result<(), ProviderError> {
        let receipts = self.submit(&Submission::of(NewMessage::delayed(item, delay))).await?;
        assert_eq!(receipts.len(), 1, "one receipt per message: {receipts:?}");
        Ok(())
    }

    /// Submits one message that is visible at once.
    pub(crate) async fn send(&self, item: WorkItem) {
        self.enqueue(item, None).await.unwrap();
    }

    /// Submits one message that becomes visible later.
    pub(crate) async fn send_later(&self, item: WorkItem, delay: Duration) {
        self.enqueue(item, Some(delay)).await.unwrap();
    }

    /// Puts an activity into the worker queue.
    pub(crate) async fn enqueue_work(&self, item: WorkItem) -> Result<(), ProviderError> {
        self.raw_writes().enqueue_work(item).await
    }

    /// The same, and it must succeed.
    pub(crate) async fn queue(&self, item: WorkItem) {
        self.enqueue_work(item).await.unwrap();
    }

    /// Appends events to an execution and changes nothing else.
    pub(crate) async fn append_events(
        &self,
        instance: &str,
        execution_id: u64,
        new_events: Vec<Event>,
    ) -> Result<(), ProviderError> {
        self.raw_writes().append_events(instance, execution_id, new_events).await
    }

    /// Locks at most one instance.
    pub(crate) async fn fetch_turn(&self, fetch: &TurnFetch) -> Result<Option<FetchedTurn>, ProviderError> {
        assert_eq!(fetch.turns_max, 1);
        let mut turns = self.fetch_turns(fetch).await?;
        assert!(turns.len() <= 1, "{} turns came although one was asked for", turns.len());
        Ok(turns.pop())
    }

    /// One look into the orchestrator queue.
    pub(crate) async fn next_turn(&self) -> Option<FetchedTurn> {
        self.next_turn_within(Duration::ZERO).await.unwrap()
    }

    /// One look into the orchestrator queue that must find something.
    pub(crate) async fn fetched_turn(&self) -> FetchedTurn {
        self.next_turn().await.expect("there is an instance to fetch")
    }

    /// A fetch that waits up to `poll_timeout`.
    pub(crate) async fn next_turn_within(
        &self,
        poll_timeout: Duration,
    ) -> Result<Option<FetchedTurn>, ProviderError> {
        self.fetch_turn(&TurnFetch::new(LOCK, poll_timeout)).await
    }

    /// A fetch that waits, and must find something long before it has waited enough.
    pub(crate) async fn awaited_turn(&self) -> FetchedTurn {
        self.next_turn_within(IN_TIME).await.unwrap().expect("there is an instance to fetch")
    }

    /// One look into the orchestrator queue for executions that the filter accepts.
    pub(crate) async fn next_turn_filtered(
        &self,
        filter: &DispatcherCapabilityFilter,
    ) -> Option<FetchedTurn> {
        let fetch = TurnFetch::new(LOCK, Duration::ZERO).with_filter(filter.clone());
        self.fetch_turn(&fetch).await.unwrap()
    }

    /// Releases the lock of an instance without a commit.
    pub(crate) async fn release_turn(
        &self,
        lock_token: &str,
        delay: Option<Duration>,
        ignore_attempt: bool,
    ) -> Result<(), ProviderError> {
        let abandon = TurnAbandon::new(lock_token).with_delay(delay).with_ignored_attempt(ignore_attempt);
        self.abandon_turn(&abandon).await
    }

    /// Locks at most one activity.
    pub(crate) async fn fetch_one_work(
        &self,
        fetch: &WorkFetch,
    ) -> Result<Option<FetchedWork>, ProviderError> {
        assert_eq!(fetch.work_max, 1);
        let mut work = self.fetch_work(fetch).await?;
        assert!(work.len() <= 1, "{} activities came although one was asked for", work.len());
        Ok(work.pop())
    }

    /// One look into the worker queue for untagged activities without session.
    pub(crate) async fn next_work(&self) -> Option<FetchedWork> {
        self.next_work_tagged(&TagFilter::DefaultOnly).await
    }

    /// The same, and there must be one.
    pub(crate) async fn fetched_work(&self) -> FetchedWork {
        self.next_work().await.expect("there is an activity to fetch")
    }

    /// One look into the worker queue for activities with these tags.
    pub(crate) async fn next_work_tagged(&self, tags: &TagFilter) -> Option<FetchedWork> {
        let fetch = WorkFetch::new(LOCK, Duration::ZERO).with_tags(tags.clone());
        self.fetch_one_work(&fetch).await.unwrap()
    }

    /// One look into the worker queue by an owner of sessions.
    pub(crate) async fn next_work_as(&self, owner: &str, lease: Duration) -> Option<FetchedWork> {
        let fetch = WorkFetch::new(LOCK, Duration::ZERO).with_session(session(owner, lease));
        self.fetch_one_work(&fetch).await.unwrap()
    }

    /// A fetch of an activity without session, whatever its tag, that waits up to `poll_timeout`.
    pub(crate) async fn next_work_within(
        &self,
        poll_timeout: Duration,
    ) -> Result<Option<FetchedWork>, ProviderError> {
        self.fetch_one_work(&WorkFetch::new(LOCK, poll_timeout).with_tags(TagFilter::Any)).await
    }

    /// A worker fetch that waits, and must find something long before it has waited enough.
    pub(crate) async fn awaited_work(&self) -> FetchedWork {
        let fetch = WorkFetch::new(LOCK, IN_TIME);
        self.fetch_one_work(&fetch).await.unwrap().expect("there is an activity to fetch")
    }

    /// Removes an activity and enqueues its completion.
    pub(crate) async fn end_work(
        &self,
        lock_token: &str,
        completion: Option<WorkItem>,
    ) -> Result<(), ProviderError> {
        self.settle_work(&Settlement::end(lock_token, completion.map(Into::into))).await
    }

    /// Returns an activity to the queue.
    pub(crate) async fn release_work(
        &self,
        lock_token: &str,
        delay: Option<Duration>,
        ignore_attempt: bool,
    ) -> Result<(), ProviderError> {
        self.settle_work(&Settlement::abandon(lock_token, delay, ignore_attempt)).await
    }

    /// Extends the lock of an instance.
    pub(crate) async fn renew_turn(
        &self,
        lock_token: &str,
        extend_for: Duration,
    ) -> Result<(), ProviderError> {
        self.renew_lock(LockKind::Orchestration, lock_token, extend_for).await
    }

    /// Extends the lock of an activity.
    pub(crate) async fn renew_work(
        &self,
        lock_token: &str,
        extend_for: Duration,
    ) -> Result<(), ProviderError> {
        self.renew_lock(LockKind::WorkItem, lock_token, extend_for).await
    }

    async fn renew_lock(
        &self,
        kind: LockKind,
        lock_token: &str,
        extend_for: Duration,
    ) -> Result<(), ProviderError> {
        let lock = LockRenewal { kind, token: lock_token.to_owned(), extend_for };
        let mut renewed = self.renew(&Renewal::of_locks(vec![lock])).await?;
        assert_eq!((renewed.locks.len(), renewed.sessions), (1, 0), "one answer per lock");
        renewed.locks.remove(0)
    }

    /// Extends session leases; returns how many.
    pub(crate) async fn renew_sessions(
        &self,
        owner_ids: &[&str],
        extend_for: Duration,
        idle_timeout: Duration,
    ) -> Result<usize, ProviderError> {
        let owner_ids = owner_ids.iter().map(|id| (*id).to_owned()).collect();
        let sessions = SessionRenewal { owner_ids, extend_for, idle_timeout };
        let renewed = self.renew(&Renewal::of_sessions(sessions)).await?;
        assert_eq!(renewed.locks, [], "no lock was listed");
        Ok(renewed.sessions)
    }

    /// Removes expired sessions; returns how many.
    pub(crate) async fn sweep_sessions(&self, idle_timeout: Duration) -> Result<usize, ProviderError> {
        Ok(self.sweep(&Sweep::new(idle_timeout)).await?.sessions)
    }

    /// The history of the latest execution.
    pub(crate) async fn history(&self, instance: &str) -> Result<Vec<Event>, ProviderError> {
        Ok(self.read_execution(&ExecutionRead::latest(instance)).await?.history)
    }

    /// The history of one execution.
    pub(crate) async fn history_of(
        &self,
        instance: &str,
        execution_id: u64,
    ) -> Result<Vec<Event>, ProviderError> {
        Ok(self.read_execution(&ExecutionRead::of(instance, execution_id)).await?.history)
    }

    /// Ids of the latest execution's events.
    pub(crate) async fn event_ids(&self, instance: &str) -> Vec<u64> {
        self.history(instance).await.unwrap().iter().map(|event| event.event_id).collect()
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
        while let Some(work) = self.next_work().await {
            ids.push(work.activity_id());
        }
        ids
    }
}

/// The schedule event that a fetched activity belongs to.
pub(crate) trait ActivityId {
    fn activity_id(&self) -> u64;
}

impl ActivityId for FetchedWork {
    fn activity_id(&self) -> u64 {
        items::activity_id(&self.item)
    }
}

/// Lets a worker take activities of sessions.
pub(crate) fn session(owner: &str, lease: Duration) -> Option<SessionFetchConfig> {
    Some(SessionFetchConfig { owner_id: owner.to_owned(), lock_timeout: lease })
}

/// A custom status that was set.
pub(crate) fn custom_status(text: &str, version: u64) -> Option<CustomStatus> {
    Some(CustomStatus { text: Some(text.to_owned()), version })
}
