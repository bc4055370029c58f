//! The store as one process sees it: calls fail, take their time, come late, and kill.

use std::collections::HashMap;
use std::future::{Future, pending};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use everturn::providers::{
    Clock as _, DispatcherCapabilityFilter, ExecutionMetadata, FetchedTurn, InstanceWatch, LockKind,
    LockRenewal, OrchestrationItem, Provider, ProviderAdmin, ProviderError, ScheduledActivityIdentifier,
    SessionFetchConfig, TagFilter, TurnCommit, WarmView, WorkItem,
};
use everturn::{Event, OrchestrationStatus, SystemStats};
use tokio::time::{Instant, sleep};

use crate::life::Life;
use crate::sabotage::{Sabotage, force};
use crate::scene::Scene;
use crate::sessions::Renewal;
use crate::sim_clock::SimClock;
use crate::store::Standing;
use crate::weather::{Call, Fault};

/// How much later than its answer a call takes effect, at most.
const LATE_MS_MAX: u64 = 1_500;

/// Who calls.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) name: String,
    /// The clock of its machine, if it is a node: only nodes die.
    pub(crate) clock: Option<Arc<SimClock>>,
    /// How long this process stands still when it freezes, and a call when it stalls: longer than its locks last.
    pub(crate) freeze_ms: u64,
}

/// Which provider a process uses.
pub(crate) enum Seat {
    /// Its own, as long as it lives.
    Own(Arc<dyn Provider>),
    /// The one that clients use at the time: they outlive every power cut.
    Clients,
}

/// The store as one process sees it.
pub(crate) struct StormyStore {
    scene: Arc<Scene>,
    caller: Caller,
    life: Arc<Life>,
    seat: Seat,
}

impl StormyStore {
    pub(crate) fn new(scene: Arc<Scene>, caller: Caller, life: Arc<Life>, seat: Seat) -> Self {
        Self { scene, caller, life, seat }
    }

    fn inner(&self) -> Arc<dyn Provider> {
        match &self.seat {
            Seat::Own(provider) => Arc::clone(provider),
            Seat::Clients => self.scene.clients_provider(),
        }
    }

    /// An error as the caller hears it: who loses its provider by a power cut may try again.
    fn heard(&self, name: &str, provider: &Arc<dyn Provider>, error: ProviderError) -> ProviderError {
        if self.scene.is_dark() || !Arc::ptr_eq(provider, &self.inner()) {
            return ProviderError::retryable(name, "the power failed");
        }
        error
    }

    /// Makes a call, with whatever goes wrong around it. `seen` is told of the answer in the moment it is true.
    async fn call<T>(
        &self,
        provider: &Arc<dyn Provider>,
        call: Call,
        name: &'static str,
        subject: &str,
        inner: impl Future<Output = Result<T, ProviderError>>,
        seen: impl FnOnce(&T),
    ) -> Result<T, ProviderError> {
        let fault = self.before(call, name, subject).await?;
        let answer = inner.await.map_err(|error| self.heard(name, provider, error));
        if let Ok(answer) = &answer {
            seen(answer);
        }
        self.after(fault, name, subject, answer.as_ref().err()).await?;
        answer
    }

    /// What is true of a lock that was just handed out to a process that had stood still so often before.
    fn standing(&self, kind: LockKind, token: &str, freezes: usize) -> Standing {
        match self.scene.store.standing(kind, token) {
            // Nobody knows how long the answer waited for the process, and how much is left.
            Standing::HeldUntil { .. } if freezes != self.life.freezes() => {
                Standing::HeldUntil { until_ms: 0 }
            }
            standing => standing,
        }
    }

    /// Gives a lock back.
    async fn abandon(
        &self,
        provider: &Arc<dyn Provider>,
        name: &'static str,
        token: &str,
        inner: impl Future<Output = Result<(), ProviderError>>,
    ) -> Result<(), ProviderError> {
        let inner = async {
            let called = self.scene.moment();
            self.scene.books().observer.lets_go(token, called);
            match inner.await {
                Err(error) if is_let_pass(&self.scene, &error) => Ok(()),
                answer => answer,
            }
        };
        let seen = |(): &()| {
            let moment = self.scene.moment();
            self.scene.books().observer.abandoned(token, moment);
        };
        self.call(provider, Call::Write, name, token, inner, seen).await
    }

    /// What happens before a call; the fault that is to follow it, or the error that comes in its place.
    async fn before(
        &self,
        call: Call,
        name: &'static str,
        subject: &str,
    ) -> Result<Option<Fault>, ProviderError> {
        self.life.go_on().await;
        let (fault, delay_ms) = {
            let mut books = self.scene.books();
            (books.sky.fault_for(call, self.caller.clock.is_some()), books.sky.delay_ms())
        };
        if let Some(delay_ms) = delay_ms {
            take(delay_ms).await;
            self.life.go_on().await;
        }
        match fault {
            Some(Fault::ErrorBefore) => {
                self.fault(Fault::ErrorBefore, name, subject);
                return Err(ProviderError::retryable(name, "injected before the call"));
            }
            Some(Fault::Refusal) => {
                self.fault(Fault::Refusal, name, subject);
                return Err(ProviderError::permanent(name, "injected for good"));
            }
            Some(Fault::CrashBefore) => {
                self.fault(Fault::CrashBefore, name, subject);
                self.life.die();
                return pending().await;
            }
            Some(Fault::StallBefore) => {
                self.fault(Fault::StallBefore, name, subject);
                sleep(Duration::from_millis(self.caller.freeze_ms)).await;
                self.life.go_on().await;
            }
            Some(Fault::Freeze) => {
                self.fault(Fault::Freeze, name, subject);
                self.life.freeze(Instant::now() + Duration::from_millis(self.caller.freeze_ms));
                self.life.go_on().await;
            }
            _ => {}
        }
        Ok(fault)
    }

    /// What happens after a call.
    async fn after(
        &self,
        fault: Option<Fault>,
        name: &'static str,
        subject: &str,
        error: Option<&ProviderError>,
    ) -> Result<(), ProviderError> {
        match error {
            None => self.scene.note(format_args!("{} {name} {subject}", self.caller.name)),
            Some(error) => self.scene.note(format_args!("{} {name} {subject}: {error}", self.caller.name)),
        }
        if fault == Some(Fault::CrashAfter) {
            self.fault(Fault::CrashAfter, name, subject);
            self.life.die();
        }
        self.life.go_on().await;
        if fault == Some(Fault::ErrorAfter) && error.is_none() {
            self.fault(Fault::ErrorAfter, name, subject);
            return Err(ProviderError::retryable(name, "injected after the call"));
        }
        if fault == Some(Fault::StallAfter) {
            self.fault(Fault::StallAfter, name, subject);
            sleep(Duration::from_millis(self.caller.freeze_ms)).await;
            self.life.go_on().await;
        }
        let delay_ms = self.scene.books().sky.delay_ms();
        if let Some(delay_ms) = delay_ms {
            take(delay_ms).await;
            self.life.go_on().await;
        }
        Ok(())
    }

    /// There are calls for other users of providers, which the engine has no business to make.
    fn nobodys<T>(&self, name: &'static str) -> Result<T, ProviderError> {
        self.scene.violated(format!("{} called {name}, which the engine does not use", self.caller.name));
        Err(ProviderError::permanent(name, "the engine does not use this"))
    }

    fn fault(&self, fault: Fault, name: &str, subject: &str) {
        self.scene.fault(fault, format_args!("{} {name} {subject}", self.caller.name));
    }

    /// Has something take effect later, whatever becomes of this process; the caller hears of an error.
    fn send_late<T>(
        &self,
        name: &'static str,
        subject: &str,
        effect: impl Future<Output = Result<(), ProviderError>> + Send + 'static,
    ) -> Result<T, ProviderError> {
        self.fault(Fault::Late, name, subject);
        let (scene, subject) = (Arc::clone(&self.scene), subject.to_owned());
        let (under_way, wait) = (scene.begin(), scene.some_ms(0, LATE_MS_MAX));
        tokio::spawn(async move {
            sleep(wait).await;
            let answer = effect.await;
            scene.note(format_args!("late {name} {subject}: {answer:?}"));
            drop(under_way);
        });
        Err(ProviderError::retryable(name, "injected: no answer"))
    }
}

/// Lets time pass; none of it is at least everybody else's turn.
async fn take(delay_ms: u64) {
    match delay_ms {
        0 => tokio::task::yield_now().await,
        _ => sleep(Duration::from_millis(delay_ms)).await,
    }
}

/// Whether the store carries out what it refused for its lock.
fn is_let_pass(scene: &Scene, error: &ProviderError) -> bool {
    error.is_lock_lost() && scene.is_spoilt(Sabotage::AcceptsAnyToken)
}

async fn commit(
    scene: Arc<Scene>,
    provider: Arc<dyn Provider>,
    commit: TurnCommit,
) -> Result<(), ProviderError> {
    if scene.is_spoilt(Sabotage::RunsAhead) {
        for item in commit.worker_items.clone() {
            provider.enqueue_for_worker(item).await?;
        }
        return Err(ProviderError::retryable("commit_turn", "sabotaged"));
    }
    let mut arriving = scene.arriving(commit.clone());
    let called = scene.moment();
    scene.books().observer.turn_sent(&commit, called);
    // The moment it is durable others may go on with it, long before its own caller hears of it, if ever.
    let (seen, sent, check_in) = (Arc::clone(&scene), commit.clone(), arriving.check_in.take());
    arriving.check_in = Some(Arc::new(move || {
        seen.committed(&sent);
        if let Some(check_in) = &check_in {
            check_in();
        }
    }));
    let answer = if scene.is_spoilt(Sabotage::AnswersLostCommits) {
        Ok(())
    } else {
        match provider.commit_turn(&arriving).await {
            Err(error) if is_let_pass(&scene, &error) => force(&*provider, &arriving).await,
            answer => answer,
        }
    };
    // That it is committed was seen above, once: a copy of it may be on its way again by now.
    match &answer {
        Ok(()) => scene.books().observer.turn_answered(&commit),
        Err(error) if !error.is_retryable() => scene.books().observer.turn_refused(&commit),
        Err(_) => {}
    }
    answer
}

async fn ack(
    scene: Arc<Scene>,
    provider: Arc<dyn Provider>,
    token: String,
    completion: Option<WorkItem>,
) -> Result<(), ProviderError> {
    let mut arriving = completion.clone();
    if scene.is_spoilt(Sabotage::ChangesOutcomes)
        && let Some(WorkItem::ActivityCompleted { result, .. }) = &mut arriving
    {
        result.push('!');
    }
    let called = scene.moment();
    scene.books().observer.outcome_sent(completion.as_ref());
    let answer = if scene.is_spoilt(Sabotage::AnswersLostCommits) {
        Ok(())
    } else {
        match (provider.ack_work_item(&token, arriving).await, completion.clone()) {
            (Err(error), Some(outcome)) if is_let_pass(&scene, &error) => {
                provider.enqueue_for_orchestrator(outcome, None).await
            }
            (answer, _) => answer,
        }
    };
    if answer.is_ok() {
        let moment = scene.moment();
        scene.books().observer.work_acked(&token, completion.as_ref(), called, moment);
    }
    answer
}

async fn enqueue(
    scene: Arc<Scene>,
    provider: Arc<dyn Provider>,
    item: WorkItem,
    delay: Option<Duration>,
) -> Result<(), ProviderError> {
    let answer = if scene.is_spoilt(Sabotage::LosesMessages) {
        Ok(())
    } else {
        provider.enqueue_for_orchestrator(item.clone(), delay).await
    };
    if answer.is_ok() {
        scene.books().observer.deliveries.told(&item);
    }
    answer
}

#[async_trait]
impl Provider for StormyStore {
    fn name(&self) -> &str {
        "stormy"
    }

    async fn fetch_orchestration_item(
        &self,
        _lock_timeout: Duration,
        _poll_timeout: Duration,
        _filter: Option<&DispatcherCapabilityFilter>,
    ) -> Result<Option<(OrchestrationItem, String, u32)>, ProviderError> {
        self.nobodys("fetch_orchestration_item")
    }

    async fn ack_orchestration_item(
        &self,
        _lock_token: &str,
        _execution_id: u64,
        _history_delta: Vec<Event>,
        _worker_items: Vec<WorkItem>,
        _orchestrator_items: Vec<WorkItem>,
        _metadata: ExecutionMetadata,
        _cancelled_activities: Vec<ScheduledActivityIdentifier>,
    ) -> Result<(), ProviderError> {
        self.nobodys("ack_orchestration_item")
    }

    async fn abandon_orchestration_item(
        &self,
        token: &str,
        delay: Option<Duration>,
        ignore_attempt: bool,
    ) -> Result<(), ProviderError> {
        let provider = self.inner();
        let inner = provider.abandon_orchestration_item(token, delay, ignore_attempt);
        self.abandon(&provider, "abandon_orchestration_item", token, inner).await
    }

    async fn read(&self, instance: &str) -> Result<Vec<Event>, ProviderError> {
        let provider = self.inner();
        let inner = provider.read(instance);
        self.call(&provider, Call::Read, "read", instance, inner, |_| {}).await
    }

    async fn read_with_execution(
        &self,
        instance: &str,
        execution_id: u64,
    ) -> Result<Vec<Event>, ProviderError> {
        let provider = self.inner();
        let inner = provider.read_with_execution(instance, execution_id);
        self.call(&provider, Call::Read, "read_with_execution", instance, inner, |_| {}).await
    }

    async fn append_with_execution(
        &self,
        _instance: &str,
        _execution_id: u64,
        _new_events: Vec<Event>,
    ) -> Result<(), ProviderError> {
        self.nobodys("append_with_execution")
    }

    async fn enqueue_for_worker(&self, _item: WorkItem) -> Result<(), ProviderError> {
        self.nobodys("enqueue_for_worker")
    }

    async fn fetch_work_item(
        &self,
        lock_timeout: Duration,
        poll_timeout: Duration,
        session: Option<&SessionFetchConfig>,
        tag_filter: &TagFilter,
    ) -> Result<Option<(WorkItem, String, u32)>, ProviderError> {
        const NAME: &str = "fetch_work_item";
        let fault = self.before(Call::Write, NAME, "").await?;
        let provider = self.inner();
        let fetch = provider.fetch_work_item(lock_timeout, poll_timeout, session, tag_filter);
        let freezes = self.life.freezes();
        let fetched = self.life.waiting(fetch).await?;
        let Some((item, token, _)) = &fetched else { return Ok(None) };
        let (scene, moment) = (&self.scene, self.scene.moment());
        let standing = self.standing(LockKind::WorkItem, token, freezes);
        let clock = &scene.store_clock;
        scene.books().observer.work_fetched(item, token, lock_timeout, moment, clock, standing);
        if scene.is_spoilt(Sabotage::HandsOutLocked) {
            // If the lock has ended already there is nothing to spoil.
            drop(provider.abandon_work_item(token, None, true).await);
        }
        if let (WorkItem::ActivityExecute { session_id: Some(session_id), .. }, Some(config)) =
            (item, session)
        {
            let is_fresh = standing != Standing::Void && freezes == self.life.freezes();
            scene.books().observer.session_fetched(session_id, config, moment, clock, is_fresh);
        }
        let subject = match item {
            WorkItem::ActivityExecute { instance, execution_id, id, .. } => {
                format!("{instance} x{execution_id} #{id} {token}")
            }
            _ => token.clone(),
        };
        self.after(fault, NAME, &subject, None).await?;
        Ok(fetched)
    }

    async fn ack_work_item(&self, token: &str, completion: Option<WorkItem>) -> Result<(), ProviderError> {
        const NAME: &str = "ack_work_item";
        let fault = self.before(Call::Outcome, NAME, token).await?;
        let provider = self.inner();
        let effect = ack(Arc::clone(&self.scene), Arc::clone(&provider), token.to_owned(), completion);
        if fault == Some(Fault::Late) {
            return self.send_late(NAME, token, effect);
        }
        let answer = effect.await.map_err(|error| self.heard(NAME, &provider, error));
        self.after(fault, NAME, token, answer.as_ref().err()).await?;
        answer
    }

    async fn renew_work_item_lock(&self, token: &str, extend_for: Duration) -> Result<(), ProviderError> {
        let renewal = LockRenewal { kind: LockKind::WorkItem, token: token.to_owned(), extend_for };
        self.renew_locks(&[renewal]).await.pop().unwrap_or(Ok(()))
    }

    async fn renew_session_lock(
        &self,
        owner_ids: &[&str],
        extend_for: Duration,
        idle_timeout: Duration,
    ) -> Result<usize, ProviderError> {
        let provider = self.inner();
        let inner = async {
            let called = self.scene.moment();
            let renewed = provider.renew_session_lock(owner_ids, extend_for, idle_timeout).await?;
            let (at, clock) = (self.scene.moment(), &self.scene.store_clock);
            let renewal = Renewal { owner_ids, extend_for, idle_timeout, called };
            self.scene.books().observer.sessions.renewed(&renewal, at, clock);
            Ok(renewed)
        };
        self.call(&provider, Call::Write, "renew_session_lock", "", inner, |_| {}).await
    }

    async fn cleanup_orphaned_sessions(&self, idle_timeout: Duration) -> Result<usize, ProviderError> {
        let provider = self.inner();
        let inner = provider.cleanup_orphaned_sessions(idle_timeout);
        self.call(&provider, Call::Write, "cleanup_orphaned_sessions", "", inner, |_| {}).await
    }

    async fn abandon_work_item(
        &self,
        token: &str,
        delay: Option<Duration>,
        ignore_attempt: bool,
    ) -> Result<(), ProviderError> {
        let provider = self.inner();
        let inner = provider.abandon_work_item(token, delay, ignore_attempt);
        self.abandon(&provider, "abandon_work_item", token, inner).await
    }

    async fn renew_orchestration_item_lock(
        &self,
        token: &str,
        extend_for: Duration,
    ) -> Result<(), ProviderError> {
        let renewal = LockRenewal { kind: LockKind::Orchestration, token: token.to_owned(), extend_for };
        self.renew_locks(&[renewal]).await.pop().unwrap_or(Ok(()))
    }

    async fn enqueue_for_orchestrator(
        &self,
        item: WorkItem,
        delay: Option<Duration>,
    ) -> Result<(), ProviderError> {
        const NAME: &str = "enqueue_for_orchestrator";
        let subject = format!("{} {}", everturn::runtime::kind_of(&item), item.instance());
        let fault = self.before(Call::Sent, NAME, &subject).await?;
        let provider = self.inner();
        let effect = enqueue(Arc::clone(&self.scene), Arc::clone(&provider), item, delay);
        if fault == Some(Fault::Late) {
            return self.send_late(NAME, &subject, effect);
        }
        let answer = effect.await.map_err(|error| self.heard(NAME, &provider, error));
        self.after(fault, NAME, &subject, answer.as_ref().err()).await?;
        answer
    }

    fn as_management_capability(&self) -> Option<&dyn ProviderAdmin> {
        match &self.seat {
            Seat::Own(provider) => provider.as_management_capability(),
            Seat::Clients => None,
        }
    }

    async fn get_custom_status(
        &self,
        instance: &str,
        last_seen_version: u64,
    ) -> Result<Option<(Option<String>, u64)>, ProviderError> {
        let provider = self.inner();
        let inner = provider.get_custom_status(instance, last_seen_version);
        self.call(&provider, Call::Read, "get_custom_status", instance, inner, |_| {}).await
    }

    async fn get_kv_value(&self, instance: &str, key: &str) -> Result<Option<String>, ProviderError> {
        let provider = self.inner();
        let inner = provider.get_kv_value(instance, key);
        self.call(&provider, Call::Read, "get_kv_value", instance, inner, |_| {}).await
    }

    async fn get_kv_all_values(&self, instance: &str) -> Result<HashMap<String, String>, ProviderError> {
        let provider = self.inner();
        let inner = provider.get_kv_all_values(instance);
        self.call(&provider, Call::Read, "get_kv_all_values", instance, inner, |_| {}).await
    }

    async fn get_instance_stats(&self, instance: &str) -> Result<Option<SystemStats>, ProviderError> {
        let provider = self.inner();
        let inner = provider.get_instance_stats(instance);
        self.call(&provider, Call::Read, "get_instance_stats", instance, inner, |_| {}).await
    }

    fn payload_bytes_max(&self) -> usize {
        self.inner().payload_bytes_max()
    }

    fn now_ms(&self) -> u64 {
        match &self.caller.clock {
            Some(clock) if self.scene.is_spoilt(Sabotage::TellsNodeTime) => clock.wall_ms(),
            _ => self.inner().now_ms(),
        }
    }

    async fn fetch_turn(
        &self,
        lock_timeout: Duration,
        poll_timeout: Duration,
        filter: Option<&DispatcherCapabilityFilter>,
        warm: Arc<dyn WarmView>,
    ) -> Result<Option<FetchedTurn>, ProviderError> {
        const NAME: &str = "fetch_turn";
        let fault = self.before(Call::Write, NAME, "").await?;
        let provider = self.inner();
        let fetch = provider.fetch_turn(lock_timeout, poll_timeout, filter, warm);
        let (freezes, called) = (self.life.freezes(), self.scene.moment());
        let fetched = self.life.waiting(fetch).await?;
        let Some(turn) = &fetched else { return Ok(None) };
        let (moment, token) = (self.scene.moment(), turn.lock_token.as_str());
        let standing = self.standing(LockKind::Orchestration, token, freezes);
        self.scene.forget_void_locks();
        let clock = &self.scene.store_clock;
        // Who stood still does not know for how long the answer has been there.
        let handed_out = if freezes == self.life.freezes() { moment } else { called };
        let moments = (handed_out, moment);
        self.scene.books().observer.turn_fetched(turn, lock_timeout, moments, clock, standing);
        let heat = if turn.warm.is_some() { "warm" } else { "cold" };
        let (instance, messages) = (&turn.item.instance, turn.item.messages.len());
        let subject = format!("{instance} x{} {heat} {messages} messages {token}", turn.item.execution_id);
        if standing == Standing::Void && turn.warm.is_some() && freezes == self.life.freezes() {
            // It was answered before its batch was committed, and then the batch was lost.
            self.fault(Fault::LostTurn, NAME, &subject);
        }
        let token = token.to_owned();
        if self.scene.is_spoilt(Sabotage::HandsOutLocked) {
            // If the lock has ended already there is nothing to spoil.
            drop(provider.abandon_orchestration_item(&token, None, true).await);
        }
        self.after(fault, NAME, &subject, None).await?;
        Ok(fetched)
    }

    async fn commit_turn(&self, turn: &TurnCommit) -> Result<(), ProviderError> {
        const NAME: &str = "commit_turn";
        let last = turn.history_delta.last().map_or(0, Event::event_id);
        let subject = format!("{} x{} up to {last}", turn.lock_token, turn.execution_id);
        let ready = self.scene.moment();
        self.scene.books().observer.turn_ready(turn, ready, &self.scene.store_clock);
        let fault = self.before(Call::Sent, NAME, &subject).await?;
        let provider = self.inner();
        let effect = commit(Arc::clone(&self.scene), Arc::clone(&provider), turn.clone());
        if fault == Some(Fault::Late) {
            return self.send_late(NAME, &subject, effect);
        }
        let answer = effect.await.map_err(|error| self.heard(NAME, &provider, error));
        self.after(fault, NAME, &subject, answer.as_ref().err()).await?;
        answer
    }

    async fn renew_locks(&self, renewals: &[LockRenewal]) -> Vec<Result<(), ProviderError>> {
        const NAME: &str = "renew_locks";
        let failed = |error: ProviderError| renewals.iter().map(|_| Err(error.clone())).collect();
        let fault = match self.before(Call::Write, NAME, "").await {
            Ok(fault) => fault,
            Err(error) => return failed(error),
        };
        let called = self.scene.moment();
        self.scene.books().observer.renewals_sent(renewals, called);
        let mut answers = self.inner().renew_locks(renewals).await;
        for answer in &mut answers {
            if answer.as_ref().is_err_and(|error| is_let_pass(&self.scene, error)) {
                *answer = Ok(());
            }
        }
        let renewed: Vec<bool> = answers.iter().map(Result::is_ok).collect();
        let moment = self.scene.moment();
        self.scene.books().observer.renewed(renewals, &renewed, called, moment);
        match self.after(fault, NAME, &format!("{renewed:?}"), None).await {
            Ok(()) => answers,
            Err(error) => failed(error),
        }
    }

    async fn read_status(&self, instance: &str) -> Result<OrchestrationStatus, ProviderError> {
        let provider = self.inner();
        let inner = provider.read_status(instance);
        self.call(&provider, Call::Read, "read_status", instance, inner, |_| {}).await
    }

    fn watch_instance(&self, instance: &str) -> InstanceWatch {
        self.inner().watch_instance(instance)
    }

    async fn read_orchestration_name(
        &self,
        instance: &str,
    ) -> Result<Option<(String, String)>, ProviderError> {
        let provider = self.inner();
        let inner = provider.read_orchestration_name(instance);
        self.call(&provider, Call::Read, "read_orchestration_name", instance, inner, |_| {}).await
    }
}
