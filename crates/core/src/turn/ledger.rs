//! What a history says, kept up event by event so that nobody has to read it again.
//!
//! The ledger is a function of the recorded events alone. A turn of an instance that stayed in memory and one that was
//! replayed from storage therefore decide by the same facts.

use std::collections::{BTreeMap, HashMap};

use crate::{Event, EventKind};

/// Kinds of schedule that a message can complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Completable {
    Activity,
    Timer,
    /// The child's recorded id: a generated suffix or an explicit instance id.
    SubOrchestration {
        instance: String,
    },
}

impl Completable {
    /// The word of the contract for this kind.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Activity => "activity",
            Self::Timer => "timer",
            Self::SubOrchestration { .. } => "suborchestration",
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Schedule {
    pub(crate) kind: Completable,
    pub(crate) completed: bool,
    pub(crate) cancel_requested: bool,
}

/// Subscriptions of one name that were not cancelled, oldest first; the first `served` of them have what they waited
/// for.
#[derive(Debug, Default)]
struct Subscriptions {
    ids: Vec<u64>,
    served: usize,
}

impl Subscriptions {
    fn cancel(&mut self, id: u64) {
        if let Some(position) = self.ids.iter().rposition(|other| *other == id) {
            self.ids.remove(position);
            if position < self.served {
                self.served -= 1;
            }
        }
    }

    fn open(&self) -> impl Iterator<Item = u64> {
        self.ids.iter().skip(self.served).copied()
    }
}

/// The facts of an execution's history.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    last_event_id: u64,
    event_count: usize,
    payload_bytes: usize,
    schedules: BTreeMap<u64, Schedule>,
    waits: BTreeMap<String, Subscriptions>,
    dequeues: BTreeMap<String, Subscriptions>,
    arrivals: BTreeMap<String, usize>,
    name_of_wait: HashMap<u64, String>,
    name_of_dequeue: HashMap<u64, String>,
    cancel_reason: Option<String>,
    terminal: bool,
}

impl Ledger {
    pub(crate) fn last_event_id(&self) -> u64 {
        self.last_event_id
    }

    pub(crate) fn event_count(&self) -> usize {
        self.event_count
    }

    /// Bytes of all recorded payloads.
    pub(crate) fn payload_bytes(&self) -> usize {
        self.payload_bytes
    }

    pub(crate) fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Why the instance is to be cancelled: the first reason that was given.
    pub(crate) fn cancel_reason(&self) -> Option<&str> {
        self.cancel_reason.as_deref()
    }

    pub(crate) fn schedule(&self, id: u64) -> Option<&Schedule> {
        self.schedules.get(&id)
    }

    /// Whether the completion of a schedule is recorded.
    pub(crate) fn is_completed(&self, id: u64) -> bool {
        self.schedule(id).is_some_and(|schedule| schedule.completed)
    }

    /// The recorded id of the child that a schedule event started, unless it ended.
    pub(crate) fn child_under_way(&self, id: u64) -> Option<&str> {
        match &self.schedules.get(&id).filter(|schedule| !schedule.completed)?.kind {
            Completable::SubOrchestration { instance } => Some(instance),
            Completable::Activity | Completable::Timer => None,
        }
    }

    /// The id of the next event.
    pub(crate) fn next_event_id(&self) -> u64 {
        self.last_event_id.saturating_add(1)
    }

    /// Uses up an id without an event, as continue-as-new does.
    pub(crate) fn skip_event_id(&mut self) {
        self.last_event_id = self.next_event_id();
    }

    /// Whether an activity neither ended nor was cancelled.
    pub(crate) fn is_open_activity(&self, id: u64) -> bool {
        self.schedule(id).is_some_and(|schedule| {
            schedule.kind == Completable::Activity && !schedule.completed && !schedule.cancel_requested
        })
    }

    /// Activities that neither ended nor were cancelled, ascending.
    pub(crate) fn open_activities(&self) -> impl Iterator<Item = u64> {
        self.open().filter(|(_, kind)| **kind == Completable::Activity).map(|(id, _)| id)
    }

    /// Children that neither ended nor were cancelled, ascending.
    pub(crate) fn open_children(&self) -> impl Iterator<Item = u64> {
        self.open().filter(|(_, kind)| matches!(kind, Completable::SubOrchestration { .. })).map(|(id, _)| id)
    }

    fn open(&self) -> impl Iterator<Item = (u64, &Completable)> {
        let open =
            self.schedules.iter().filter(|(_, schedule)| !schedule.completed && !schedule.cancel_requested);
        open.map(|(id, schedule)| (*id, &schedule.kind))
    }

    /// Waits that were not cancelled, with or without a signal, ascending.
    pub(crate) fn uncancelled_waits(&self) -> Vec<u64> {
        sorted(self.waits.values().flat_map(|waits| waits.ids.iter().copied()))
    }

    /// Waits without a signal as far as counting tells, ascending. It cannot tell which wait a signal went to when
    /// another was dropped in the same turn: only the code knows when it dropped it.
    pub(crate) fn open_waits(&self) -> Vec<u64> {
        sorted(self.waits.values().flat_map(Subscriptions::open))
    }

    /// Queue reads that were not cancelled, with or without a message, ascending.
    pub(crate) fn uncancelled_dequeues(&self) -> Vec<u64> {
        sorted(self.dequeues.values().flat_map(|dequeues| dequeues.ids.iter().copied()))
    }

    /// Queue reads without a message as far as counting tells, ascending.
    pub(crate) fn open_dequeues(&self) -> Vec<u64> {
        sorted(self.dequeues.values().flat_map(Subscriptions::open))
    }

    /// Takes note of an event.
    pub(crate) fn record(&mut self, event: &Event) {
        let id = event.event_id;
        self.last_event_id = id;
        self.event_count += 1;
        self.payload_bytes += payload_bytes(&event.kind);
        match &event.kind {
            EventKind::ActivityScheduled { .. } => self.open_schedule(id, Completable::Activity),
            EventKind::TimerCreated { .. } => self.open_schedule(id, Completable::Timer),
            EventKind::SubOrchestrationScheduled { instance, .. } => {
                self.open_schedule(id, Completable::SubOrchestration { instance: instance.clone() });
            }
            EventKind::ActivityCompleted { .. }
            | EventKind::ActivityFailed { .. }
            | EventKind::TimerFired { .. }
            | EventKind::SubOrchestrationCompleted { .. }
            | EventKind::SubOrchestrationFailed { .. } => {
                self.change_source(event, |schedule| schedule.completed = true);
            }
            EventKind::ActivityCancelRequested { .. } | EventKind::SubOrchestrationCancelRequested { .. } => {
                self.change_source(event, |schedule| schedule.cancel_requested = true);
            }
            EventKind::OrchestrationCancelRequested { reason } => {
                self.cancel_reason.get_or_insert_with(|| reason.clone());
            }
            EventKind::OrchestrationCompleted { .. }
            | EventKind::OrchestrationFailed { .. }
            | EventKind::OrchestrationContinuedAsNew { .. } => self.terminal = true,
            _ => self.record_subscription(event),
        }
    }

    fn record_subscription(&mut self, event: &Event) {
        let id = event.event_id;
        match &event.kind {
            EventKind::ExternalSubscribed { name } => {
                self.waits.entry(name.clone()).or_default().ids.push(id);
                self.name_of_wait.insert(id, name.clone());
            }
            EventKind::ExternalEvent { name, .. } => {
                if let Some(waits) = self.waits.get_mut(name) {
                    waits.served = (waits.served + 1).min(waits.ids.len());
                }
            }
            EventKind::ExternalSubscribedCancelled { .. } => {
                let name = event.source_event_id.and_then(|source| self.name_of_wait.remove(&source));
                if let Some(waits) = name.and_then(|name| self.waits.get_mut(&name)) {
                    waits.cancel(event.source_event_id.unwrap_or_default());
                }
            }
            EventKind::QueueSubscribed { name } => {
                self.dequeues.entry(name.clone()).or_default().ids.push(id);
                self.name_of_dequeue.insert(id, name.clone());
                self.serve_dequeues(name);
            }
            EventKind::QueueEventDelivered { name, .. } => {
                *self.arrivals.entry(name.clone()).or_default() += 1;
                self.serve_dequeues(name);
            }
            EventKind::QueueSubscriptionCancelled { .. } => {
                let name = event.source_event_id.and_then(|source| self.name_of_dequeue.remove(&source));
                if let Some(name) = name {
                    if let Some(dequeues) = self.dequeues.get_mut(&name) {
                        dequeues.cancel(event.source_event_id.unwrap_or_default());
                    }
                    // A read that was given up consumed nothing: its message serves the next one.
                    self.serve_dequeues(&name);
                }
            }
            _ => {}
        }
    }

    fn serve_dequeues(&mut self, name: &str) {
        let arrivals = self.arrivals.get(name).copied().unwrap_or_default();
        if let Some(dequeues) = self.dequeues.get_mut(name) {
            dequeues.served = arrivals.min(dequeues.ids.len());
        }
    }

    fn open_schedule(&mut self, id: u64, kind: Completable) {
        self.schedules.insert(id, Schedule { kind, completed: false, cancel_requested: false });
    }

    fn change_source(&mut self, event: &Event, change: impl FnOnce(&mut Schedule)) {
        if let Some(schedule) = event.source_event_id.and_then(|source| self.schedules.get_mut(&source)) {
            change(schedule);
        }
    }
}

fn sorted(ids: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut ids: Vec<u64> = ids.collect();
    ids.sort_unstable();
    ids
}

fn payload_bytes(kind: &EventKind) -> usize {
    match kind {
        EventKind::OrchestrationStarted { input, carry_forward_events, .. } => {
            let carried = carry_forward_events.iter().flatten();
            input.len() + carried.map(|(name, data)| name.len() + data.len()).sum::<usize>()
        }
        EventKind::ActivityScheduled { input, .. }
        | EventKind::SubOrchestrationScheduled { input, .. }
        | EventKind::OrchestrationChained { input, .. } => input.len(),
        EventKind::ActivityCompleted { result } | EventKind::SubOrchestrationCompleted { result } => {
            result.len()
        }
        EventKind::ExternalEvent { data, .. } | EventKind::QueueEventDelivered { data, .. } => data.len(),
        EventKind::KeyValueSet { key, value, .. } => key.len() + value.len(),
        _ => 0,
    }
}
