//! A sound store with one fault built in.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use everturn_conformance::{LayeredAdmin, ProviderFactory};
use everturn_core::{Event, KvEntry, WorkItem};
use everturn_provider::store::{
    CustomStatus, ExecutionRead, Feature, FetchedTurn, FetchedWork, LockKind, MessageNotes, RawWrites,
    Receipt, Renewal, Renewed, Settlement, SettlementKind, StepAnswer, StepCommit, Store, StoreLayer,
    StoredExecution, Submission, TurnAbandon, TurnCommit, TurnFetch, WorkFetch,
};
use everturn_provider::testing::TableAccess as _;
use everturn_provider::{
    DispatcherCapabilityFilter, InstanceWatch, ManualClock, MemoryProvider, Provider, ProviderAdmin,
    ProviderError, SessionFetchConfig, TagFilter,
};
use semver::Version;

use crate::faulty_admin::FaultyAdmin;

/// How long the locks of the cases last.
const LOCK: Duration = Duration::from_secs(30);

/// What is wrong with a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreFault {
    None,
    CancelledRowsAreKept,
    OrchestratorItemsAreLost,
    NotesAreLost,
    CommitTakesAnyToken,
    ExpiryIsIgnored,
    LateMessagesAreDeleted,
    CompletionIsEnqueuedThoughTheRowIsGone,
    MessagesComeInReverse,
    TimersComeLast,
    SessionsAreStolen,
    FilterIsAppliedAfterTheLock,
    PruneDeletesTheCurrentExecution,
    DeleteLeavesQueueRows,
    StatusIsNotStored,
    DelayOfAbandonIsIgnored,
    HandlersAreIgnored,
    MissingHandlersDelayAll,
    RefundIsIgnored,
    DelayedMessagesAreVisibleEarly,
    FilterIsIgnored,
    SessionIsIgnored,
    SessionPlacesAreIgnored,
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
    MoreTurnsComeThanWereAskedFor,
    MoreWorkComesThanWasAskedFor,
    LockLeftIsZero,
    SubmissionsAreTorn,
    EveryStartIsReportedAsCreated,
    SessionsOfARenewalAreForgotten,
    StepsCountAsExecutions,
}

/// A store around the in-memory one that does one thing wrong.
pub(crate) struct FaultyLayer {
    inner: Arc<MemoryProvider>,
    fault: StoreFault,
    record: Arc<FaultRecord>,
    admin: LayeredAdmin<FaultyAdmin>,
}

/// What a fault needs to remember.
#[derive(Default)]
pub(crate) struct FaultRecord {
    /// The turns that were fetched: token and instance.
    turns: Mutex<Vec<(String, String)>>,
    /// What executions are pinned to.
    pins: Mutex<HashMap<String, Version>>,
    /// The first worker that claimed a session.
    owner: Mutex<Option<SessionFetchConfig>>,
    /// Everything that was queued for workers.
    pub(crate) activities: Mutex<Vec<WorkItem>>,
    /// Instances that were pruned.
    pub(crate) pruned: Mutex<Vec<String>>,
    /// How many steps were committed.
    pub(crate) steps: AtomicU64,
}

impl FaultyLayer {
    fn new(inner: Arc<MemoryProvider>, fault: StoreFault) -> Self {
        let record: Arc<FaultRecord> = Arc::default();
        let admin = FaultyAdmin { inner: Arc::clone(&inner), fault, record: Arc::clone(&record) };
        Self { inner, fault, record, admin: LayeredAdmin(admin) }
    }

    fn has(&self, fault: StoreFault) -> bool {
        self.fault == fault
    }

    /// How long a lock lasts that was asked to last so long.
    fn lock(&self, lock_timeout: Duration) -> Duration {
        if self.has(StoreFault::ExpiryIsIgnored) { lock_timeout * 1_000 } else { lock_timeout }
    }

    fn wait(&self, poll_timeout: Duration) -> Duration {
        if self.has(StoreFault::FetchesDoNotWait) { Duration::ZERO } else { poll_timeout }
    }

    /// The token that a commit is let through with.
    async fn token_for_commit(&self, token: &str) -> Result<String, ProviderError> {
        match self.fault {
            StoreFault::CommitTakesAnyToken => {
                let turns = self.record.turns.lock().unwrap();
                Ok(turns.last().map_or(token, |(newest, _)| newest.as_str()).to_owned())
            }
            StoreFault::LateMessagesAreDeleted => {
                // Releases the turn and takes it again, with all that came meanwhile.
                let abandon = TurnAbandon::new(token).with_ignored_attempt(true);
                self.inner().abandon_turn(&abandon).await?;
                let again = self.inner().fetch_turns(&TurnFetch::new(LOCK, Duration::ZERO)).await?.pop();
                Ok(again.map_or_else(|| token.to_owned(), |turn| turn.lock_token))
            }
            _ => Ok(token.to_owned()),
        }
    }

    async fn spoil(&self, turn: &mut FetchedTurn) -> Result<(), ProviderError> {
        let item = &mut turn.item;
        match self.fault {
            StoreFault::MessagesComeInReverse => item.messages.reverse(),
            StoreFault::TimersComeLast => {
                item.messages.sort_by_key(|message| matches!(message, WorkItem::TimerFired { .. }));
            }
            StoreFault::AttemptsAreNotCounted => turn.attempt_count = 1,
            StoreFault::LockLeftIsZero => turn.lock_left = Duration::ZERO,
            StoreFault::HistoryIsShortened => item.history.truncate(2),
            StoreFault::BrokenHistoryIsAnError if item.history_error.is_some() => {
                return Err(ProviderError::damaged("fetch", "cannot be read"));
            }
            StoreFault::SnapshotIsTheMergedView => {
                let merged = self.inner().read_kv_values(&item.instance).await?;
                let entry = |value| KvEntry { value, last_updated_at_ms: 77 };
                item.kv_snapshot = merged.into_iter().map(|(key, value)| (key, entry(value))).collect();
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether the filter, applied too late, refuses a turn that is already locked.
    fn is_refused_late(&self, filter: Option<&DispatcherCapabilityFilter>, instance: &str) -> bool {
        let pins = self.record.pins.lock().unwrap();
        filter.zip(pins.get(instance)).is_some_and(|(filter, pin)| !filter.is_compatible(pin))
    }
}

impl StoreLayer for FaultyLayer {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    /// A step passes through here like every other verb.
    fn supports(&self, feature: Feature) -> bool {
        self.inner().supports(feature)
    }

    async fn fetch_turns(&self, fetch: &TurnFetch) -> Result<Vec<FetchedTurn>, ProviderError> {
        let mut fetch = fetch.clone();
        (fetch.lock_timeout, fetch.poll_timeout) =
            (self.lock(fetch.lock_timeout), self.wait(fetch.poll_timeout));
        match self.fault {
            StoreFault::MoreTurnsComeThanWereAskedFor => fetch.turns_max += 1,
            StoreFault::HandlersAreIgnored => fetch.handlers = None,
            _ => {}
        }
        let late_filter = match self.fault {
            StoreFault::FilterIsAppliedAfterTheLock => fetch.filter.take(),
            StoreFault::FilterIsIgnored => {
                fetch.filter = None;
                None
            }
            _ => None,
        };
        let turns = if self.has(StoreFault::DroppedFetchesKeepTheirWork) {
            let inner = Arc::clone(&self.inner);
            tokio::spawn(async move { inner.fetch_turns(&fetch).await }).await.expect("the fetch ends")?
        } else {
            self.inner().fetch_turns(&fetch).await?
        };
        let mut spoilt = Vec::new();
        for mut turn in turns {
            self.spoil(&mut turn).await?;
            let entry = (turn.lock_token.clone(), turn.item.instance.clone());
            self.record.turns.lock().unwrap().push(entry);
            if !self.is_refused_late(late_filter.as_ref(), &turn.item.instance) {
                spoilt.push(turn);
            }
        }
        Ok(spoilt)
    }

    async fn commit_turn(&self, commit: &TurnCommit) -> Result<(), ProviderError> {
        let mut commit = commit.clone();
        match self.fault {
            StoreFault::CancelledRowsAreKept => commit.cancelled_activities.clear(),
            StoreFault::OrchestratorItemsAreLost => commit.orchestrator_items.clear(),
            StoreFault::NotesAreLost => {
                commit
                    .orchestrator_items
                    .iter_mut()
                    .for_each(|message| message.notes = MessageNotes::default());
            }
            StoreFault::StatusIsNotStored => commit.update.status = None,
            StoreFault::BaseIsIgnored => commit.base = None,
            StoreFault::CheckInIsForgotten => commit.check_in = None,
            _ => {}
        }
        let turns = self.record.turns.lock().unwrap().clone();
        let turn = turns.into_iter().find(|(token, _)| *token == commit.lock_token);
        if let (Some((_, instance)), Some(pin)) = (turn, &commit.update.pinned_engine_version) {
            self.record.pins.lock().unwrap().insert(instance, pin.clone());
        }
        let activities = commit.worker_items.iter().map(|work| work.item.clone());
        self.record.activities.lock().unwrap().extend(activities);
        commit.lock_token = self.token_for_commit(&commit.lock_token).await?;
        let committed = self.inner().commit_turn(&commit).await;
        if self.has(StoreFault::UnknownTokensAreAccepted) { Ok(()) } else { committed }
    }

    async fn commit_step(&self, step: &StepCommit) -> Result<StepAnswer, ProviderError> {
        let mut step = step.clone();
        if self.has(StoreFault::CancelledRowsAreKept) {
            step.turn.cancelled_activities.clear();
        }
        let answer = self.inner().commit_step(&step).await?;
        if matches!(answer, StepAnswer::Committed(_)) {
            self.record.steps.fetch_add(1, Ordering::SeqCst);
        }
        Ok(answer)
    }

    async fn abandon_turn(&self, abandon: &TurnAbandon) -> Result<(), ProviderError> {
        let mut abandon = abandon.clone();
        match self.fault {
            StoreFault::DelayOfAbandonIsIgnored => abandon.delay = None,
            StoreFault::MissingHandlersDelayAll => abandon.missing_handler = None,
            StoreFault::RefundIsIgnored => abandon.ignore_attempt = false,
            _ => {}
        }
        self.inner().abandon_turn(&abandon).await
    }

    async fn fetch_work(&self, fetch: &WorkFetch) -> Result<Vec<FetchedWork>, ProviderError> {
        let mut fetch = fetch.clone();
        (fetch.lock_timeout, fetch.poll_timeout) =
            (self.lock(fetch.lock_timeout), self.wait(fetch.poll_timeout));
        match self.fault {
            StoreFault::MoreWorkComesThanWasAskedFor => fetch.work_max += 1,
            StoreFault::SessionIsIgnored => fetch.session = None,
            StoreFault::SessionPlacesAreIgnored => fetch.session_places = None,
            StoreFault::TagsAreIgnored => fetch.tags = TagFilter::Any,
            StoreFault::HandlersAreIgnored => fetch.handlers = None,
            StoreFault::SessionsAreStolen => {
                // Every worker passes for the first that came.
                if let Some(session) = fetch.session.take() {
                    let mut owner = self.record.owner.lock().unwrap();
                    fetch.session = Some(owner.get_or_insert(session).clone());
                }
            }
            _ => {}
        }
        self.inner().fetch_work(&fetch).await
    }

    async fn settle_work(&self, settlement: &Settlement) -> Result<(), ProviderError> {
        let settled = self.inner().settle_work(settlement).await;
        if self.has(StoreFault::CompletionIsEnqueuedThoughTheRowIsGone)
            && settled.is_err()
            && let SettlementKind::End { completion: Some(completion) } = &settlement.kind
        {
            self.inner().submit(&Submission::of(completion.clone())).await?;
        }
        settled
    }

    async fn renew(&self, renewal: &Renewal) -> Result<Renewed, ProviderError> {
        let mut asked = renewal.clone();
        if self.has(StoreFault::SessionsOfARenewalAreForgotten) && !asked.locks.is_empty() {
            asked.sessions = None;
        }
        let mut renewed = self.inner().renew(&asked).await?;
        match self.fault {
            StoreFault::RenewalAnswersAreSwapped => renewed.locks.reverse(),
            StoreFault::RenewalsAlwaysSucceed => {
                let answers = renewal.locks.iter().zip(&mut renewed.locks);
                for (_, answer) in answers.filter(|(lock, _)| lock.kind == LockKind::WorkItem) {
                    *answer = Ok(());
                }
            }
            _ => {}
        }
        Ok(renewed)
    }

    async fn submit(&self, submission: &Submission) -> Result<Vec<Receipt>, ProviderError> {
        let mut submission = submission.clone();
        if self.has(StoreFault::DelayedMessagesAreVisibleEarly) {
            submission.messages.iter_mut().for_each(|message| message.delay = None);
        }
        if self.has(StoreFault::SubmissionsAreTorn) {
            let mut receipts = Vec::new();
            for message in submission.messages {
                receipts.extend(self.inner().submit(&Submission::of(message)).await?);
            }
            return Ok(receipts);
        }
        let mut receipts = self.inner().submit(&submission).await?;
        if self.has(StoreFault::EveryStartIsReportedAsCreated) {
            let existing = receipts.iter_mut().filter(|receipt| **receipt == Receipt::Existing);
            existing.for_each(|receipt| *receipt = Receipt::Created);
        }
        Ok(receipts)
    }

    async fn read_execution(&self, read: &ExecutionRead) -> Result<StoredExecution, ProviderError> {
        let execution = self.inner().read_execution(read).await;
        if self.has(StoreFault::DamagedHistoryReadsAsEmpty) {
            return Ok(execution.unwrap_or_default());
        }
        execution
    }

    async fn read_custom_status(
        &self,
        instance: &str,
        last_seen_version: u64,
    ) -> Result<Option<CustomStatus>, ProviderError> {
        let is_ignored = self.has(StoreFault::LastSeenVersionIsIgnored);
        self.inner().read_custom_status(instance, if is_ignored { 0 } else { last_seen_version }).await
    }

    fn watch(&self, instance: &str) -> InstanceWatch {
        if self.has(StoreFault::WatchesNeverWake) {
            let (never, changes) = tokio::sync::watch::channel(0);
            // The channel must stay open, or the watch would notice that no sender is left.
            std::mem::forget(never);
            return InstanceWatch::woken(changes);
        }
        self.inner().watch(instance)
    }

    fn admin(&self) -> Option<&dyn ProviderAdmin> {
        Some(&self.admin)
    }

    fn raw_writes(&self) -> Option<&dyn RawWrites> {
        Some(self)
    }
}

#[async_trait]
impl RawWrites for FaultyLayer {
    async fn append_events(
        &self,
        instance: &str,
        execution_id: u64,
        new_events: Vec<Event>,
    ) -> Result<(), ProviderError> {
        self.inner.append_events(instance, execution_id, new_events).await
    }

    async fn enqueue_work(&self, item: WorkItem) -> Result<(), ProviderError> {
        self.record.activities.lock().unwrap().push(item.clone());
        self.inner.enqueue_work(item).await
    }
}

/// Opens stores with one fault.
pub(crate) struct FaultyFactory {
    clock: Arc<ManualClock>,
    inner: Arc<MemoryProvider>,
    fault: StoreFault,
}

impl FaultyFactory {
    pub(crate) fn new(fault: StoreFault) -> Self {
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
        Arc::new(FaultyLayer::new(Arc::clone(&self.inner), self.fault))
    }

    async fn damage_event(&self, _: &Arc<dyn Provider>, instance: &str, execution_id: u64, event_id: u64) {
        assert!(self.inner.damage_event(instance, execution_id, event_id));
    }

    async fn message_attempts(&self, _: &Arc<dyn Provider>, instance: &str) -> Option<Vec<u32>> {
        Some(self.inner.message_attempts(instance))
    }
}
