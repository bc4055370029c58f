//! The state that orchestration code and the turn engine share.
//!
//! While the code is being polled it emits actions and takes results here. Between polls the engine takes the actions
//! and delivers the results.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use crate::KvEntry;
use crate::action::{Action, EmittedAction};
use crate::limits::MAX_DECISIONS_PER_TURN;
use crate::turn::{Cancellable, ExecutionIdentity};

mod queues;
mod result_slot;
mod signal_waits;

use queues::Queues;
use result_slot::drop_wakers;
pub(crate) use result_slot::{FutureResult, ResultSlot, Wakeup};
use signal_waits::SignalWaits;

/// Of the payloads that the code was given, this part is taken to be forgotten with each further one.
const FORGOTTEN_PER_PAYLOAD: usize = 16;

/// The replay state of one execution behind a lock; every context handle and every durable future holds it.
pub(crate) struct SharedState {
    /// Set when the execution is dropped: from then on nothing the code does or drops has an effect.
    pub(crate) detached: AtomicBool,
    state: Mutex<ReplayState>,
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
    /// Slots of the futures that are alive and not ready.
    slots: HashMap<u64, Arc<ResultSlot>>,
    /// Futures dropped before the engine recorded their action.
    dropped_unbound: BTreeSet<u64>,
    signal_waits: SignalWaits,
    /// Bytes of the results that lie in their slots.
    untaken_bytes: usize,
    /// Bytes of the payloads that the code was given, fading with each further one.
    given_bytes: usize,
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
            dropped_unbound: BTreeSet::new(),
            signal_waits: SignalWaits::default(),
            untaken_bytes: 0,
            given_bytes: 0,
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

    /// Cuts the code off: from now on nothing it does or drops has an effect, and no waker is kept.
    pub(crate) fn detach(&self) {
        self.detached.store(true, Ordering::SeqCst);
        let wakers: Vec<Waker> = self.lock().slots.values().filter_map(|slot| slot.take_waker()).collect();
        drop_wakers(wakers);
    }

    /// Emits an action for the engine and returns its token. The engine makes `slot` ready.
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

    /// Takes the result out of the slot of a future.
    pub(crate) fn take_result(&self, token: u64, slot: &ResultSlot) -> Option<FutureResult> {
        let result = slot.take_result()?;
        let mut state = self.lock();
        state.bindings.remove(&token);
        state.untaken_bytes -= result.payload_bytes();
        state.give(result.payload_bytes());
        Some(result)
    }

    /// Takes the message of a queue read.
    pub(crate) fn take_message(&self, token: u64) -> Option<String> {
        let mut state = self.lock();
        let data = state.queues.read(token)?;
        state.bindings.remove(&token);
        state.give(data.len());
        Some(data)
    }

    /// Takes note of a future that was dropped before it returned.
    pub(crate) fn future_dropped(&self, token: u64, slot: &ResultSlot) {
        drop_wakers(slot.take_waker());
        if self.detached.load(Ordering::SeqCst) {
            return;
        }
        let untaken = slot.take_result();
        let mut state = self.lock();
        state.untaken_bytes -= untaken.map_or(0, |result| result.payload_bytes());
        state.slots.remove(&token);
        if !state.polling {
            return;
        }
        let mut wakeup = Wakeup::default();
        match state.bindings.remove(&token) {
            Some(Binding { event_id, cancellable: Some(kind) }) => {
                wakeup = state.cancel_subscription(kind, event_id);
                state.note_drop(kind, event_id);
            }
            Some(Binding { cancellable: None, .. }) => {}
            None => {
                state.dropped_unbound.insert(token);
            }
        }
        drop(state);
        // Within the poll: if this wakes the code itself, another poll is owed.
        wakeup.wake();
    }
}

impl ReplayState {
    /// Whether a future is alive that waits for something durable.
    pub(crate) fn waits_on_something_durable(&self) -> bool {
        !self.slots.is_empty()
    }

    /// Bytes of the payloads that are held: results and messages that were not taken, the key-value store and the custom
    /// status; and of those that the code was given lately, because it may hold them.
    pub(crate) fn held_bytes(&self) -> usize {
        let kv: usize = self.kv.iter().map(|(key, entry)| key.len() + entry.value.len()).sum();
        let status = self.custom_status.as_ref().map_or(0, String::len);
        self.untaken_bytes + self.queues.unread_bytes() + kv + status + self.given_bytes
    }

    /// Takes note of a payload that the code takes.
    fn give(&mut self, bytes: usize) {
        self.given_bytes -= self.given_bytes.div_ceil(FORGOTTEN_PER_PAYLOAD);
        self.given_bytes += bytes;
    }

    /// Binds the future of an action to its schedule event.
    pub(crate) fn bind(&mut self, token: u64, event_id: u64, action: &Action) -> Wakeup {
        let dropped = self.dropped_unbound.remove(&token);
        let mut wakeup = Wakeup::default();
        let cancellable = match action {
            Action::Activity { .. } => Some(Cancellable::Activity),
            Action::SubOrchestration { .. } => Some(Cancellable::SubOrchestration),
            Action::Wait { name } => {
                self.signal_waits.subscribe(name, event_id, token);
                Some(Cancellable::SignalWait)
            }
            Action::Dequeue { name } => {
                if !dropped && self.queues.subscribe(name, event_id, token) {
                    wakeup = self.make_ready(token, None);
                }
                Some(Cancellable::QueueRead)
            }
            Action::Timer { .. } => None,
            Action::StartDetached { .. }
            | Action::SetCustomStatus { .. }
            | Action::SetKv { .. }
            | Action::ClearKv { .. }
            | Action::ClearAllKv
            | Action::ContinueAsNew { .. } => return wakeup,
        };
        match cancellable {
            Some(kind) if dropped => self.note_drop(kind, event_id),
            None if dropped => {}
            _ => {
                self.bindings.insert(token, Binding { event_id, cancellable });
            }
        }
        wakeup
    }

    /// Puts a result into the slot of its future; a future that was dropped has none.
    pub(crate) fn deliver(&mut self, token: u64, result: FutureResult) -> Wakeup {
        self.make_ready(token, Some(result))
    }

    /// Delivers a signal to the oldest wait without one; `None` if there is none.
    pub(crate) fn deliver_signal(&mut self, name: &str, data: &str) -> Option<Wakeup> {
        let token = self.signal_waits.accept(name)?;
        Some(self.deliver(token, FutureResult::Value(data.to_owned())))
    }

    /// Adds a message to a queue; a read may take it.
    pub(crate) fn deliver_message(&mut self, name: &str, data: &str) -> Wakeup {
        match self.queues.arrive(name, data) {
            Some(token) => self.make_ready(token, None),
            None => Wakeup::default(),
        }
    }

    /// Makes a future ready if it is alive. A queue read has no result in its slot.
    fn make_ready(&mut self, token: u64, result: Option<FutureResult>) -> Wakeup {
        let Some(slot) = self.slots.remove(&token) else { return Wakeup::default() };
        self.untaken_bytes += result.as_ref().map_or(0, FutureResult::payload_bytes);
        Wakeup(slot.make_ready(result))
    }

    /// Whether a wait has its signal, or a queue read its message.
    pub(crate) fn was_answered(&self, event_id: u64) -> bool {
        self.signal_waits.was_answered(event_id) || self.queues.was_answered(event_id)
    }

    /// Removes a cancelled subscription: it receives no signal and no message. A message that a queue read had reserved
    /// goes to the next read.
    pub(crate) fn cancel_subscription(&mut self, kind: Cancellable, event_id: u64) -> Wakeup {
        match kind {
            Cancellable::SignalWait => self.signal_waits.cancel(event_id),
            Cancellable::QueueRead => {
                if let Some(token) = self.queues.token_of(event_id) {
                    self.slots.remove(&token);
                    if let Some(moved_up) = self.queues.cancel(token) {
                        return self.make_ready(moved_up, None);
                    }
                }
            }
            Cancellable::Activity | Cancellable::SubOrchestration => {}
        }
        Wakeup::default()
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
