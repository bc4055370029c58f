//! The store as the recorder sees it: every answer is recorded at the moment it is true.

use std::sync::Arc;

use everturn::providers::store::{
    Feature, FetchedTurn, FetchedWork, LockKind, NewMessage, RawWrites, Receipt, Renewal, Renewed,
    Settlement, SettlementKind, StepAnswer, StepCommit, Store, StoreIdentity, StoreLayer, Submission,
    TurnAbandon, TurnCommit, TurnFetch, WorkFetch,
};
use everturn::providers::{Clock as _, ProviderError, WorkItem};

use crate::fault_plan::Fault;
use crate::process::Process;
use crate::recorder::{NewLock, WorldTime};
use crate::scenario::Scenario;
use crate::sim_clock::SimClock;
use crate::store_bugs::{StoreBug, commit_without_lock, enqueue_work};
use crate::world_store::LockState;

/// Records all calls of one process. It also has the store's bugs, if the harness itself is tested.
pub(crate) struct RecordedStore {
    inner: Arc<dyn Store>,
    scenario: Arc<Scenario>,
    process: Arc<Process>,
    /// The clock of the process, if it is a node.
    node_clock: Option<Arc<SimClock>>,
}

impl RecordedStore {
    pub(crate) fn new(
        inner: Arc<dyn Store>,
        scenario: Arc<Scenario>,
        process: Arc<Process>,
        node_clock: Option<Arc<SimClock>>,
    ) -> Self {
        Self { inner, scenario, process, node_clock }
    }

    /// The state of a lock that was just fetched, by a process that was frozen so often before.
    fn lock_state(&self, kind: LockKind, token: &str, freezes: usize) -> LockState {
        match self.scenario.store.lock_state(kind, token) {
            // It is unknown how long the answer waited for the process, and how much is left.
            LockState::HeldUntil { .. } if freezes != self.process.freezes() => {
                LockState::HeldUntil { until_ms: 0 }
            }
            state => state,
        }
    }

    /// The process, if its locks are released when it no longer runs.
    fn holder(&self) -> Option<Arc<Process>> {
        self.scenario.store.releases_locks_of_ended_processes().then(|| Arc::clone(&self.process))
    }

    /// Whether the store accepts a call that it refused because of its lock.
    fn is_accepted(&self, error: &ProviderError) -> bool {
        error.is_lock_lost() && self.scenario.has_bug(StoreBug::AcceptsAnyToken)
    }

    fn record_turn(&self, turn: &FetchedTurn, fetch: &TurnFetch, freezes: usize, called: WorldTime) {
        let (scenario, at) = (&self.scenario, self.scenario.moment());
        let token = turn.lock_token.as_str();
        let state = self.lock_state(LockKind::Orchestration, token, freezes);
        scenario.forget_void_locks();
        let was_frozen = freezes != self.process.freezes();
        // A frozen process does not know for how long the answer has been there.
        let given_at = if was_frozen { called } else { at };
        let (lasts, attempt_count, deaths) = (fetch.lock_timeout, turn.attempt_count, scenario.deaths());
        let lock = NewLock { token, holder: self.holder(), lasts, state, attempt_count, deaths };
        scenario.records().recorder.turn_fetched(turn, &lock, given_at, at, &scenario.store_clock);
        if state == LockState::Void && turn.warm.is_some() && !was_frozen {
            // It was answered before its batch was committed, and then the batch was lost.
            scenario.fault(Fault::LostTurn, format_args!("fetch_turns {} {token}", turn.item.instance));
        }
    }

    fn record_work(&self, work: &FetchedWork, fetch: &WorkFetch, freezes: usize) {
        let (scenario, at) = (&self.scenario, self.scenario.moment());
        let token = work.lock_token.as_str();
        let state = self.lock_state(LockKind::WorkItem, token, freezes);
        let (lasts, attempt_count, deaths) = (fetch.lock_timeout, work.attempt_count, scenario.deaths());
        let lock = NewLock { token, holder: self.holder(), lasts, state, attempt_count, deaths };
        let clock = &scenario.store_clock;
        scenario.records().recorder.work_fetched(&work.item, &lock, at, clock);
        if let (WorkItem::ActivityExecute { session_id: Some(session_id), .. }, Some(config)) =
            (&work.item, &fetch.session)
        {
            let is_fresh = state != LockState::Void && freezes == self.process.freezes();
            let mut records = scenario.records();
            records.recorder.session_fetched(session_id, config, at, clock, is_fresh, self.holder());
        }
    }

    /// Ends an activity.
    async fn end_work(
        &self,
        settlement: &Settlement,
        completion: Option<&NewMessage>,
    ) -> Result<(), ProviderError> {
        let (scenario, token) = (&self.scenario, settlement.lock_token.as_str());
        let mut arriving = settlement.clone();
        if scenario.has_bug(StoreBug::ChangesOutcomes)
            && let SettlementKind::End { completion: Some(message) } = &mut arriving.kind
            && let WorkItem::ActivityCompleted { result, .. } = &mut message.item
        {
            result.push('!');
        }
        let called = scenario.moment();
        let outcome = completion.map(|message| &message.item);
        scenario.records().recorder.outcome_sent(outcome);
        let answer = if scenario.has_bug(StoreBug::AnswersLostCommits) {
            Ok(())
        } else {
            match (self.inner.settle_work(&arriving).await, completion) {
                (Err(error), Some(outcome)) if self.is_accepted(&error) => {
                    self.inner.submit(&Submission::of(outcome.clone())).await.map(drop)
                }
                (answer, _) => answer,
            }
        };
        if answer.is_ok() {
            let at = scenario.moment();
            scenario.records().recorder.work_settled(token, outcome, called, at);
        }
        answer
    }

    /// Abandons a lock.
    async fn abandon(
        &self,
        token: &str,
        call: impl Future<Output = Result<(), ProviderError>> + Send,
    ) -> Result<(), ProviderError> {
        let called = self.scenario.moment();
        self.scenario.records().recorder.abandon_sent(token, called);
        let answer = match call.await {
            Err(error) if self.is_accepted(&error) => Ok(()),
            answer => answer,
        };
        if answer.is_ok() {
            let at = self.scenario.moment();
            self.scenario.records().recorder.abandoned(token, at);
        }
        answer
    }
}

impl StoreLayer for RecordedStore {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    /// Each simulated process is alone: what the others run, it learns from the store.
    fn identity(&self) -> Option<StoreIdentity> {
        None
    }

    fn now_ms(&self) -> u64 {
        match &self.node_clock {
            Some(clock) if self.scenario.has_bug(StoreBug::TellsNodeTime) => clock.wall_ms(),
            _ => self.inner.now_ms(),
        }
    }

    async fn fetch_turns(&self, fetch: &TurnFetch) -> Result<Vec<FetchedTurn>, ProviderError> {
        let (freezes, called) = (self.process.freezes(), self.scenario.moment());
        let turns = self.inner.fetch_turns(fetch).await?;
        for turn in &turns {
            self.record_turn(turn, fetch, freezes, called);
        }
        let tokens: Vec<String> = turns.iter().map(|turn| turn.lock_token.clone()).collect();
        for token in tokens {
            if self.scenario.has_bug(StoreBug::OffersLockedRows) {
                let abandon = TurnAbandon::new(token).with_ignored_attempt(true);
                // A lock that has ended already need not be released.
                drop(self.inner.abandon_turn(&abandon).await);
            }
        }
        Ok(turns)
    }

    async fn commit_turn(&self, commit: &TurnCommit) -> Result<(), ProviderError> {
        let scenario = &self.scenario;
        if scenario.has_bug(StoreBug::DispatchesBeforeCommit) {
            for work in &commit.worker_items {
                enqueue_work(&*self.inner, work.item.clone()).await?;
            }
            return Err(ProviderError::retryable("commit_turn", "a bug of the store"));
        }
        let mut arriving = scenario.arriving(commit.clone());
        let called = scenario.moment();
        scenario.records().recorder.turn_sent(commit, called);
        // Once it is durable others may go on with it, long before its own caller gets an answer.
        let (seen, sent, check_in) = (Arc::clone(scenario), commit.clone(), arriving.check_in.take());
        arriving.check_in = Some(Arc::new(move || {
            seen.committed(&sent);
            if let Some(check_in) = &check_in {
                check_in();
            }
        }));
        let answer = if scenario.has_bug(StoreBug::AnswersLostCommits) {
            Ok(())
        } else {
            match self.inner.commit_turn(&arriving).await {
                Err(error) if self.is_accepted(&error) => commit_without_lock(&*self.inner, &arriving).await,
                answer => answer,
            }
        };
        // The commit itself was recorded above, once: a copy of the turn may be on its way again by now.
        match &answer {
            Ok(()) => scenario.records().recorder.turn_answered(commit),
            Err(error) if !error.is_retryable() => scenario.records().recorder.turn_refused(commit),
            Err(_) => {}
        }
        answer
    }

    fn supports(&self, feature: Feature) -> bool {
        self.inner.supports(feature)
    }

    async fn commit_step(&self, step: &StepCommit) -> Result<StepAnswer, ProviderError> {
        let scenario = &self.scenario;
        let freezes = self.process.freezes();
        let mut arriving = step.clone();
        arriving.turn = scenario.arriving(arriving.turn);
        let called = scenario.moment();
        scenario.records().recorder.step_sent(step, called);
        let (seen, sent, check_in) = (Arc::clone(scenario), step.clone(), arriving.turn.check_in.take());
        arriving.turn.check_in = Some(Arc::new(move || {
            seen.step_committed(&sent);
            if let Some(check_in) = &check_in {
                check_in();
            }
        }));
        let answer = self.inner.commit_step(&arriving).await;
        match &answer {
            Ok(StepAnswer::Committed(next)) => {
                scenario.records().recorder.turn_answered(&step.turn);
                for (work, ended) in next.iter().zip(&step.ended) {
                    if let (Some(work), Some(next)) = (work, &ended.next)
                        && !scenario.records().recorder.has_lock(&work.lock_token)
                    {
                        self.record_work(work, &next.fetch, freezes);
                    }
                }
            }
            Ok(StepAnswer::Declined(_)) => scenario.records().recorder.turn_refused(&step.turn),
            Err(error) if !error.is_retryable() => scenario.records().recorder.turn_refused(&step.turn),
            Err(_) => {}
        }
        answer
    }

    async fn abandon_turn(&self, abandon: &TurnAbandon) -> Result<(), ProviderError> {
        self.abandon(&abandon.lock_token, self.inner.abandon_turn(abandon)).await
    }

    async fn fetch_work(&self, fetch: &WorkFetch) -> Result<Vec<FetchedWork>, ProviderError> {
        let freezes = self.process.freezes();
        let work = self.inner.fetch_work(fetch).await?;
        for work in &work {
            self.record_work(work, fetch, freezes);
            if self.scenario.has_bug(StoreBug::OffersLockedRows) {
                // A lock that has ended already need not be released.
                drop(self.inner.settle_work(&Settlement::abandon(&work.lock_token, None, true)).await);
            }
        }
        Ok(work)
    }

    async fn settle_work(&self, settlement: &Settlement) -> Result<(), ProviderError> {
        match &settlement.kind {
            SettlementKind::End { completion } => self.end_work(settlement, completion.as_ref()).await,
            _ => self.abandon(&settlement.lock_token, self.inner.settle_work(settlement)).await,
        }
    }

    async fn renew(&self, renewal: &Renewal) -> Result<Renewed, ProviderError> {
        let (scenario, called) = (&self.scenario, self.scenario.moment());
        scenario.records().recorder.renewals_sent(&renewal.locks, called);
        let mut renewed = self.inner.renew(renewal).await?;
        for answer in &mut renewed.locks {
            if answer.as_ref().is_err_and(|error| self.is_accepted(error)) {
                *answer = Ok(());
            }
        }
        let (at, clock) = (scenario.moment(), &scenario.store_clock);
        let locks: Vec<bool> = renewed.locks.iter().map(Result::is_ok).collect();
        let mut records = scenario.records();
        records.recorder.renewed(&renewal.locks, &locks, called, at);
        if let Some(sessions) = &renewal.sessions {
            records.recorder.sessions.renewed(sessions, called, at, clock, self.holder().as_ref());
        }
        drop(records);
        Ok(renewed)
    }

    async fn submit(&self, submission: &Submission) -> Result<Vec<Receipt>, ProviderError> {
        let answer = if self.scenario.has_bug(StoreBug::LosesMessages) {
            Ok(vec![Receipt::Queued; submission.messages.len()])
        } else {
            self.inner.submit(submission).await
        };
        if let Ok(receipts) = &answer {
            let mut records = self.scenario.records();
            for (message, receipt) in submission.messages.iter().zip(receipts) {
                // A dropped message was for an instance that does not exist.
                if *receipt != Receipt::Dropped {
                    records.recorder.deliveries.acknowledged(&message.item);
                }
            }
        }
        answer
    }

    fn raw_writes(&self) -> Option<&dyn RawWrites> {
        self.scenario.violated("the engine asked for writes that bypass it".to_owned());
        None
    }
}
