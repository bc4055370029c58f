//! Watches every change of the store as it happens, with books of its own, and notes what must not be.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::time::Duration;

use everturn::providers::{FetchedTurn, LockKind, LockRenewal, SessionFetchConfig, TurnCommit, WorkItem};
use everturn::{Event, EventKind, INITIAL_EXECUTION_ID};

use crate::deliveries::Deliveries;
use crate::interpreter::{Stage, timers_of};
use crate::names::{self, Wish};
use crate::program::{Action, Racer, Step};
use crate::sessions::Sessions;
use crate::sim_clock::SimClock;
use crate::store::Standing;
use crate::story::Story;

/// An activity: instance, execution, schedule event.
pub(crate) type ActivityKey = (String, u64, u64);

/// The store's clock at some moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    pub(crate) now_ms: u64,
    /// Its monotonic clock.
    pub(crate) monotonic: Duration,
    /// How often the clock was set until then.
    pub(crate) jumps: usize,
}

/// Something the outside world has to do, now that a turn was committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Errand {
    /// Send this signal.
    Signal { instance: String, name: String },
    /// Send this many messages.
    Messages { instance: String, queue: String, count: u32 },
    /// Cancel this instance.
    Cancel { instance: String },
}

/// All histories: by instance, by execution.
pub(crate) type Histories = BTreeMap<String, BTreeMap<u64, Vec<Event>>>;

/// A lock, as it was handed out and renewed.
#[derive(Debug)]
struct Held {
    what: String,
    until: Duration,
    /// When others take it for ended by the wall clock, if they go by that.
    until_ms: Option<u64>,
    since: Moment,
    /// The earliest moment in which the store can have handed it out, if its holder stood still meanwhile.
    handed_out: Duration,
}

impl Held {
    /// Whether nobody else may have it yet.
    fn excludes_others(&self, at: Moment, clock: &SimClock) -> bool {
        let by_the_wall =
            self.until_ms.is_none_or(|until_ms| clock.latest_ms_since(self.since.monotonic) < until_ms);
        at.monotonic < self.until && by_the_wall
    }
}

/// A turn on its way into the store.
#[derive(Debug)]
struct Sent {
    commit: TurnCommit,
    called: Moment,
}

impl Sent {
    /// Where its first event stands, if it has any: instance, execution, number.
    fn place(&self) -> Option<(&str, u64, u64)> {
        let first = self.commit.history_delta.first()?;
        Some((&first.instance_id, self.commit.execution_id, first.event_id))
    }

    /// Whether the store has it.
    fn is_in(&self, stored: &Histories) -> bool {
        let Some((instance, execution_id, _)) = self.place() else { return false };
        let history = stored.get(instance).and_then(|executions| executions.get(&execution_id));
        history.is_some_and(|history| self.commit.history_delta.iter().all(|event| history.contains(event)))
    }
}

/// What was seen.
#[derive(Debug, Default)]
pub(crate) struct Observer {
    /// What happened turn by turn, if it is written down.
    pub(crate) story: Option<Story>,
    pub(crate) violations: Vec<String>,
    pub(crate) turns: u64,
    pub(crate) activity_runs: u64,
    /// Every event that was committed, in the order of commits.
    pub(crate) histories: BTreeMap<(String, u64), Vec<Event>>,
    /// Instances that were started, or are going to be by what a committed turn sent.
    pub(crate) started: BTreeSet<String>,
    /// Instances that completed or failed.
    pub(crate) ended: BTreeSet<String>,
    /// When the last of them did, by the monotonic clock.
    pub(crate) last_end: Duration,
    /// When the turn that ended an instance was handed out: what was stored after that had to come too late.
    pub(crate) last_handed_out: BTreeMap<String, Duration>,
    /// What the store said that it has.
    pub(crate) deliveries: Deliveries,
    /// Outcomes of activities that workers committed.
    pub(crate) outcomes: BTreeMap<ActivityKey, WorkItem>,
    /// Outcomes that workers sent, whether or not they were told that they are committed.
    pub(crate) outcomes_sent: BTreeMap<ActivityKey, Vec<WorkItem>>,
    /// Turns that were sent, and nobody knows yet whether they are committed: by their stamp.
    sent: BTreeMap<u64, Sent>,
    /// The stamps of those that are in the store.
    landed: BTreeSet<u64>,
    /// What the store's clock showed from the moment a turn was handed out until it was sent for the first time: by its
    /// stamp.
    shown: BTreeMap<u64, Vec<RangeInclusive<u64>>>,
    locks: BTreeMap<String, Held>,
    /// Renewals that were asked for and not answered, and when: they may come into effect all the same, also when nobody
    /// waits for them any more.
    renewals_sent: BTreeMap<String, Duration>,
    pub(crate) sessions: Sessions,
    /// Locks that were given back, and when.
    released: BTreeMap<String, Duration>,
    /// Locks whose holders asked to give them back, and why they must not, if so.
    let_go: BTreeMap<String, Option<String>>,
    holders: BTreeMap<String, String>,
    /// When each timer was sent to the store, and when it is due.
    timers: BTreeMap<ActivityKey, (Moment, u64)>,
    dispatched: BTreeSet<ActivityKey>,
    /// Activities whose rows were removed by their workers.
    acked: BTreeSet<String>,
    withdrawn: BTreeSet<ActivityKey>,
    flaky_attempts: BTreeMap<String, BTreeSet<u64>>,
}

impl Observer {
    pub(crate) fn violated(&mut self, what: String) {
        // The first hundred tell enough.
        if self.violations.len() < 100 {
            self.violations.push(what);
        }
    }

    /// An instance was handed out.
    pub(crate) fn turn_fetched(
        &mut self,
        fetched: &FetchedTurn,
        lasts: Duration,
        (handed_out, at): (Moment, Moment),
        clock: &SimClock,
        standing: Standing,
    ) {
        if let Some(story) = &mut self.story {
            story.fetched(fetched);
        }
        let instance = &fetched.item.instance;
        self.lock(instance.clone(), &fetched.lock_token, lasts, at, clock, standing);
        if let Some(held) = self.locks.get_mut(&fetched.lock_token) {
            held.handed_out = handed_out.monotonic;
        }
        self.deliveries.handed_out(&fetched.lock_token, &fetched.item.messages);
        for message in &fetched.item.messages {
            let WorkItem::TimerFired { execution_id, id, .. } = message else { continue };
            let key = (instance.clone(), *execution_id, *id);
            let Some((made, due_ms)) = self.timers.get(&key) else {
                self.violated(format!("G6: timer {key:?} came, and no committed turn made it"));
                continue;
            };
            // What was due once stays due, even if the clock was set back since.
            let latest_ms = clock.latest_ms_since(made.monotonic);
            if latest_ms < *due_ms {
                let early_ms = due_ms - latest_ms;
                self.violated(format!("G6: timer {key:?} came {early_ms} ms early"));
            }
        }
    }

    /// A turn was taken and is to be committed: whatever it decided was decided by now.
    pub(crate) fn turn_ready(&mut self, commit: &TurnCommit, called: Moment, clock: &SimClock) {
        if let Some(Held { since, .. }) = self.locks.get(&commit.lock_token) {
            let shown = clock.shown_between((since.now_ms, since.jumps), (called.now_ms, called.jumps));
            self.shown.entry(commit.stamp.0).or_insert(shown);
        }
    }

    /// A turn is on its way into the store.
    pub(crate) fn turn_sent(&mut self, commit: &TurnCommit, called: Moment) {
        let commit = TurnCommit { check_in: None, ..commit.clone() };
        self.sent.insert(commit.stamp.0, Sent { commit, called });
    }

    /// A turn that was sent will never be in the store.
    pub(crate) fn turn_refused(&mut self, commit: &TurnCommit) {
        self.sent.remove(&commit.stamp.0);
    }

    /// The store said that a turn is in it.
    pub(crate) fn turn_answered(&mut self, commit: &TurnCommit) {
        if !self.landed.contains(&commit.stamp.0) {
            self.violated(format!("G2: told committed, never landed: {commit:?}"));
        }
    }

    /// A turn that was sent is in the store.
    pub(crate) fn turn_landed(&mut self, commit: &TurnCommit, at: Moment) -> Vec<Errand> {
        let sent = self.sent.remove(&commit.stamp.0);
        sent.map(|sent| self.turn_committed(&sent.commit, sent.called, at)).unwrap_or_default()
    }

    /// Everybody has died, and this is what is stored. What was sent and never answered may be there after all.
    pub(crate) fn power_failed(&mut self, stored: &Histories, at: Moment) -> Vec<Errand> {
        let mut sent: Vec<Sent> = std::mem::take(&mut self.sent).into_values().collect();
        sent.sort_by(|a, b| a.place().cmp(&b.place()));
        let mut errands = Vec::new();
        for sent in sent {
            let is_known = sent.place().is_some_and(|(instance, execution_id, first)| {
                let known = self.histories.get(&(instance.to_owned(), execution_id));
                known.is_some_and(|known| known.iter().any(|event| event.event_id >= first))
            });
            if !is_known && sent.is_in(stored) {
                errands.extend(self.turn_committed(&sent.commit, sent.called, at));
            }
        }
        // Whoever opens the store first frees the locks of the dead.
        self.locks.clear();
        self.holders.clear();
        self.sessions = Sessions::default();
        errands
    }

    /// A turn was committed.
    fn turn_committed(&mut self, commit: &TurnCommit, called: Moment, at: Moment) -> Vec<Errand> {
        self.turns += 1;
        if let Some(story) = &mut self.story {
            story.committed(commit);
        }
        self.landed.insert(commit.stamp.0);
        self.deliveries.taken(&commit.lock_token);
        let shown = self.shown.remove(&commit.stamp.0).unwrap_or_default();
        let Some(held) = self.unlock(&commit.lock_token, "commit_turn", called, at) else {
            return Vec::new();
        };
        let (instance, execution_id) = (held.what.clone(), commit.execution_id);
        for item in &commit.worker_items {
            if let WorkItem::ActivityExecute { instance, execution_id, id, .. } = item {
                self.dispatched.insert((instance.clone(), *execution_id, *id));
            }
        }
        let starts = commit.orchestrator_items.iter().filter(|item| item.is_start());
        self.started.extend(starts.map(|item| item.instance().to_owned()));
        self.started.insert(instance.clone());
        for gone in &commit.cancelled_activities {
            self.withdrawn.insert((gone.instance.clone(), gone.execution_id, gone.activity_id));
        }
        self.check_whole(&instance, commit);
        let mut errands = Vec::new();
        for event in &commit.history_delta {
            self.check_timer(commit, event, &shown, called);
            errands.extend(errands_of(event));
            if let EventKind::OrchestrationCompleted { .. } | EventKind::OrchestrationFailed { .. } =
                event.kind
            {
                self.ended.insert(instance.clone());
                self.last_handed_out.insert(instance.clone(), held.handed_out);
                self.last_end = at.monotonic;
            }
        }
        let history = self.histories.entry((instance, execution_id)).or_default();
        history.extend(commit.history_delta.iter().cloned());
        errands
    }

    /// What a turn decided must be committed with it: each activity it asked for is dispatched, unless it ended there.
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

    /// Fire times go by the store's clock, whatever the clock of the node says: it showed, while the turn was taken, the
    /// time from which some timer of the program is due then.
    fn check_timer(
        &mut self,
        commit: &TurnCommit,
        event: &Event,
        shown: &[RangeInclusive<u64>],
        called: Moment,
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
        // The store may find it due in the moment of the call, and the clock may be set back before the commit.
        self.timers.insert(key, (called, fire_at_ms));
    }

    /// An activity was handed out.
    pub(crate) fn work_fetched(
        &mut self,
        item: &WorkItem,
        token: &str,
        lasts: Duration,
        at: Moment,
        clock: &SimClock,
        standing: Standing,
    ) {
        let WorkItem::ActivityExecute { instance, execution_id, id, .. } = item else {
            return self.violated(format!("a worker was handed {item:?}"));
        };
        let key = (instance.clone(), *execution_id, *id);
        self.lock(format!("{key:?}"), token, lasts, at, clock, standing);
        self.check_wanted(&key, "was handed out");
        if standing != Standing::Void && self.acked.contains(&format!("{key:?}")) {
            self.violated(format!(
                "G3: activity {key:?} was handed out after its worker was told it is done"
            ));
        }
        // One that was withdrawn after it was handed out, and before its worker heard of it, is gone from the store.
        if standing != Standing::Void && self.withdrawn.contains(&key) {
            self.violated(format!("G2: activity {key:?} was handed out after the turn that withdrew it"));
        }
    }

    /// An activity of a session was handed out to an owner; `is_fresh` says that the answer came at once.
    pub(crate) fn session_fetched(
        &mut self,
        session_id: &str,
        config: &SessionFetchConfig,
        at: Moment,
        clock: &SimClock,
        is_fresh: bool,
    ) {
        if let Some(broken) = self.sessions.fetched(session_id, config, at, clock, is_fresh) {
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

    /// An activity's row was removed, with its outcome or without.
    pub(crate) fn work_acked(
        &mut self,
        token: &str,
        completion: Option<&WorkItem>,
        called: Moment,
        at: Moment,
    ) {
        if let Some(held) = self.unlock(token, "ack_work_item", called, at) {
            self.acked.insert(held.what);
        }
        let Some((key, item)) = completion.and_then(|item| Some((key_of(item)?, item))) else { return };
        self.deliveries.told(item);
        if let Some(earlier) = self.outcomes.insert(key.clone(), item.clone()) {
            self.violated(format!("G3: activity {key:?} has two outcomes: {earlier:?}, then {item:?}"));
        }
    }

    /// The holder of a lock is about to give it back; somebody else may have it before the answer comes, if it comes.
    pub(crate) fn lets_go(&mut self, token: &str, called: Moment) {
        self.let_go.insert(token.to_owned(), self.refusal(token, called));
    }

    /// These locks were handed out by what did not happen after all.
    pub(crate) fn voided(&mut self, tokens: Vec<String>) {
        for token in tokens {
            if let Some(held) = self.locks.remove(&token)
                && self.holders.get(&held.what) == Some(&token)
            {
                self.holders.remove(&held.what);
            }
        }
    }

    /// A lock was given back.
    pub(crate) fn abandoned(&mut self, token: &str, at: Moment) {
        if let Some(Some(refused)) = self.let_go.get(token) {
            self.violated(format!("G4: abandon succeeded {refused}"));
        }
        self.release(token, at);
    }

    /// Locks are to be renewed.
    pub(crate) fn renewals_sent(&mut self, renewals: &[LockRenewal], called: Moment) {
        self.renewals_sent.extend(renewals.iter().map(|renewal| (renewal.token.clone(), called.monotonic)));
    }

    /// Locks were renewed, those that were answered with `true`.
    pub(crate) fn renewed(&mut self, renewals: &[LockRenewal], renewed: &[bool], called: Moment, at: Moment) {
        for LockRenewal { token, .. } in renewals {
            self.renewals_sent.remove(token);
        }
        for (LockRenewal { kind, token, extend_for }, _) in
            renewals.iter().zip(renewed).filter(|(_, renewed)| **renewed)
        {
            let operation = match kind {
                LockKind::Orchestration => "renew_orchestration_item_lock",
                LockKind::WorkItem => "renew_work_item_lock",
            };
            if self.released.get(token).is_some_and(|released| *released >= called.monotonic) {
                // It was renewed, and then given back, before the answer came.
                continue;
            }
            self.check_held(token, operation, called);
            if let Some(held) = self.locks.get_mut(token) {
                held.until = at.monotonic + *extend_for;
                held.until_ms = held.until_ms.map(|_| at.now_ms + extend_for.as_millis() as u64);
            }
        }
    }

    fn lock(
        &mut self,
        what: String,
        token: &str,
        lasts: Duration,
        at: Moment,
        clock: &SimClock,
        standing: Standing,
    ) {
        let (lasts, until_ms) = match standing {
            // Less than was asked for, if its holder stood still while the answer came.
            Standing::HeldFor { left } => (left, None),
            Standing::HeldUntil { until_ms } => (lasts, Some(until_ms)),
            // Whatever is done with it must be refused.
            Standing::Void => return,
        };
        let until = at.monotonic + lasts;
        if let Some(before) = self.holders.insert(what.clone(), token.to_owned())
            && !self.let_go.contains_key(&before)
            && let Some(held) = self.locks.get(&before)
            && held.excludes_others(at, clock)
        {
            let left = held.until - at.monotonic;
            self.violated(format!("G4: {what} was handed out though locked for another {left:?}"));
        }
        if self
            .locks
            .insert(token.to_owned(), Held { what, until, until_ms, since: at, handed_out: at.monotonic })
            .is_some()
        {
            self.violated(format!("G4: token {token} was handed out twice"));
        }
    }

    fn unlock(&mut self, token: &str, operation: &str, called: Moment, at: Moment) -> Option<Held> {
        self.check_held(token, operation, called);
        self.release(token, at)
    }

    fn release(&mut self, token: &str, at: Moment) -> Option<Held> {
        let held = self.locks.remove(token)?;
        self.released.insert(token.to_owned(), at.monotonic);
        if self.holders.get(&held.what).is_some_and(|holder| holder == token) {
            self.holders.remove(&held.what);
        }
        Some(held)
    }

    fn check_held(&mut self, token: &str, operation: &str, called: Moment) {
        if let Some(refused) = self.refusal(token, called) {
            self.violated(format!("G4: {operation} succeeded {refused}"));
        }
    }

    /// Only the one who was handed a lock last, and only if it had not ended when the holder called, may do anything with
    /// it; why others must not.
    fn refusal(&self, token: &str, called: Moment) -> Option<String> {
        match self.locks.get(token) {
            None => Some("with an unknown lock".to_owned()),
            Some(held) if held.until <= called.monotonic => {
                if self.renewals_sent.get(token).is_some_and(|sent| *sent < held.until) {
                    return None;
                }
                let ended = called.monotonic - held.until;
                Some(format!("on {} with a lock that ended {ended:?} before", held.what))
            }
            Some(held) if self.holders.get(&held.what).is_none_or(|holder| holder != token) => {
                Some(format!("on {} with a lock that somebody else had by then", held.what))
            }
            Some(_) => None,
        }
    }

    /// Which attempt of a retried step an activity is, counted from 0: the engine asks for the next one only when the
    /// one before has failed for good.
    pub(crate) fn flaky_attempt(&mut self, step: &str, activity_id: u64) -> u32 {
        let attempts = self.flaky_attempts.entry(step.to_owned()).or_default();
        attempts.insert(activity_id);
        attempts.range(..activity_id).count() as u32
    }
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

/// What an event asks of the outside world.
fn errands_of(event: &Event) -> Vec<Errand> {
    let instance = event.instance_id.clone();
    match &event.kind {
        EventKind::ExternalSubscribed { name } => match names::wish(name) {
            Wish::Signal => vec![Errand::Signal { instance, name: name.clone() }],
            Wish::Cancel { instance } => vec![Errand::Cancel { instance: instance.to_owned() }],
            Wish::Nothing => Vec::new(),
        },
        EventKind::OrchestrationStarted { input, .. } if event.execution_id == INITIAL_EXECUTION_ID => {
            let Ok(stage) = Stage::decode(input) else { return Vec::new() };
            let queues = stage.program.steps.into_iter().filter_map(|Step { key, action }| match action {
                Action::Queue { messages } => {
                    Some(Errand::Messages { instance: instance.clone(), queue: key, count: messages })
                }
                Action::OpenRace { against: Racer::Queue, .. } => {
                    Some(Errand::Messages { instance: instance.clone(), queue: key, count: 1 })
                }
                _ => None,
            });
            queues.collect()
        }
        _ => Vec::new(),
    }
}
