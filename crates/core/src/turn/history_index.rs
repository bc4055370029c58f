//! An index of an execution's history, updated with each event, so that no turn reads the history twice.
//!
//! The index is a function of the recorded events alone: a turn of an instance that stayed in memory and a turn that
//! was replayed from storage decide by the same facts.

use std::collections::BTreeMap;

use super::subscriptions::Subscriptions;
use crate::{Event, EventKind};

/// Kinds of schedule that a message can complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CompletableKind {
    Activity,
    Timer,
    SubOrchestration,
}

impl CompletableKind {
    /// The word for this kind in error texts.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Activity => "activity",
            Self::Timer => "timer",
            Self::SubOrchestration => "suborchestration",
        }
    }
}

/// A schedule event that a message can complete, and what became of it.
#[derive(Debug, Clone)]
pub(super) struct Schedule {
    pub(super) kind: CompletableKind,
    /// The recorded id of a child that has not ended: a generated suffix or an explicit instance id.
    child: Option<String>,
    pub(super) completed: bool,
    cancel_requested: bool,
}

impl Schedule {
    /// Whether it is of this kind and has neither ended nor been cancelled.
    pub(super) fn is_open(&self, kind: CompletableKind) -> bool {
        self.kind == kind && !self.completed && !self.cancel_requested
    }
}

/// The facts of an execution's history.
#[derive(Debug, Default)]
pub(super) struct HistoryIndex {
    pub(super) last_event_id: u64,
    pub(super) event_count: usize,
    /// Bytes of the ids of the children that have not ended.
    child_bytes: usize,
    pub(super) schedules: BTreeMap<u64, Schedule>,
    pub(super) signal_waits: Subscriptions,
    pub(super) queue_reads: Subscriptions,
    /// The reason of the first cancel request.
    pub(super) cancel_reason: Option<String>,
    /// Whether the execution has ended.
    pub(super) terminal: bool,
}

impl HistoryIndex {
    /// The recorded id of the child that a schedule event started, unless the child has ended.
    pub(super) fn unfinished_child(&self, id: u64) -> Option<&str> {
        self.schedules.get(&id).filter(|schedule| !schedule.completed)?.child.as_deref()
    }

    /// Schedules of a kind up to event `last` that have neither ended nor been cancelled, ascending.
    pub(super) fn open(&self, kind: CompletableKind, last: u64) -> impl Iterator<Item = u64> {
        let open = self.schedules.range(..=last).filter(move |(_, schedule)| schedule.is_open(kind));
        open.map(|(id, _)| *id)
    }

    /// Adds the next event of the history.
    pub(super) fn record(&mut self, event: &Event) {
        let id = event.event_id;
        let source = event.source_event_id.unwrap_or_default();
        self.last_event_id = id;
        self.event_count += 1;
        match &event.kind {
            EventKind::ActivityScheduled { .. } => self.schedule(id, CompletableKind::Activity, None),
            EventKind::TimerCreated { .. } => self.schedule(id, CompletableKind::Timer, None),
            EventKind::SubOrchestrationScheduled { instance, .. } => {
                self.schedule(id, CompletableKind::SubOrchestration, Some(instance.clone()));
            }
            EventKind::ActivityCompleted { .. }
            | EventKind::ActivityFailed { .. }
            | EventKind::TimerFired { .. }
            | EventKind::SubOrchestrationCompleted { .. }
            | EventKind::SubOrchestrationFailed { .. } => {
                if let Some(schedule) = self.schedules.get_mut(&source) {
                    schedule.completed = true;
                    self.child_bytes -= schedule.child.take().map_or(0, |child| child.len());
                }
            }
            EventKind::ActivityCancelRequested { .. } | EventKind::SubOrchestrationCancelRequested { .. } => {
                if let Some(schedule) = self.schedules.get_mut(&source) {
                    schedule.cancel_requested = true;
                }
            }
            EventKind::ExternalSubscribed { name } => self.signal_waits.subscribe(name, id),
            EventKind::ExternalEvent { name, .. } => self.signal_waits.signal_arrived(name),
            EventKind::ExternalSubscribedCancelled { .. } => self.signal_waits.cancel_wait(source),
            EventKind::QueueSubscribed { name } => self.queue_reads.subscribe(name, id),
            EventKind::QueueEventDelivered { name, .. } => self.queue_reads.message_arrived(name),
            EventKind::QueueSubscriptionCancelled { .. } => self.queue_reads.cancel_read(source),
            EventKind::OrchestrationCancelRequested { reason } => {
                self.cancel_reason.get_or_insert_with(|| reason.clone());
            }
            EventKind::OrchestrationCompleted { .. }
            | EventKind::OrchestrationFailed { .. }
            | EventKind::OrchestrationContinuedAsNew { .. } => self.terminal = true,
            EventKind::OrchestrationStarted { .. }
            | EventKind::OrchestrationChained { .. }
            | EventKind::CustomStatusUpdated { .. }
            | EventKind::KeyValueSet { .. }
            | EventKind::KeyValueCleared { .. }
            | EventKind::KeyValuesCleared => {}
        }
    }

    /// Bytes of the names and ids that it holds.
    pub(super) fn name_bytes(&self) -> usize {
        self.child_bytes + self.signal_waits.name_bytes() + self.queue_reads.name_bytes()
    }

    #[inline(always)]
    fn schedule(&mut self, id: u64, kind: CompletableKind, child: Option<String>) {
        self.child_bytes += child.as_ref().map_or(0, String::len);
        self.schedules.insert(id, Schedule { kind, child, completed: false, cancel_requested: false });
    }
}
