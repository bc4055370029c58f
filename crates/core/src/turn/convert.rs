//! From messages to events.

use tracing::warn;

use super::ledger::{Completable, Ledger};
use super::{ExecutionIdentity, TurnClock};
use crate::{ErrorDetails, Event, EventKind, WorkItem};

/// The events of a batch of messages, and why the turn cannot go on if one of them says so.
pub(super) struct Converted {
    pub(super) events: Vec<Event>,
    pub(super) abort: Option<ErrorDetails>,
}

/// Turns messages into events, in their order, and records each in the ledger.
pub(super) fn convert(
    ledger: &mut Ledger,
    identity: &ExecutionIdentity,
    messages: Vec<WorkItem>,
    clock: &dyn TurnClock,
) -> Converted {
    let mut conversion = Conversion { ledger, identity, clock, events: Vec::new(), abort: None };
    for message in messages {
        conversion.message(message);
    }
    Converted { events: conversion.events, abort: conversion.abort }
}

struct Conversion<'a> {
    ledger: &'a mut Ledger,
    identity: &'a ExecutionIdentity,
    clock: &'a dyn TurnClock,
    events: Vec<Event>,
    abort: Option<ErrorDetails>,
}

/// A completion: which execution's schedule it answers, and with what.
struct Completion {
    execution_id: u64,
    source: u64,
    kind: EventKind,
}

impl Conversion<'_> {
    fn message(&mut self, message: WorkItem) {
        match message {
            WorkItem::ExternalRaised { name, data, .. } => {
                self.append(None, EventKind::ExternalEvent { name, data });
            }
            WorkItem::QueueMessage { name, data, .. } => {
                self.append(None, EventKind::QueueEventDelivered { name, data });
            }
            WorkItem::CancelInstance { reason, .. } => self.cancel(reason),
            WorkItem::ActivityCompleted { execution_id, id, result, .. } => {
                self.completion(Completion {
                    execution_id,
                    source: id,
                    kind: EventKind::ActivityCompleted { result },
                });
            }
            WorkItem::ActivityFailed { execution_id, id, details, .. } => {
                self.completion(Completion {
                    execution_id,
                    source: id,
                    kind: EventKind::ActivityFailed { details },
                });
            }
            WorkItem::TimerFired { execution_id, id, fire_at_ms, .. } => {
                self.completion(Completion {
                    execution_id,
                    source: id,
                    kind: EventKind::TimerFired { fire_at_ms },
                });
            }
            WorkItem::SubOrchCompleted { parent_execution_id, parent_id, result, .. } => {
                self.completion(Completion {
                    execution_id: parent_execution_id,
                    source: parent_id,
                    kind: EventKind::SubOrchestrationCompleted { result },
                });
            }
            WorkItem::SubOrchFailed { parent_execution_id, parent_id, details, .. } => {
                self.completion(Completion {
                    execution_id: parent_execution_id,
                    source: parent_id,
                    kind: EventKind::SubOrchestrationFailed { details },
                });
            }
            WorkItem::StartOrchestration { .. }
            | WorkItem::ContinueAsNew { .. }
            | WorkItem::ActivityExecute { .. } => {
                warn!(target: "everturn::runtime", instance_id = %self.identity.instance, "a message that no turn takes was ignored");
            }
        }
    }

    fn cancel(&mut self, reason: String) {
        if self.ledger.cancel_reason().is_none() && !self.ledger.is_terminal() {
            self.append(None, EventKind::OrchestrationCancelRequested { reason });
        }
    }

    fn completion(&mut self, completion: Completion) {
        let Completion { execution_id, source, kind } = completion;
        if execution_id != self.identity.execution_id {
            warn!(
                target: "everturn::runtime",
                instance_id = %self.identity.instance,
                execution_id = %self.identity.execution_id,
                "a completion for execution {execution_id} was dropped"
            );
            return;
        }
        let got = word_of(&kind);
        match self.ledger.schedule(source) {
            Some(schedule) if schedule.kind.word() == got && schedule.completed => return,
            Some(schedule) if schedule.kind.word() == got => {}
            Some(schedule) => {
                let expected = schedule.kind.word();
                self.abort_with(format!(
                    "completion kind mismatch for id={source}, expected '{expected}', got '{got}'"
                ));
                return;
            }
            None => {
                let what = match got {
                    "timer" => "timer",
                    "suborchestration" => "sub-orchestration",
                    _ => "completion",
                };
                self.abort_with(format!("no matching schedule for {what} id={source}"));
                return;
            }
        }
        if let EventKind::ActivityFailed { details } | EventKind::SubOrchestrationFailed { details } = &kind
            && !matches!(details, ErrorDetails::Application { .. })
        {
            self.abort.get_or_insert_with(|| details.clone());
        }
        self.append(Some(source), kind);
    }

    fn abort_with(&mut self, message: String) {
        self.abort.get_or_insert_with(|| ErrorDetails::nondeterminism(message));
    }

    fn append(&mut self, source: Option<u64>, kind: EventKind) {
        let event = Event::stamped(
            self.ledger.next_event_id(),
            &self.identity.instance,
            self.identity.execution_id,
            source,
            self.clock.stamp_ms(),
            kind,
        );
        self.ledger.record(&event);
        self.events.push(event);
    }
}

fn word_of(kind: &EventKind) -> &'static str {
    match kind {
        EventKind::TimerFired { .. } => Completable::Timer.word(),
        EventKind::SubOrchestrationCompleted { .. } | EventKind::SubOrchestrationFailed { .. } => {
            "suborchestration"
        }
        _ => Completable::Activity.word(),
    }
}
