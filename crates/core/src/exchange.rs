//! Where orchestration code and the turn engine meet.
//!
//! The code leaves what it asks for and picks up its results here, while it is being polled; between its polls the
//! engine takes the former and delivers the latter.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::KvEntry;
use crate::action::{Action, Emitted};
use crate::limits::MAX_DECISIONS_PER_TURN;
use crate::turn::ExecutionIdentity;

mod queues;
mod waits;

use queues::Queues;
use waits::Waits;

/// The shared half of an execution: behind every context handle and every durable future.
pub(crate) struct Exchange {
    detached: AtomicBool,
    state: Mutex<State>,
}

/// What a durable future is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Value(String),
    Failed(String),
    Fired,
}

/// Where the result of one future is put down. The flag lets thousands of pending futures be polled cheaply.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    ready: AtomicBool,
    outcome: Mutex<Option<Outcome>>,
}

impl Slot {
    fn put(&self, outcome: Outcome) {
        *self.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        self.ready.store(true, Ordering::Release);
    }

    pub(crate) fn take(&self) -> Option<Outcome> {
        if !self.ready.load(Ordering::Acquire) {
            return None;
        }
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Kinds of schedule whose future can be dropped with an effect. The order is the one cancellations are recorded in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Droppable {
    Activity,
    SubOrchestration,
    Wait,
    Dequeue,
}

impl Droppable {
    pub(crate) const ALL: [Self; 4] = [Self::Activity, Self::SubOrchestration, Self::Wait, Self::Dequeue];

    fn of(action: &Action) -> Option<Self> {
        match action {
            Action::Activity { .. } => Some(Self::Activity),
            Action::SubOrchestration { .. } => Some(Self::SubOrchestration),
            Action::Wait { .. } => Some(Self::Wait),
            Action::Dequeue { .. } => Some(Self::Dequeue),
            _ => None,
        }
    }
}

/// A schedule event that a future is bound to.
#[derive(Debug, Clone, Copy)]
struct Binding {
    event_id: u64,
    droppable: Option<Droppable>,
}

pub(crate) struct State {
    pub(crate) identity: ExecutionIdentity,
    pub(crate) replaying: bool,
    /// The store's time at this poll.
    pub(crate) now_ms: u64,
    /// Time of the last applied event; key-value writes carry it.
    pub(crate) last_event_ms: u64,
    pub(crate) custom_status: Option<String>,
    pub(crate) kv: BTreeMap<String, KvEntry>,
    pub(crate) continue_as_new_asked: bool,
    /// The code asked for more than a turn may hold within one poll.
    pub(crate) turn_limit_hit: bool,
    polling: bool,
    next_token: u64,
    emitted: Vec<Emitted>,
    /// Slots of the futures that are alive and have no result; queue reads are not among them.
    slots: HashMap<u64, Arc<Slot>>,
    bindings: HashMap<u64, Binding>,
    /// Queue reads the engine has not seen yet.
    unbound_dequeues: BTreeSet<u64>,
    /// Futures dropped before the engine saw their action.
    dropped_unbound: BTreeSet<u64>,
    /// Dropped schedules whose cancellation is not recorded yet.
    pub(crate) drops: BTreeMap<Droppable, BTreeSet<u64>>,
    /// Recorded drops that the code has not repeated.
    pub(crate) unrepeated_drops: BTreeMap<Droppable, BTreeSet<u64>>,
    waits: Waits,
    pub(crate) queues: Queues,
}

impl Exchange {
    pub(crate) fn new(identity: ExecutionIdentity, replaying: bool, kv: HashMap<String, KvEntry>) -> Self {
        let state = State {
            identity,
            replaying,
            now_ms: 0,
            last_event_ms: 0,
            custom_status: None,
            kv: kv.into_iter().collect(),
            continue_as_new_asked: false,
            turn_limit_hit: false,
            polling: false,
            next_token: 1,
            emitted: Vec::new(),
            slots: HashMap::new(),
            bindings: HashMap::new(),
            unbound_dequeues: BTreeSet::new(),
            dropped_unbound: BTreeSet::new(),
            drops: BTreeMap::new(),
            unrepeated_drops: BTreeMap::new(),
            waits: Waits::default(),
            queues: Queues::default(),
        };
        Self { detached: AtomicBool::new(false), state: Mutex::new(state) }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on nothing the code does or drops has an effect.
    pub(crate) fn detach(&self) {
        self.detached.store(true, Ordering::SeqCst);
    }

    /// The state, if the code is being polled: outside a poll nothing may be asked for.
    fn during_poll(&self) -> Option<MutexGuard<'_, State>> {
        if self.detached.load(Ordering::SeqCst) {
            return None;
        }
        let state = self.state();
        if state.polling {
            return Some(state);
        }
        drop(state);
        tracing::warn!(
            target: "everturn::orchestration",
            "an orchestration context was used outside its orchestration; the call has no effect"
        );
        None
    }

    /// Leaves an action for the engine; the token names it. `None` if nothing may be asked for now.
    pub(crate) fn emit(
        &self,
        location: &'static Location<'static>,
        make: impl FnOnce(&mut State) -> Action,
    ) -> Option<u64> {
        let mut state = self.during_poll()?;
        if state.turn_limit_hit || std::thread::panicking() {
            // The turn is lost; a destructor that asks for something on the way out must not unwind again.
            return None;
        }
        if state.emitted.len() > MAX_DECISIONS_PER_TURN {
            state.turn_limit_hit = true;
            drop(state);
            // Unwinds out of a loop that would never come back to the engine; reported as the turn limit.
            std::panic::resume_unwind(Box::new("turn limit"));
        }
        let action = make(&mut state);
        let token = state.next_token;
        state.next_token += 1;
        state.emitted.push(Emitted { token, action, location });
        Some(token)
    }

    /// Leaves an action whose result will be put into the returned slot.
    pub(crate) fn emit_for_result(
        &self,
        location: &'static Location<'static>,
        make: impl FnOnce(&mut State) -> Action,
    ) -> Option<(u64, Arc<Slot>)> {
        let token = self.emit(location, make)?;
        let slot = Arc::new(Slot::default());
        self.state().slots.insert(token, Arc::clone(&slot));
        Some((token, slot))
    }

    /// Leaves a queue read.
    pub(crate) fn emit_dequeue(&self, location: &'static Location<'static>, name: String) -> Option<u64> {
        let token = self.emit(location, |_| Action::Dequeue { name })?;
        self.state().unbound_dequeues.insert(token);
        Some(token)
    }

    /// Changes the state from orchestration code, if nothing forbids it now.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> Option<R> {
        self.during_poll().map(|mut state| change(&mut state))
    }

    /// Sets the tag of an activity whose action the engine has not taken yet. `false` if it has.
    pub(crate) fn set_tag(&self, token: u64, new_tag: String) -> bool {
        let mut state = self.state();
        let emitted = state.emitted.iter_mut().rev().find(|emitted| emitted.token == token);
        match emitted {
            Some(Emitted { action: Action::Activity { tag, .. }, .. }) => {
                *tag = Some(new_tag);
                true
            }
            _ => false,
        }
    }

    /// The next message of a queue read, if it has one.
    pub(crate) fn poll_dequeue(&self, token: u64) -> Option<String> {
        let mut state = self.state();
        let data = state.queues.read(token)?;
        state.bindings.remove(&token);
        Some(data)
    }

    /// A future returned its result: dropping it later means nothing.
    pub(crate) fn finish(&self, token: u64) {
        self.state().bindings.remove(&token);
    }

    /// A future was dropped without having returned.
    pub(crate) fn dropped(&self, token: u64) {
        if self.detached.load(Ordering::SeqCst) {
            return;
        }
        let mut state = self.state();
        if state.polling {
            state.drop_future(token);
        }
    }
}

impl State {
    pub(crate) fn begin_poll(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
        self.polling = true;
    }

    /// Ends the poll and hands over what the code asked for.
    pub(crate) fn end_poll(&mut self) -> Vec<Emitted> {
        self.polling = false;
        std::mem::take(&mut self.emitted)
    }

    /// Whether any future is alive that still waits for something durable.
    pub(crate) fn waits_on_something_durable(&self) -> bool {
        !self.slots.is_empty() || !self.unbound_dequeues.is_empty() || self.queues.has_unsatisfied_reader()
    }

    /// Binds an action's future to its schedule event.
    pub(crate) fn bind(&mut self, token: u64, event_id: u64, action: &Action) {
        let droppable = Droppable::of(action);
        let dropped = self.dropped_unbound.remove(&token);
        self.unbound_dequeues.remove(&token);
        match action {
            Action::Wait { name } => self.waits.subscribe(name, event_id, token),
            Action::Dequeue { name } if !dropped => self.queues.subscribe(name, event_id, token),
            _ => {}
        }
        if dropped {
            self.note_drop(droppable, event_id);
        } else if droppable.is_some() || matches!(action, Action::Timer { .. }) {
            self.bindings.insert(token, Binding { event_id, droppable });
        }
    }

    /// Puts a result down for a future; one that was dropped is not interested any more.
    pub(crate) fn deliver(&mut self, token: u64, outcome: Outcome) {
        if let Some(slot) = self.slots.remove(&token) {
            slot.put(outcome);
        }
    }

    /// Gives a signal to the oldest wait without one; `false` if there is none.
    pub(crate) fn deliver_signal(&mut self, name: &str, data: &str) -> bool {
        let Some(token) = self.waits.accept(name) else { return false };
        self.deliver(token, Outcome::Value(data.to_owned()));
        true
    }

    /// Whether a wait was given its signal, or a queue read its message.
    pub(crate) fn was_answered(&self, event_id: u64) -> bool {
        self.waits.was_answered(event_id) || self.queues.was_answered(event_id)
    }

    /// A recorded cancellation of a subscription: it takes part in nothing any more.
    pub(crate) fn cancel_subscription(&mut self, kind: Droppable, event_id: u64) {
        match kind {
            Droppable::Wait => self.waits.cancel(event_id),
            Droppable::Dequeue => self.queues.cancel(event_id),
            Droppable::Activity | Droppable::SubOrchestration => {}
        }
    }

    /// A recorded drop: the code must have dropped that future by now, or do so before the turn ends.
    pub(crate) fn expect_drop(&mut self, kind: Droppable, event_id: u64) {
        if !self.drops.get_mut(&kind).is_some_and(|drops| drops.remove(&event_id)) {
            self.unrepeated_drops.entry(kind).or_default().insert(event_id);
        }
    }

    fn drop_future(&mut self, token: u64) {
        self.slots.remove(&token);
        let Some(binding) = self.bindings.remove(&token) else {
            self.unbound_dequeues.remove(&token);
            self.dropped_unbound.insert(token);
            return;
        };
        if let Some(kind) = binding.droppable {
            self.cancel_subscription(kind, binding.event_id);
        }
        self.note_drop(binding.droppable, binding.event_id);
    }

    fn note_drop(&mut self, kind: Option<Droppable>, event_id: u64) {
        let Some(kind) = kind else { return };
        let repeated = self.unrepeated_drops.get_mut(&kind).is_some_and(|drops| drops.remove(&event_id));
        if !repeated {
            self.drops.entry(kind).or_default().insert(event_id);
        }
    }
}
