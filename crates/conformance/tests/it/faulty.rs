//! A sound provider with one fault built in.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use everturn_conformance::ProviderFactory;
use everturn_core::{Event, OrchestrationStatus, SystemStats, WorkItem};
use everturn_provider::testing::TableAccess as _;
use everturn_provider::{
    DispatcherCapabilityFilter, ExecutionMetadata, FetchedTurn, InstanceWatch, LockRenewal, ManualClock,
    MemoryProvider, OrchestrationItem, Provider, ProviderAdmin, ProviderError, ScheduledActivityIdentifier,
    SessionFetchConfig, TagFilter, TurnCommit, WarmView,
};
use semver::Version;

/// How long the locks of the cases last.
const LOCK: Duration = Duration::from_secs(30);

/// What is wrong with a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    CancelledRowsAreKept,
    OrchestratorItemsAreLost,
    AckTakesAnyToken,
    ExpiryIsIgnored,
    LateMessagesAreDeleted,
    CompletionIsEnqueuedThoughTheRowIsGone,
    MessagesComeInReverse,
    SessionsAreStolen,
    FilterIsAppliedAfterTheLock,
    PruneDeletesTheCurrentExecution,
    DeleteLeavesQueueRows,
    StatusIsNotStored,
    DelayOfAbandonIsIgnored,
    RefundIsIgnored,
    DelayedMessagesAreVisibleEarly,
    FilterIsIgnored,
    SessionIsIgnored,
    TagsAreIgnored,
    UnknownTokensAreAccepted,
    RenewalsAlwaysSucceed,
    RenewalAnswersAreSwapped,
    FetchesDoNotWait,
    AttemptsAreNotCounted,
    HistoryIsShortened,
    BrokenHistoryIsAnError,
    SnapshotIsTheMergedView,
    LastSeenVersionIsIgnored,
    DamagedHistoryReadsAsEmpty,
    BaseIsIgnored,
    CheckInIsForgotten,
    WatchesNeverWake,
    DroppedFetchesKeepTheirWork,
}

pub(crate) struct Faulty {
    pub(crate) inner: Arc<MemoryProvider>,
    fault: Fault,
    pub(crate) known: Mutex<Known>,
}

/// What a fault needs to remember.
#[derive(Default)]
pub(crate) struct Known {
    /// The turns that were handed out: token and instance.
    turns: Vec<(String, String)>,
    /// What executions are pinned to.
    pins: HashMap<String, Version>,
    /// Who claims sessions.
    owner: Option<SessionFetchConfig>,
    /// Everything that was queued for workers.
    pub(crate) activities: Vec<WorkItem>,
    /// Instances that were pruned.
    pub(crate) pruned: Vec<String>,
}

impl Faulty {
    pub(crate) fn has(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    pub(crate) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap()
    }

    /// How long a lock lasts that was asked to last so long.
    fn lock(&self, lock_timeout: Duration) -> Duration {
        if self.has(Fault::ExpiryIsIgnored) { lock_timeout * 1_000 } else { lock_timeout }
    }

    /// The token that an ack is let through with.
    async fn token_for_ack(&self, token: &str) -> Result<String, ProviderError> {
        let turns = self.known().turns.clone();
        let newest = turns.last().map_or(token, |(newest, _)| newest.as_str());
        match self.fault {
            Fault::AckTakesAnyToken => Ok(newest.to_owned()),
            Fault::LateMessagesAreDeleted => {
                // Gives the turn back and takes it again, with all that came meanwhile.
                self.inner.abandon_orchestration_item(token, None, true).await?;
                let again = self.inner.fetch_orchestration_item(LOCK, Duration::ZERO, None).await?;
                Ok(again.map_or_else(|| token.to_owned(), |(_, token, _)| token))
            }
            _ => Ok(token.to_owned()),
        }
    }

    fn wait(&self, poll_timeout: Duration) -> Duration {
        if self.has(Fault::FetchesDoNotWait) { Duration::ZERO } else { poll_timeout }
    }

    async fn spoil(&self, item: &mut OrchestrationItem, attempts: &mut u32) -> Result<(), ProviderError> {
        match self.fault {
            Fault::MessagesComeInReverse => item.messages.reverse(),
            Fault::AttemptsAreNotCounted => *attempts = 1,
            Fault::HistoryIsShortened => item.history.truncate(2),
            Fault::BrokenHistoryIsAnError if item.history_error.is_some() => {
                return Err(ProviderError::damaged("fetch", "cannot be read"));
            }
            Fault::SnapshotIsTheMergedView => {
                let merged = self.inner.get_kv_all_values(&item.instance).await?;
                let entry = |value| everturn_core::KvEntry { value, last_updated_at_ms: 77 };
                item.kv_snapshot = merged.into_iter().map(|(key, value)| (key, entry(value))).collect();
            }
            _ => {}
        }
        Ok(())
    }
}

pub(crate) struct FaultyFactory {
    clock: Arc<ManualClock>,
    inner: Arc<MemoryProvider>,
    fault: Fault,
}

impl FaultyFactory {
    pub(crate) fn new(fault: Fault) -> Self {
        let clock = Arc::new(ManualClock::new(1_700_000_000_000));
        let inner = Arc::new(MemoryProvider::with_clock(clock.clone()));
        Self { clock, inner, fault }
    }
}

#[async_trait]
impl ProviderFactory for FaultyFactory {
    fn clock(&self) -> Arc<ManualClock> {
        Arc::clone(&self.clock)
    }

    async fn open(&self) -> Arc<dyn Provider> {
        Arc::new(Faulty { inner: Arc::clone(&self.inner), fault: self.fault, known: Mutex::default() })
    }

    async fn damage_event(&self, _: &Arc<dyn Provider>, instance: &str, execution_id: u64, event_id: u64) {
        assert!(self.inner.damage_event(instance, execution_id, event_id));
    }

    async fn message_attempts(&self, _: &Arc<dyn Provider>, instance: &str) -> Option<Vec<u32>> {
        Some(self.inner.message_attempts(instance))
    }
}

#[async_trait]
impl Provider for Faulty {
    async fn fetch_orchestration_item(
        &self,
        lock_timeout: Duration,
        poll_timeout: Duration,
        filter: Option<&DispatcherCapabilityFilter>,
    ) -> Result<Option<(OrchestrationItem, String, u32)>, ProviderError> {
        let is_late = self.has(Fault::FilterIsAppliedAfterTheLock);
        let late_filter = filter.filter(|_| is_late);
        let filter = filter.filter(|_| !is_late && !self.has(Fault::FilterIsIgnored)).cloned();
        let (inner, wait) = (Arc::clone(&self.inner), self.wait(poll_timeout));
        let lock_timeout = self.lock(lock_timeout);
        let fetch = async move { inner.fetch_orchestration_item(lock_timeout, wait, filter.as_ref()).await };
        let fetched = if self.has(Fault::DroppedFetchesKeepTheirWork) {
            tokio::spawn(fetch).await.expect("the fetch ends")?
        } else {
            fetch.await?
        };
        let Some((mut item, token, mut attempts)) = fetched else { return Ok(None) };
        self.spoil(&mut item, &mut attempts).await?;
        self.known().turns.push((token.clone(), item.instance.clone()));
        let pin = self.known().pins.get(&item.instance).cloned();
        if let (Some(filter), Some(pin)) = (late_filter, pin)
            && !filter.is_compatible(&pin)
        {
            return Ok(None);
        }
        Ok(Some((item, token, attempts)))
    }

    async fn ack_orchestration_item(
        &self,
        lock_token: &str,
        execution_id: u64,
        history_delta: Vec<Event>,
        worker_items: Vec<WorkItem>,
        mut orchestrator_items: Vec<WorkItem>,
        mut metadata: ExecutionMetadata,
        mut cancelled: Vec<ScheduledActivityIdentifier>,
    ) -> Result<(), ProviderError> {
        match self.fault {
            Fault::CancelledRowsAreKept => cancelled.clear(),
            Fault::OrchestratorItemsAreLost => orchestrator_items.clear(),
            Fault::StatusIsNotStored => metadata.status = None,
            _ => {}
        }
        let instance = self.known().turns.iter().find(|(token, _)| token == lock_token).cloned();
        if let (Some((_, instance)), Some(pin)) = (instance, &metadata.pinned_engine_version) {
            self.known().pins.insert(instance, pin.clone());
        }
        self.known().activities.extend(worker_items.iter().cloned());
        let lock_token = self.token_for_ack(lock_token).await?;
        let ack = self.inner.ack_orchestration_item(
            &lock_token,
            execution_id,
            history_delta,
            worker_items,
            orchestrator_items,
            metadata,
            cancelled,
        );
        ack.await.or_else(|error| if self.has(Fault::UnknownTokensAreAccepted) { Ok(()) } else { Err(error) })
    }

    async fn abandon_orchestration_item(
        &self,
        token: &str,
        delay: Option<Duration>,
        ignore_attempt: bool,
    ) -> Result<(), ProviderError> {
        let delay = delay.filter(|_| !self.has(Fault::DelayOfAbandonIsIgnored));
        let ignore_attempt = ignore_attempt && !self.has(Fault::RefundIsIgnored);
        self.inner.abandon_orchestration_item(token, delay, ignore_attempt).await
    }

    async fn read(&self, instance: &str) -> Result<Vec<Event>, ProviderError> {
        let history = self.inner.read(instance).await;
        if self.has(Fault::DamagedHistoryReadsAsEmpty) { Ok(history.unwrap_or_default()) } else { history }
    }

    async fn read_with_execution(
        &self,
        instance: &str,
        execution_id: u64,
    ) -> Result<Vec<Event>, ProviderError> {
        self.inner.read_with_execution(instance, execution_id).await
    }

    async fn append_with_execution(
        &self,
        instance: &str,
        execution_id: u64,
        new_events: Vec<Event>,
    ) -> Result<(), ProviderError> {
        self.inner.append_with_execution(instance, execution_id, new_events).await
    }

    async fn enqueue_for_worker(&self, item: WorkItem) -> Result<(), ProviderError> {
        self.known().activities.push(item.clone());
        self.inner.enqueue_for_worker(item).await
    }

    async fn fetch_work_item(
        &self,
        lock_timeout: Duration,
        poll_timeout: Duration,
        session: Option<&SessionFetchConfig>,
        tag_filter: &TagFilter,
    ) -> Result<Option<(WorkItem, String, u32)>, ProviderError> {
        let mut session = session.filter(|_| !self.has(Fault::SessionIsIgnored)).cloned();
        if self.has(Fault::SessionsAreStolen) && session.is_some() {
            // Everybody passes for the first who came.
            session = Some(self.known().owner.get_or_insert_with(|| session.unwrap()).clone());
        }
        let tags = if self.has(Fault::TagsAreIgnored) { &TagFilter::Any } else { tag_filter };
        let lock_timeout = self.lock(lock_timeout);
        self.inner.fetch_work_item(lock_timeout, self.wait(poll_timeout), session.as_ref(), tags).await
    }

    async fn ack_work_item(&self, token: &str, completion: Option<WorkItem>) -> Result<(), ProviderError> {
        let answer = self.inner.ack_work_item(token, completion.clone()).await;
        if self.has(Fault::CompletionIsEnqueuedThoughTheRowIsGone)
            && answer.is_err()
            && let Some(completion) = completion
        {
            self.inner.enqueue_for_orchestrator(completion, None).await?;
        }
        answer
    }

    async fn renew_work_item_lock(&self, token: &str, extend_for: Duration) -> Result<(), ProviderError> {
        let answer = self.inner.renew_work_item_lock(token, extend_for).await;
        if self.has(Fault::RenewalsAlwaysSucceed) { Ok(()) } else { answer }
    }

    async fn renew_session_lock(
        &self,
        owner_ids: &[&str],
        extend_for: Duration,
        idle_timeout: Duration,
    ) -> Result<usize, ProviderError> {
        self.inner.renew_session_lock(owner_ids, extend_for, idle_timeout).await
    }

    async fn cleanup_orphaned_sessions(&self, idle_timeout: Duration) -> Result<usize, ProviderError> {
        self.inner.cleanup_orphaned_sessions(idle_timeout).await
    }

    async fn abandon_work_item(
        &self,
        token: &str,
        delay: Option<Duration>,
        ignore_attempt: bool,
    ) -> Result<(), ProviderError> {
        self.inner.abandon_work_item(token, delay, ignore_attempt).await
    }

    async fn renew_orchestration_item_lock(
        &self,
        token: &str,
        extend_for: Duration,
    ) -> Result<(), ProviderError> {
        self.inner.renew_orchestration_item_lock(token, extend_for).await
    }

    async fn enqueue_for_orchestrator(
        &self,
        item: WorkItem,
        delay: Option<Duration>,
    ) -> Result<(), ProviderError> {
        let delay = delay.filter(|_| !self.has(Fault::DelayedMessagesAreVisibleEarly));
        self.inner.enqueue_for_orchestrator(item, delay).await
    }

    fn as_management_capability(&self) -> Option<&dyn ProviderAdmin> {
        Some(self)
    }

    async fn get_custom_status(
        &self,
        instance: &str,
        last_seen: u64,
    ) -> Result<Option<(Option<String>, u64)>, ProviderError> {
        let last_seen = if self.has(Fault::LastSeenVersionIsIgnored) { 0 } else { last_seen };
        self.inner.get_custom_status(instance, last_seen).await
    }

    async fn get_kv_value(&self, instance: &str, key: &str) -> Result<Option<String>, ProviderError> {
        self.inner.get_kv_value(instance, key).await
    }

    async fn get_kv_all_values(&self, instance: &str) -> Result<HashMap<String, String>, ProviderError> {
        self.inner.get_kv_all_values(instance).await
    }

    async fn get_instance_stats(&self, instance: &str) -> Result<Option<SystemStats>, ProviderError> {
        self.inner.get_instance_stats(instance).await
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
        self.inner.fetch_turn(lock_timeout, poll_timeout, filter, warm).await
    }

    async fn commit_turn(&self, commit: &TurnCommit) -> Result<(), ProviderError> {
        let mut commit = commit.clone();
        match self.fault {
            Fault::BaseIsIgnored => commit.base = None,
            Fault::CheckInIsForgotten => commit.check_in = None,
            _ => {}
        }
        self.inner.commit_turn(&commit).await
    }

    async fn renew_locks(&self, renewals: &[LockRenewal]) -> Vec<Result<(), ProviderError>> {
        let mut answers = self.inner.renew_locks(renewals).await;
        if self.has(Fault::RenewalAnswersAreSwapped) {
            answers.reverse();
        }
        answers
    }

    async fn read_status(&self, instance: &str) -> Result<OrchestrationStatus, ProviderError> {
        self.inner.read_status(instance).await
    }

    async fn read_orchestration_name(
        &self,
        instance: &str,
    ) -> Result<Option<(String, String)>, ProviderError> {
        self.inner.read_orchestration_name(instance).await
    }

    fn watch_instance(&self, instance: &str) -> InstanceWatch {
        if self.has(Fault::WatchesNeverWake) {
            let (never, changes) = tokio::sync::watch::channel(0);
            // The channel must stay open, or the watch would notice that nobody wakes it.
            std::mem::forget(never);
            return InstanceWatch::woken(changes);
        }
        self.inner.watch_instance(instance)
    }
}
