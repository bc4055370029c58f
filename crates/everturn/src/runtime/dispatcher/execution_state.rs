//! What is stored of an execution before its turn.

use std::sync::Arc;

use everturn_core::{Event, EventKind};

use super::execution_start::{ExecutionStart, ParentCall};

/// The state of an execution before its turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExecutionState {
    pub(crate) has_history: bool,
    /// How it began, if that is recorded.
    pub(crate) start: Option<Arc<ExecutionStart>>,
    /// Id of its last event, or 0.
    pub(crate) last_event_id: u64,
    /// How it ended; `None` while it runs.
    pub(crate) end: Option<RecordedEnd>,
}

/// How an execution ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordedEnd {
    /// Completed or failed: the instance has ended.
    Terminal,
    /// A successor follows.
    ContinuedAsNew,
}

impl ExecutionState {
    /// The state that a history leads to.
    pub(crate) fn of(history: &[Event]) -> Self {
        let mut end = None;
        for ended in history.iter().filter_map(|event| event.kind.ends_as()) {
            if ended.status().is_terminal() {
                end = Some(RecordedEnd::Terminal);
            } else {
                end = end.or(Some(RecordedEnd::ContinuedAsNew));
            }
        }
        Self {
            has_history: !history.is_empty(),
            start: history.iter().find_map(ExecutionStart::from_event).map(Arc::new),
            last_event_id: history.last().map_or(0, |event| event.event_id),
            end,
        }
    }

    /// The call of a parent that waits for this instance.
    pub(crate) fn parent(&self) -> Option<&ParentCall> {
        self.start.as_ref().and_then(|start| start.parent.as_ref())
    }
}

/// How many turns wrote this history, as far as it shows: a turn begins where a message follows a decision.
pub(crate) fn turns_in(history: &[Event]) -> u64 {
    let mut turns = 0;
    let mut after_decision = true;
    for event in history {
        let is_message = is_message(&event.kind);
        if is_message && after_decision {
            turns += 1;
        }
        after_decision = !is_message;
    }
    turns
}

/// Returns true for events that a message brought, false for those that record a decision of the code.
fn is_message(kind: &EventKind) -> bool {
    match kind {
        EventKind::OrchestrationStarted { .. }
        | EventKind::ActivityCompleted { .. }
        | EventKind::ActivityFailed { .. }
        | EventKind::TimerFired { .. }
        | EventKind::ExternalEvent { .. }
        | EventKind::QueueEventDelivered { .. }
        | EventKind::SubOrchestrationCompleted { .. }
        | EventKind::SubOrchestrationFailed { .. }
        | EventKind::OrchestrationCancelRequested { .. } => true,
        EventKind::OrchestrationCompleted { .. }
        | EventKind::OrchestrationFailed { .. }
        | EventKind::OrchestrationContinuedAsNew { .. }
        | EventKind::OrchestrationChained { .. }
        | EventKind::ActivityScheduled { .. }
        | EventKind::ActivityCancelRequested { .. }
        | EventKind::TimerCreated { .. }
        | EventKind::ExternalSubscribed { .. }
        | EventKind::ExternalSubscribedCancelled { .. }
        | EventKind::QueueSubscribed { .. }
        | EventKind::QueueSubscriptionCancelled { .. }
        | EventKind::SubOrchestrationScheduled { .. }
        | EventKind::SubOrchestrationCancelRequested { .. }
        | EventKind::CustomStatusUpdated { .. }
        | EventKind::KeyValueSet { .. }
        | EventKind::KeyValueCleared { .. }
        | EventKind::KeyValuesCleared => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(id: u64, kind: EventKind) -> Event {
        Event::stamped(id, "i", 1, None, 0, kind)
    }

    fn started() -> EventKind {
        EventKind::OrchestrationStarted {
            name: "N".into(),
            version: "1.0.0".into(),
            input: String::new(),
            parent_instance: Some("p".into()),
            parent_id: Some(4),
            parent_execution_id: None,
            carry_forward_events: None,
            initial_custom_status: None,
        }
    }

    #[test]
    fn empty_history_has_no_start_and_no_end() {
        let state = ExecutionState::of(&[]);
        assert_eq!(state, ExecutionState { has_history: false, start: None, last_event_id: 0, end: None });
    }

    #[test]
    fn start_event_tells_name_version_and_parent() {
        let state = ExecutionState::of(&[event(1, started())]);
        assert_eq!(state.last_event_id, 1);
        assert_eq!(state.end, None);
        assert_eq!(state.parent().unwrap().id, 4);
        let start = state.start.unwrap();
        assert_eq!((start.name.as_str(), start.version_text()), ("N", "1.0.0"));
    }

    #[test]
    fn failure_after_continue_as_new_is_terminal() {
        let can = event(2, EventKind::OrchestrationContinuedAsNew { input: String::new() });
        let details = everturn_core::ErrorDetails::nondeterminism("x");
        let failed = event(99_999, EventKind::OrchestrationFailed { details });
        let continued = [event(1, started()), can];
        assert_eq!(ExecutionState::of(&continued).end, Some(RecordedEnd::ContinuedAsNew));
        let [started, can] = continued;
        assert_eq!(ExecutionState::of(&[started, can, failed]).end, Some(RecordedEnd::Terminal));
    }

    #[test]
    fn turn_begins_where_a_message_follows_a_decision() {
        let scheduled = || EventKind::ActivityScheduled {
            name: "A".into(),
            input: String::new(),
            session_id: None,
            tag: None,
        };
        let done = || EventKind::ActivityCompleted { result: String::new() };
        let history: Vec<Event> = [started(), scheduled(), scheduled(), done(), done(), scheduled(), done()]
            .into_iter()
            .map(|kind| event(1, kind))
            .collect();
        assert_eq!(turns_in(&history), 3);
    }

    #[test]
    fn an_instance_that_no_parent_called_has_no_parent() {
        assert_eq!(ExecutionState::of(&[]).parent(), None);
        let mut by_client = started();
        if let EventKind::OrchestrationStarted { parent_instance, parent_id, .. } = &mut by_client {
            (*parent_instance, *parent_id) = (None, None);
        }
        assert_eq!(ExecutionState::of(&[event(1, by_client)]).parent(), None);
    }
}
