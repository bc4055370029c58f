//! A store that fails on purpose.

mod batch;
mod batch_fates;
mod batched_admin;
mod batched_verbs;
mod call_faults;
mod parked;

use std::fmt::Write as _;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use everturn_core::{Event, WorkItem, kind_of};
use everturn_provider::store::{
    Feature, FetchedTurn, FetchedWork, Receipt, Renewal, Renewed, Settlement, SettlementKind, StepAnswer,
    StepCommit, Store, StoreLayer, Submission, Sweep, Swept, TurnAbandon, TurnCommit, TurnFetch, WorkFetch,
};
use everturn_provider::{Clock, MemoryProvider, ProviderError};

use crate::process::Process;
use batch::BatchedMemory;
use call_faults::FaultyCalls;

pub use batch_fates::{BatchFate, BatchFates, LostBatch, NoLoss, Unanswered};
pub use call_faults::{CallFaults, CallKind};

/// A store that fails on purpose.
///
/// It has three kinds of fault:
///
/// - *Batches* ([`in_batches`](Self::in_batches)): a store in memory commits calls together and can lose a batch. Turns
///   that began before the commit have void locks then.
/// - *Calls* ([`with_call_faults`](Self::with_call_faults)): the calls of one process fail before or after they took
///   effect, take time, take effect late, or freeze or kill the process. Any store can be wrapped.
/// - *Damage* ([`memory`](Self::memory)): records of a store in memory become unreadable.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use everturn_provider::ManualClock;
/// use everturn_simulation::{FaultyStore, NoLoss};
///
/// let clock = Arc::new(ManualClock::new(1_000));
/// let store = FaultyStore::in_batches(clock, Duration::from_millis(1), Arc::new(NoLoss));
/// ```
pub struct FaultyStore {
    inner: Arc<dyn Store>,
    memory: Option<Arc<MemoryProvider>>,
    calls: Option<FaultyCalls>,
}

impl FaultyStore {
    /// A store in memory that goes by this clock and commits each call by itself.
    pub fn in_memory(clock: Arc<dyn Clock>) -> Self {
        let memory = Arc::new(MemoryProvider::with_clock(clock));
        Self { inner: Arc::clone(&memory) as Arc<dyn Store>, memory: Some(memory), calls: None }
    }

    /// A store in memory that commits calls together, as a store does for which a commit is expensive.
    ///
    /// The first call that changes something opens a batch, which is committed `window` later; with a window of zero,
    /// tasks that are ready still join. Calls are answered after the commit, except that a turn of an instance that its
    /// runtime keeps in memory may begin before. `fates` decides which batches are lost.
    pub fn in_batches(clock: Arc<dyn Clock>, window: Duration, fates: Arc<dyn BatchFates>) -> Self {
        let memory = Arc::new(MemoryProvider::with_clock(Arc::clone(&clock)));
        let batched = BatchedMemory::new(Arc::clone(&memory), clock, window, fates);
        Self { inner: Arc::new(batched), memory: Some(memory), calls: None }
    }

    /// Wraps any store; it has no faults yet.
    pub fn around(store: Arc<dyn Store>) -> Self {
        Self { inner: store, memory: None, calls: None }
    }

    /// Adds faults to the calls of this process. `stall` is how long a stalled call or a frozen process waits: longer than
    /// its locks last.
    #[must_use]
    pub fn with_call_faults(
        mut self,
        process: Arc<Process>,
        stall: Duration,
        faults: Arc<dyn CallFaults>,
    ) -> Self {
        self.calls = Some(FaultyCalls { process, stall, faults });
        self
    }

    /// The tables of a store in memory, committed or not: to be damaged and inspected through
    /// [`TableAccess`](everturn_provider::testing::TableAccess). `None` for a wrapped store.
    pub fn memory(&self) -> Option<&MemoryProvider> {
        self.memory.as_deref()
    }
}

impl StoreLayer for FaultyStore {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    /// All reads.
    async fn around<T: Send>(
        &self,
        verb: &'static str,
        call: impl Future<Output = Result<T, ProviderError>> + Send,
    ) -> Result<T, ProviderError> {
        match &self.calls {
            Some(calls) => calls.call(CallKind::Read, verb, "", call).await,
            None => call.await,
        }
    }

    async fn fetch_turns(&self, fetch: &TurnFetch) -> Result<Vec<FetchedTurn>, ProviderError> {
        const VERB: &str = "fetch_turns";
        let Some(calls) = &self.calls else { return self.inner.fetch_turns(fetch).await };
        let fault = calls.before(CallKind::Write, VERB, "").await?;
        let turns = calls.process.run(self.inner.fetch_turns(fetch)).await?;
        if !turns.is_empty() {
            calls.after(fault, VERB, &subject_of_turns(&turns), None).await?;
        }
        Ok(turns)
    }

    async fn commit_turn(&self, commit: &TurnCommit) -> Result<(), ProviderError> {
        let Some(calls) = &self.calls else { return self.inner.commit_turn(commit).await };
        calls.faults.turn_decided(commit, &[&commit.lock_token]);
        let last = commit.history_delta.last().map_or(0, Event::event_id);
        let subject = format!("{} x{} up to {last}", commit.lock_token, commit.execution_id);
        let (inner, commit) = (Arc::clone(&self.inner), commit.clone());
        let effect = async move { inner.commit_turn(&commit).await };
        calls.send(CallKind::Sent, "commit_turn", &subject, effect).await
    }

    fn supports(&self, feature: Feature) -> bool {
        self.inner.supports(feature)
    }

    async fn commit_step(&self, step: &StepCommit) -> Result<StepAnswer, ProviderError> {
        let Some(calls) = &self.calls else { return self.inner.commit_step(step).await };
        let tokens: Vec<&str> = step.ended.iter().map(|ended| ended.lock_token.as_str()).collect();
        calls.faults.turn_decided(&step.turn, &tokens);
        let last = step.turn.history_delta.last().map_or(0, Event::event_id);
        let subject = format!("{} x{} up to {last} {tokens:?}", step.instance, step.turn.execution_id);
        let (inner, step) = (Arc::clone(&self.inner), step.clone());
        let effect = async move { inner.commit_step(&step).await };
        calls.send(CallKind::Step, "commit_step", &subject, effect).await
    }

    async fn abandon_turn(&self, abandon: &TurnAbandon) -> Result<(), ProviderError> {
        let Some(calls) = &self.calls else { return self.inner.abandon_turn(abandon).await };
        let call = self.inner.abandon_turn(abandon);
        calls.call(CallKind::Write, "abandon_turn", &abandon.lock_token, call).await
    }

    async fn fetch_work(&self, fetch: &WorkFetch) -> Result<Vec<FetchedWork>, ProviderError> {
        const VERB: &str = "fetch_work";
        let Some(calls) = &self.calls else { return self.inner.fetch_work(fetch).await };
        let fault = calls.before(CallKind::Write, VERB, "").await?;
        let work = calls.process.run(self.inner.fetch_work(fetch)).await?;
        if !work.is_empty() {
            calls.after(fault, VERB, &subject_of_work(&work), None).await?;
        }
        Ok(work)
    }

    async fn settle_work(&self, settlement: &Settlement) -> Result<(), ProviderError> {
        const VERB: &str = "settle_work";
        let Some(calls) = &self.calls else { return self.inner.settle_work(settlement).await };
        if matches!(settlement.kind, SettlementKind::Abandon { .. }) {
            let subject = format!("abandon {}", settlement.lock_token);
            return calls.call(CallKind::Write, VERB, &subject, self.inner.settle_work(settlement)).await;
        }
        let (inner, settlement) = (Arc::clone(&self.inner), settlement.clone());
        let subject = settlement.lock_token.clone();
        let effect = async move { inner.settle_work(&settlement).await };
        calls.send(CallKind::Outcome, VERB, &subject, effect).await
    }

    async fn renew(&self, renewal: &Renewal) -> Result<Renewed, ProviderError> {
        const VERB: &str = "renew";
        let Some(calls) = &self.calls else { return self.inner.renew(renewal).await };
        let fault = calls.before(CallKind::Write, VERB, "").await?;
        let answer = self.inner.renew(renewal).await.map_err(|error| calls.faults.error_of(VERB, error));
        let subject = match &answer {
            Ok(renewed) => {
                let locks: Vec<bool> = renewed.locks.iter().map(Result::is_ok).collect();
                format!("{locks:?} {} sessions", renewed.sessions)
            }
            Err(_) => String::new(),
        };
        calls.after(fault, VERB, &subject, answer.as_ref().err()).await?;
        answer
    }

    async fn submit(&self, submission: &Submission) -> Result<Vec<Receipt>, ProviderError> {
        let Some(calls) = &self.calls else { return self.inner.submit(submission).await };
        let (inner, submission) = (Arc::clone(&self.inner), submission.clone());
        let subject = subject_of_messages(&submission);
        let effect = async move { inner.submit(&submission).await };
        calls.send(CallKind::Sent, "submit", &subject, effect).await
    }

    async fn sweep(&self, sweep: &Sweep) -> Result<Swept, ProviderError> {
        let Some(calls) = &self.calls else { return self.inner.sweep(sweep).await };
        calls.call(CallKind::Write, "sweep", "", self.inner.sweep(sweep)).await
    }
}

fn subject_of_turns(turns: &[FetchedTurn]) -> String {
    let mut subject = String::new();
    for FetchedTurn { item, lock_token, warm, .. } in turns {
        let heat = if warm.is_some() { "warm" } else { "cold" };
        let (instance, execution_id, messages) = (&item.instance, item.execution_id, item.messages.len());
        // Writing into a text cannot fail.
        let _ = write!(subject, "{instance} x{execution_id} {heat} {messages} messages {lock_token} ");
    }
    subject
}

fn subject_of_work(work: &[FetchedWork]) -> String {
    let mut subject = String::new();
    for FetchedWork { item, lock_token, .. } in work {
        if let WorkItem::ActivityExecute { instance, execution_id, id, .. } = item {
            // Writing into a text cannot fail.
            let _ = write!(subject, "{instance} x{execution_id} #{id} ");
        }
        subject.push_str(lock_token);
    }
    subject
}

fn subject_of_messages(submission: &Submission) -> String {
    let messages = submission.messages.iter().map(|message| &message.item);
    messages.map(|item| format!("{} {}", kind_of(item), item.instance())).collect::<Vec<_>>().join(", ")
}
