//! The state that orchestration code and the turn engine share.
//!
//! While the code is being polled it emits actions and takes results here. Between polls the engine takes the actions
//! and delivers the results.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::KvEntry;
use crate::action::{Action, EmittedAction};
use crate::limits::MAX_DECISIONS_PER_TURN;
use crate::turn::{Cancellable, ExecutionIdentity};

mod queues;
mod signal_waits;

use queues::Queues;
use signal_waits::SignalWaits;

/// The replay state of one execution behind a lock; every context handle and every durable future holds it.
pub(crate) struct SharedState {
    /// Set when the execution is dropped: from then on nothing the code does or drops has an effect.
    pub(crate) detached: AtomicBool,
    state: Mutex<ReplayState>,
}

/// The result that a durable future is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FutureResult {
    Value(String),
    Failed(String),
    Fired,
}

/// Holds the result of one future. The flag lets thousands of pending futures be polled without taking a lock.
#[derive(Debug, Default)]
pub(crate) struct ResultSlot {
    ready: AtomicBool,
    result: Mutex<Option<FutureResult>>,
}

impl ResultSlot {
    pub(crate) fn take(&self) -> Option<FutureResult> {
        if !self.ready.load(Ordering::Acquire) {
            return None;
        }
        self.result.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The schedule event that a future is bound to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Binding {
    event_id: u64,
    cancellable: Option<Cancellable>,
}

pub(crate) struct ReplayState {
    pub(crate) identity: ExecutionIdentity,
    pub(crate) replaying: bool,
    /// The store's time at this poll.
    pub(crate) now_ms: u64,
    /// Time of the last applied event; key-value writes carry it.
    pub(crate) last_event_ms: u64,
    pub(crate) custom_status: Option<String>,
    pub(crate) kv: BTreeMap<String, KvEntry>,
    pub(crate) continue_as_new_asked: bool,
    /// The code emitted more actions within one poll than a turn may hold.
    pub(crate) turn_limit_hit: bool,
    /// Whether the code is being polled.
    pub(crate) polling: bool,
    /// Actions of this poll, oldest first.
    pub(crate) emitted: Vec<EmittedAction>,
    /// Bindings of the futures that have not returned.
    pub(crate) bindings: HashMap<u64, Binding>,
    pub(crate) queues: Queues,
    /// Dropped schedules whose cancellation is not recorded yet.
    pub(crate) drops: BTreeMap<Cancellable, BTreeSet<u64>>,
    /// Recorded drops that the code has not repeated.
    pub(crate) unrepeated_drops: BTreeMap<Cancellable, BTreeSet<u64>>,
    next_token: u64,
    /// Slots of the futures that are alive and have no result; queue reads are not among them.
    slots: HashMap<u64, Arc<ResultSlot>>,
    /// Queue reads whose action the engine has not recorded yet.
    unbound_dequeues: BTreeSet<u64>,
    /// Futures dropped before the engine recorded their action.
    dropped_unbound: BTreeSet<u64>,
    signal_waits: SignalWaits,
}

impl SharedState {
    pub(crate) fn new(
        identity: ExecutionIdentity,
        replaying: bool,
        kv: HashMap<String, KvEntry>,
        custom_status: Option<String>,
        last_event_ms: u64,
    ) -> Self {
        let state = ReplayState {
            identity,
            replaying,
            now_ms: 0,
            last_event_ms,
            custom_status,
            kv: kv.into_iter().collect(),
            continue_as_new_asked: false,
            turn_limit_hit: false,
            polling: false,
            emitted: Vec::new(),
            bindings: HashMap::new(),
            queues: Queues::default(),
            drops: BTreeMap::new(),
            unrepeated_drops: BTreeMap::new(),
            next_token: 1,
            slots: HashMap::new(),
            unbound_dequeues: BTreeSet::new(),
            dropped_unbound: BTreeSet::new(),
            signal_waits: SignalWaits::default(),
        };
        Self { detached: AtomicBool::new(false), state: Mutex::new(state) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, ReplayState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state if the code is being polled; outside a poll no call has an effect.
    pub(crate) fn during_poll(&self) -> Option<MutexGuard<'_, ReplayState>> {
        if self.detached.load(Ordering::SeqCst) {
            return None;
        }
        let state = self.lock();
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

    /// Emits an action for the engine and returns its token. The engine puts the result of the action into `slot`.
    ///
    /// `None` if no call has an effect now.
    pub(crate) fn emit(
        &self,
        location: &'static Location<'static>,
        slot: Option<&Arc<ResultSlot>>,
        make: impl FnOnce(&mut ReplayState) -> Action,
    ) -> Option<u64> {
        let mut state = self.during_poll()?;
        if state.turn_limit_hit || std::thread::panicking() {
            // The turn has already failed. A destructor that runs during the unwinding must not panic again.
            return None;
        }
        if state.emitted.len() > MAX_DECISIONS_PER_TURN {
            state.turn_limit_hit = true;
            drop(state);
            // Unwinds out of a loop that would never return to the engine; the engine reports the turn limit.
            std::panic::resume_unwind(Box::new("turn limit"));
        }
        let action = make(&mut state);
        let token = state.next_token;
        state.next_token += 1;
        if let Some(slot) = slot {
            state.slots.insert(token, Arc::clone(slot));
        }
        if matches!(action, Action::Dequeue { .. }) {
            state.unbound_dequeues.insert(token);
        }
        state.emitted.push(EmittedAction { token, action, location });
        Some(token)
    }

    /// Sets the tag of an activity. `false` if the engine has taken the action over already.
    pub(crate) fn set_tag(&self, token: u64, new_tag: String) -> bool {
        let mut state = self.lock();
        let emitted = state.emitted.iter_mut().rev().find(|emitted| emitted.token == token);
        match emitted {
            Some(EmittedAction { action: Action::Activity { tag, .. }, .. }) => {
                *tag = Some(new_tag);
                true
            }
            _ => false,
        }
    }

    /// The next message of a queue read, if there is one for it.
    pub(crate) fn poll_dequeue(&self, token: u64) -> Option<String> {
        let mut state = self.lock();
        let data = state.queues.read(token)?;
        state.bindings.remove(&token);
        Some(data)
    }

    /// Takes note of a future that was dropped before it returned.
    pub(crate) fn future_dropped(&self, token: u64) {
        if self.detached.load(Ordering::SeqCst) {
            return;
        }
        let mut state = self.lock();
        if !state.polling {
            return;
        }
        state.slots.remove(&token);
        match state.bindings.remove(&token) {
            Some(Binding { event_id, cancellable: Some(kind) }) => {
                state.cancel_subscription(kind, event_id);
                state.note_drop(kind, event_id);
            }
            Some(Binding { cancellable: None, .. }) => {}
            None => {
                state.unbound_dequeues.remove(&token);
                state.dropped_unbound.insert(token);
            }
        }
    }
}

impl ReplayState {
    /// Whether a future is alive that waits for something durable.
    pub(crate) fn waits_on_something_durable(&self) -> bool {
        !self.slots.is_empty() || !self.unbound_dequeues.is_empty() || self.queues.has_unsatisfied_reader()
    }

    /// Binds the future of an action to its schedule event.
    pub(crate) fn bind(&mut self, token: u64, event_id: u64, action: &Action) {
        let dropped = self.dropped_unbound.remove(&token);
        let cancellable = match action {
            Action::Activity { .. } => Some(Cancellable::Activity),
            Action::SubOrchestration { .. } => Some(Cancellable::SubOrchestration),
            Action::Wait { name } => {
                self.signal_waits.subscribe(name, event_id, token);
                Some(Cancellable::SignalWait)
            }
            Action::Dequeue { name } => {
                self.unbound_dequeues.remove(&token);
                if !dropped {
                    self.queues.subscribe(name, event_id, token);
                }
                Some(Cancellable::QueueRead)
            }
            Action::Timer { .. } => None,
            Action::StartDetached { .. }
            | Action::SetCustomStatus { .. }
            | Action::SetKv { .. }
            | Action::ClearKv { .. }
            | Action::ClearAllKv
            | Action::ContinueAsNew { .. } => return,
        };
        match cancellable {
            Some(kind) if dropped => self.note_drop(kind, event_id),
            None if dropped => {}
            _ => {
                self.bindings.insert(token, Binding { event_id, cancellable });
            }
        }
    }

    /// Puts a result into the slot of its future; a future that was dropped has none.
    pub(crate) fn deliver(&mut self, token: u64, result: FutureResult) {
        if let Some(slot) = self.slots.remove(&token) {
            *slot.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
            slot.ready.store(true, Ordering::Release);
        }
    }

    /// Delivers a signal to the oldest wait without one; `false` if there is none.
    pub(crate) fn deliver_signal(&mut self, name: &str, data: &str) -> bool {
        let Some(token) = self.signal_waits.accept(name) else { return false };
        self.deliver(token, FutureResult::Value(data.to_owned()));
        true
    }

    /// Whether a wait has its signal, or a queue read its message.
    pub(crate) fn was_answered(&self, event_id: u64) -> bool {
        self.signal_waits.was_answered(event_id) || self.queues.was_answered(event_id)
    }

    /// Removes a cancelled subscription: it receives no signal and no message.
    pub(crate) fn cancel_subscription(&mut self, kind: Cancellable, event_id: u64) {
        match kind {
            Cancellable::SignalWait => self.signal_waits.cancel(event_id),
            Cancellable::QueueRead => self.queues.cancel(event_id),
            Cancellable::Activity | Cancellable::SubOrchestration => {}
        }
    }

    /// Takes note of a recorded drop: the code has dropped that future already, or must do so before the turn ends.
    pub(crate) fn expect_drop(&mut self, kind: Cancellable, event_id: u64) {
        if !self.drops.get_mut(&kind).is_some_and(|drops| drops.remove(&event_id)) {
            self.unrepeated_drops.entry(kind).or_default().insert(event_id);
        }
    }

    /// Takes note of a drop by the code, which may repeat a recorded one.
    fn note_drop(&mut self, kind: Cancellable, event_id: u64) {
        let repeated = self.unrepeated_drops.get_mut(&kind).is_some_and(|drops| drops.remove(&event_id));
        if !repeated {
            self.drops.entry(kind).or_default().insert(event_id);
        }
    }
}
