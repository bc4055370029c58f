//! Records every change of the store as it happens, and what violates a guarantee.

mod client_requests;
mod locks;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use everturn::providers::store::{FetchedTurn, LockRenewal, NewWork, StepCommit, TurnCommit};
use everturn::providers::{SessionFetchConfig, WorkItem};
use everturn::{Event, EventKind, RuntimeOptions};

use crate::deliveries::Deliveries;
use crate::interpreter::{Stage, timers_of};
use crate::plan::root_of;
use crate::process::Process;
use crate::sessions::Sessions;
use crate::sim_clock::SimClock;
use crate::turn_trace::TurnTrace;
use crate::world_store::LockState;
use client_requests::requests_of;
use locks::{LockRecord, RecordedLock};

pub(crate) use client_requests::ClientRequest;
pub(crate) use locks::{NewLock, has_ended};

/// An activity: instance, execution, schedule event.
pub(crate) type ActivityKey = (String, u64, u64);

/// The store's clock at some moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WorldTime {
    pub(crate) now_ms: u64,
    /// Its monotonic clock.
    pub(crate) monotonic: Duration,
    /// How often the clock was set until then.
    pub(crate) jumps: usize,
}

/// All histories: by instance, by execution.
pub(crate) type Histories = BTreeMap<String, BTreeMap<u64, Vec<Event>>>;

/// A turn on its way into the store.
#[derive(Debug)]
struct SentTurn {
    commit: TurnCommit,
    /// The step that it is part of, if it was taken without a lock of its instance.
    step: Option<StepCommit>,
    called: WorldTime,
}

impl SentTurn {
    /// The position of its first event, if it has any: instance, execution, number.
    fn position(&self) -> Option<(&str, u64, u64)> {
        let first = self.commit.history_delta.first()?;
        Some((&first.instance_id, self.commit.execution_id, first.event_id))
    }

    /// Whether the store has it.
    fn is_in(&self, stored: &Histories) -> bool {
        let Some((instance, execution_id, _)) = self.position() else { return false };
        let history = stored.get(instance).and_then(|executions| executions.get(&execution_id));
        history.is_some_and(|history| self.commit.history_delta.iter().all(|event| history.contains(event)))
    }
}

/// What happened in a world.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    /// All turns, if they are traced.
    pub(crate) turn_trace: Option<TurnTrace>,
    pub(crate) violations: Vec<String>,
    pub(crate) turns: u64,
    /// How many of them were committed with the activities that caused them.
    pub(crate) fused_steps: u64,
    pub(crate) activities_fetched: u64,
    pub(crate) activity_runs: u64,
    /// Every event that was committed, in the order of commits.
    pub(crate) histories: BTreeMap<(String, u64), Vec<Event>>,
    /// Instances that were started, or that a message of a committed turn is going to start.
    pub(crate) started: BTreeSet<String>,
    /// Roots of which something was taken over so often that it is poisoned: how they end is not predicted.
    pub(crate) worn_out: BTreeSet<String>,
    /// Instances that completed or failed.
    pub(crate) ended: BTreeSet<String>,
    /// When the last of them did, by the monotonic clock.
    pub(crate) last_end: Duration,
    /// When the turn that ended an instance was fetched: messages that were stored after that came too late.
    pub(crate) last_fetched: BTreeMap<String, Duration>,
    /// Messages that the store acknowledged.
    pub(crate) deliveries: Deliveries,
    /// Outcomes of activities that workers committed.
    pub(crate) outcomes: BTreeMap<ActivityKey, WorkItem>,
    /// Outcomes that workers sent, acknowledged or not.
    pub(crate) outcomes_sent: BTreeMap<ActivityKey, Vec<WorkItem>>,
    /// Turns that were sent and may or may not be committed, by stamp.
    sent: BTreeMap<u64, SentTurn>,
    /// The stamps of committed turns.
    landed: BTreeSet<u64>,
    /// What the store's clock showed from the fetch of a turn until it was sent for the first time, by stamp.
    shown: BTreeMap<u64, Vec<RangeInclusive<u64>>>,
    locks: LockRecord,
    pub(crate) sessions: Sessions,
    /// When each timer was sent to the store, and when it is due.
    timers: BTreeMap<ActivityKey, (WorldTime, u64)>,
    dispatched: BTreeSet<ActivityKey>,
    /// Activities that their workers ended.
    settled: BTreeSet<String>,
    withdrawn: BTreeSet<ActivityKey>,
    flaky_attempts: BTreeMap<String, BTreeSet<u64>>,
}

impl Recorder {
    pub(crate) fn violated(&mut self, what: String) {
        // More than a hundred would not help.
        if self.violations.len() < 100 {
            self.violations.push(what);
        }
    }

    fn violated_if(&mut self, violations: impl IntoIterator<Item = String>) {
        for violation in violations {
            self.violated(violation);
        }
    }

    /// A worker got an instance, `given_at` the earliest.
    pub(crate) fn turn_fetched(
        &mut self,
        fetched: &FetchedTurn,
        lock: &NewLock<'_>,
        given_at: WorldTime,
        at: WorldTime,
        clock: &SimClock,
    ) {
        if let Some(trace) = &mut self.turn_trace {
            trace.fetched(fetched);
        }
        let instance = &fetched.item.instance;
        let violations = self.locks.fetched(instance.clone(), lock, at, clock);
        self.violated_if(violations);
        self.note_takeovers(instance, instance, lock);
        if let Some(held) = self.locks.get_mut(&fetched.lock_token) {
            held.given_at = given_at.monotonic;
        }
        self.deliveries.fetched(&fetched.lock_token, &fetched.item.messages);
        for message in &fetched.item.messages {
            let WorkItem::TimerFired { execution_id, id, .. } = message else { continue };
            let key = (instance.clone(), *execution_id, *id);
            let Some((made, due_ms)) = self.timers.get(&key) else {
                self.violated(format!("G6: timer {key:?} came, and no committed turn made it"));
                continue;
            };
            // A timer that was due once stays due, even if the clock was set back since.
            let latest_ms = clock.latest_ms_since(made.monotonic);
            if latest_ms < *due_ms {
                let early_ms = due_ms - latest_ms;
                self.violated(format!("G6: timer {key:?} came {early_ms} ms early"));
            }
        }
    }

    /// An instance, or an activity of one, that was taken over as often as it may be tried is poisoned, rightly. Where the store
    /// answers fetches from another thread, a process may have died after its fetch had locked something and before the answer
    /// came: each attempt that was not seen needs such a death.
    fn note_takeovers(&mut self, what: &str, instance: &str, lock: &NewLock<'_>) {
        let seen = self.locks.takeovers(what);
        let deaths = if lock.holder.is_some() { lock.deaths } else { 0 };
        let not_seen = lock.attempt_count.saturating_sub(1).min(deaths).saturating_sub(seen);
        if seen + not_seen >= RuntimeOptions::default().max_attempts {
            self.worn_out.insert(root_of(instance).to_owned());
        }
    }

    /// A turn has run and is to be committed: everything it decided was decided by now.
    pub(crate) fn turn_decided(
        &mut self,
        commit: &TurnCommit,
        tokens: &[&str],
        called: WorldTime,
        clock: &SimClock,
    ) {
        let locks = tokens.iter().filter_map(|token| self.locks.get(token));
        if let Some(RecordedLock { since, .. }) = locks.min_by_key(|held| held.since.monotonic) {
            let shown = clock.shown_between((since.now_ms, since.jumps), (called.now_ms, called.jumps));
            self.shown.entry(stamp_of(commit)).or_insert(shown);
        }
    }

    /// A turn is on its way into the store.
    pub(crate) fn turn_sent(&mut self, commit: &TurnCommit, called: WorldTime) {
        let mut commit = commit.clone();
        commit.check_in = None;
        self.note_sent(SentTurn { commit, step: None, called });
    }

    /// A turn that is sent again may yet be committed by the first call, which came late.
    fn note_sent(&mut self, sent: SentTurn) {
        let stamp = stamp_of(&sent.commit);
        let called = self.sent.get(&stamp).map_or(sent.called, |earlier| earlier.called);
        self.sent.insert(stamp, SentTurn { called, ..sent });
    }

    /// A fused step is on its way into the store.
    pub(crate) fn step_sent(&mut self, step: &StepCommit, called: WorldTime) {
        for outcome in outcomes_of(step) {
            self.outcome_sent(Some(&outcome));
        }
        let mut step = step.clone();
        step.turn.check_in = None;
        let commit = step.turn.clone();
        self.note_sent(SentTurn { commit, step: Some(step), called });
    }

    /// A turn that was sent will never be in the store.
    pub(crate) fn turn_refused(&mut self, commit: &TurnCommit) {
        self.sent.remove(&stamp_of(commit));
    }

    /// The store acknowledged a turn.
    pub(crate) fn turn_answered(&mut self, commit: &TurnCommit) {
        if !self.landed.contains(&stamp_of(commit)) {
            self.violated(format!("G2: acknowledged, never committed: {commit:?}"));
        }
    }

    /// A turn that was sent is in the store.
    pub(crate) fn turn_landed(&mut self, commit: &TurnCommit, at: WorldTime) -> Vec<ClientRequest> {
        let sent = self.sent.remove(&stamp_of(commit));
        sent.map(|sent| self.turn_committed(&sent, at)).unwrap_or_default()
    }

    /// A fused step that was sent is in the store.
    pub(crate) fn step_landed(
        &mut self,
        step: &StepCommit,
        at: WorldTime,
        clock: &SimClock,
    ) -> Vec<ClientRequest> {
        if self.sent.contains_key(&stamp_of(&step.turn)) {
            let violation = self.locks.used_without_lock(&step.instance, at, clock);
            self.violated_if(violation);
        }
        self.turn_landed(&step.turn, at)
    }

    /// Whether this activity was given to its worker before: a repeated call is answered as the first one was.
    pub(crate) fn has_lock(&self, token: &str) -> bool {
        self.locks.get(token).is_some()
    }

    /// All processes have ended, and this is what is stored. A turn that was sent and never answered may be committed.
    pub(crate) fn power_failed(&mut self, stored: &Histories, at: WorldTime) -> Vec<ClientRequest> {
        let mut sent: Vec<SentTurn> = std::mem::take(&mut self.sent).into_values().collect();
        sent.sort_by(|a, b| a.position().cmp(&b.position()));
        let mut requests = Vec::new();
        for sent in sent {
            let is_known = sent.position().is_some_and(|(instance, execution_id, first)| {
                let known = self.histories.get(&(instance.to_owned(), execution_id));
                known.is_some_and(|known| known.iter().any(|event| event.event_id >= first))
            });
            if !is_known && sent.is_in(stored) {
                requests.extend(self.turn_committed(&sent, at));
            }
        }
        self.locks.clear();
        self.sessions = Sessions::default();
        requests
    }

    /// A turn was committed.
    fn turn_committed(&mut self, sent: &SentTurn, at: WorldTime) -> Vec<ClientRequest> {
        let SentTurn { commit, step, called } = sent;
        self.turns += 1;
        self.landed.insert(stamp_of(commit));
        let shown = self.shown.remove(&stamp_of(commit)).unwrap_or_default();
        let instance = match step {
            Some(step) => {
                self.fused_steps += 1;
                self.end_work_of(step, *called, at);
                // No message waited when the step was committed.
                Some((step.instance.clone(), called.monotonic))
            }
            None => {
                if let Some(trace) = &mut self.turn_trace {
                    trace.committed(commit);
                }
                self.deliveries.taken(&commit.lock_token);
                let (held, violation) = self.locks.unlock(&commit.lock_token, "commit_turn", *called, at);
                self.violated_if(violation);
                held.map(|held| (held.what, held.given_at))
            }
        };
        let Some((instance, given_at)) = instance else { return Vec::new() };
        let execution_id = commit.execution_id;
        for NewWork { item, .. } in &commit.worker_items {
            if let WorkItem::ActivityExecute { instance, execution_id, id, .. } = item {
                self.dispatched.insert((instance.clone(), *execution_id, *id));
            }
        }
        let starts = commit.orchestrator_items.iter().filter(|message| message.item.is_start());
        self.started.extend(starts.map(|message| message.item.instance().to_owned()));
        self.started.insert(instance.clone());
        for gone in &commit.cancelled_activities {
            self.withdrawn.insert((gone.instance.clone(), gone.execution_id, gone.activity_id));
        }
        self.check_whole(&instance, commit);
        let mut requests = Vec::new();
        for event in &commit.history_delta {
            self.check_timer(commit, event, &shown, *called);
            requests.extend(requests_of(event));
            if let EventKind::OrchestrationCompleted { .. } | EventKind::OrchestrationFailed { .. } =
                event.kind
            {
                self.ended.insert(instance.clone());
                self.last_fetched.insert(instance.clone(), given_at);
                self.last_end = at.monotonic;
            }
        }
        let history = self.histories.entry((instance, execution_id)).or_default();
        history.extend(commit.history_delta.iter().cloned());
        requests
    }

    /// A step ended these activities, and its turn took their outcomes.
    fn end_work_of(&mut self, step: &StepCommit, called: WorldTime, at: WorldTime) {
        let outcomes = outcomes_of(step);
        for (ended, outcome) in step.ended.iter().zip(&outcomes) {
            self.activity_ended(&ended.lock_token, "commit_step", Some(outcome), called, at);
            self.deliveries.fused(outcome);
        }
        if let Some(trace) = &mut self.turn_trace {
            trace.stepped(step, outcomes);
        }
    }

    /// What a turn decided must be committed with it: each activity it asked for is enqueued, unless the execution ended.
    fn check_whole(&mut self, instance: &str, commit: &TurnCommit) {
        if commit.history_delta.iter().any(Event::is_terminal) {
            return;
        }
        for event in &commit.history_delta {
            let key = (instance.to_owned(), commit.execution_id, event.event_id);
            if let EventKind::ActivityScheduled { name, .. } = &event.kind
                && !self.dispatched.contains(&key)
            {
                self.violated(format!("G2: {instance} asked for {name} ({key:?}) and it was not dispatched"));
            }
        }
    }

    /// Fire times go by the store's clock, whatever the clock of the node says: while the turn ran, the store's clock showed
    /// a time from which some timer of the program leads to this fire time.
    fn check_timer(
        &mut self,
        commit: &TurnCommit,
        event: &Event,
        shown: &[RangeInclusive<u64>],
        called: WorldTime,
    ) {
        let EventKind::TimerCreated { fire_at_ms } = event.kind else { return };
        let key = (event.instance_id.clone(), event.execution_id, event.event_id);
        let first = self.histories.get(&(key.0.clone(), key.1)).unwrap_or(&commit.history_delta).first();
        let timers = match first.map(|first| &first.kind) {
            Some(EventKind::OrchestrationStarted { input, .. }) => {
                Stage::decode(input).map(|stage| timers_of(&stage.program)).unwrap_or_default()
            }
            _ => BTreeSet::new(),
        };
        let is_asked_for = timers.iter().any(|timer| {
            let made_ms = fire_at_ms.checked_sub(timer.as_millis() as u64);
            made_ms.is_some_and(|made_ms| shown.iter().any(|shown| shown.contains(&made_ms)))
        });
        if !is_asked_for {
            self.violated(format!(
                "G6: timer {key:?} is due at {fire_at_ms}, it was made at {shown:?}, and its program has {timers:?}"
            ));
        }
        // The store may find it due at the moment of the call, and the clock may be set back before the commit.
        self.timers.insert(key, (called, fire_at_ms));
    }

    /// A worker got an activity.
    pub(crate) fn work_fetched(
        &mut self,
        item: &WorkItem,
        lock: &NewLock<'_>,
        at: WorldTime,
        clock: &SimClock,
    ) {
        self.activities_fetched += 1;
        let WorkItem::ActivityExecute { instance, execution_id, id, .. } = item else {
            return self.violated(format!("a worker got {item:?}"));
        };
        let key = (instance.clone(), *execution_id, *id);
        let violations = self.locks.fetched(format!("{key:?}"), lock, at, clock);
        self.violated_if(violations);
        self.note_takeovers(&format!("{key:?}"), instance, lock);
        self.check_wanted(&key, "was fetched");
        if lock.state != LockState::Void && self.settled.contains(&format!("{key:?}")) {
            self.violated(format!("G3: activity {key:?} was fetched after its end was acknowledged"));
        }
        // One that was withdrawn after it was fetched, and before its worker got the answer, is gone from the store.
        if lock.state != LockState::Void && self.withdrawn.contains(&key) {
            self.violated(format!("G2: activity {key:?} was fetched after the turn that withdrew it"));
        }
    }

    /// An owner got an activity of a session; `is_fresh` says that the answer came at once.
    pub(crate) fn session_fetched(
        &mut self,
        session_id: &str,
        config: &SessionFetchConfig,
        at: WorldTime,
        clock: &SimClock,
        is_fresh: bool,
        holder: Option<Arc<Process>>,
    ) {
        if let Some(broken) = self.sessions.fetched(session_id, config, at, clock, is_fresh, holder) {
            self.violated(broken);
        }
    }

    /// The code of an activity began to run.
    pub(crate) fn activity_began(&mut self, key: &ActivityKey) {
        self.activity_runs += 1;
        self.check_wanted(key, "ran");
    }

    fn check_wanted(&mut self, key: &ActivityKey, what: &str) {
        if !self.dispatched.contains(key) {
            self.violated(format!("G3: activity {key:?} {what}, but no committed turn asked for it"));
        }
    }

    /// The outcome of an activity is on its way into the store.
    pub(crate) fn outcome_sent(&mut self, completion: Option<&WorkItem>) {
        let Some(item) = completion else { return };
        match key_of(item) {
            Some(key) => self.outcomes_sent.entry(key).or_default().push(item.clone()),
            None => self.violated(format!("an activity was answered with {item:?}")),
        }
    }

    /// An activity ended, with its outcome or without.
    pub(crate) fn work_settled(
        &mut self,
        token: &str,
        completion: Option<&WorkItem>,
        called: WorldTime,
        at: WorldTime,
    ) {
        self.activity_ended(token, "settle_work", completion, called, at);
        if let Some(item) = completion {
            self.deliveries.acknowledged(item);
        }
    }

    fn activity_ended(
        &mut self,
        token: &str,
        verb: &str,
        completion: Option<&WorkItem>,
        called: WorldTime,
        at: WorldTime,
    ) {
        let (held, violation) = self.locks.unlock(token, verb, called, at);
        self.violated_if(violation);
        self.settled.extend(held.map(|held| held.what));
        let Some((key, item)) = completion.and_then(|item| Some((key_of(item)?, item))) else { return };
        if let Some(earlier) = self.outcomes.insert(key.clone(), item.clone()) {
            self.violated(format!("G3: activity {key:?} has two outcomes: {earlier:?}, then {item:?}"));
        }
    }

    /// The holder of a lock is about to abandon it.
    pub(crate) fn abandon_sent(&mut self, token: &str, called: WorldTime) {
        self.locks.abandon_sent(token, called);
    }

    /// A lock was abandoned.
    pub(crate) fn abandoned(&mut self, token: &str, at: WorldTime) {
        let violation = self.locks.abandoned(token, at);
        self.violated_if(violation);
    }

    /// These locks were given in batches that were lost.
    pub(crate) fn voided(&mut self, tokens: Vec<String>) {
        self.locks.voided(tokens);
    }

    /// Locks are to be renewed.
    pub(crate) fn renewals_sent(&mut self, renewals: &[LockRenewal], called: WorldTime) {
        self.locks.renewals_sent(renewals, called);
    }

    /// Renewals were answered: those with `true` succeeded.
    pub(crate) fn renewed(
        &mut self,
        renewals: &[LockRenewal],
        renewed: &[bool],
        called: WorldTime,
        at: WorldTime,
    ) {
        let violations = self.locks.renewed(renewals, renewed, called, at);
        self.violated_if(violations);
    }

    /// Which attempt of a retried step an activity is, counted from 0: the engine asks for the next one only when the
    /// one before has failed for good.
    pub(crate) fn flaky_attempt(&mut self, step: &str, activity_id: u64) -> u32 {
        let attempts = self.flaky_attempts.entry(step.to_owned()).or_default();
        attempts.insert(activity_id);
        attempts.range(..activity_id).count() as u32
    }
}

/// The key of a turn: the engine gives every commit a stamp of its own.
fn stamp_of(commit: &TurnCommit) -> u64 {
    commit.stamp.map_or(0, |stamp| stamp.0)
}

/// The activity that an outcome belongs to.
fn key_of(outcome: &WorkItem) -> Option<ActivityKey> {
    match outcome {
        WorkItem::ActivityCompleted { instance, execution_id, id, .. }
        | WorkItem::ActivityFailed { instance, execution_id, id, .. } => {
            Some((instance.clone(), *execution_id, *id))
        }
        _ => None,
    }
}

/// The outcomes that a step was taken on: its turn records them first.
fn outcomes_of(step: &StepCommit) -> Vec<WorkItem> {
    let recorded = step.turn.history_delta.iter().take(step.ended.len());
    let outcomes = recorded.filter_map(|event| {
        let (instance, execution_id) = (step.instance.clone(), step.turn.execution_id);
        let id = event.source_event_id?;
        match &event.kind {
            EventKind::ActivityCompleted { result } => {
                Some(WorkItem::ActivityCompleted { instance, execution_id, id, result: result.clone() })
            }
            EventKind::ActivityFailed { details } => {
                Some(WorkItem::ActivityFailed { instance, execution_id, id, details: details.clone() })
            }
            _ => None,
        }
    });
    outcomes.collect()
}
