//! Ending an instance from outside its code: what is recorded when its turn cannot be.

use everturn_core::{ErrorDetails, Event, EventKind, WorkItem, build_child_instance_id};

use super::collision::failure_notice;
use super::standing::Standing;

/// An instance's failure, ready to commit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ForcedFailure {
    pub(crate) history_delta: Vec<Event>,
    /// Cancellations of open children and the parent's notice.
    pub(crate) orchestrator_items: Vec<WorkItem>,
    /// Schedule ids of open activities.
    pub(crate) cancelled_activities: Vec<u64>,
}

/// Fails an execution with this stored history. For one that has none, `start` is recorded first.
pub(crate) fn fail(
    instance: &str,
    execution_id: u64,
    history: &[Event],
    start: Option<Event>,
    details: ErrorDetails,
    now_ms: u64,
) -> ForcedFailure {
    let mut history_delta: Vec<Event> =
        if history.is_empty() { start.into_iter().collect() } else { Vec::new() };
    let standing = Standing::of(if history.is_empty() { &history_delta } else { history });
    let mut open_children = Vec::new();
    let mut cancelled_activities = Vec::new();
    for event in history {
        match &event.kind {
            EventKind::ActivityScheduled { .. } => cancelled_activities.push(event.event_id),
            EventKind::SubOrchestrationScheduled { instance: child, .. } => {
                open_children.push((event.event_id, child));
            }
            EventKind::ActivityCompleted { .. }
            | EventKind::ActivityFailed { .. }
            | EventKind::ActivityCancelRequested { .. } => {
                cancelled_activities.retain(|id| Some(*id) != event.source_event_id);
            }
            EventKind::SubOrchestrationCompleted { .. }
            | EventKind::SubOrchestrationFailed { .. }
            | EventKind::SubOrchestrationCancelRequested { .. } => {
                open_children.retain(|(id, _)| Some(*id) != event.source_event_id);
            }
            _ => {}
        }
    }
    let mut orchestrator_items: Vec<WorkItem> = open_children
        .into_iter()
        .map(|(_, child)| WorkItem::CancelInstance {
            instance: build_child_instance_id(instance, child),
            reason: "parent failed".to_owned(),
        })
        .collect();
    orchestrator_items.extend(standing.parent().map(|parent| failure_notice(parent, details.clone())));
    history_delta.push(Event::stamped(
        standing.last_event_id.saturating_add(1),
        instance,
        execution_id,
        None,
        now_ms,
        EventKind::OrchestrationFailed { details },
    ));
    ForcedFailure { history_delta, orchestrator_items, cancelled_activities }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(id: u64, source: Option<u64>, kind: EventKind) -> Event {
        Event::stamped(id, "i", 1, source, 0, kind)
    }

    fn started() -> Event {
        event(
            1,
            None,
            EventKind::OrchestrationStarted {
                name: "N".into(),
                version: "1.0.0".into(),
                input: String::new(),
                parent_instance: Some("p".into()),
                parent_id: Some(9),
                parent_execution_id: Some(2),
                carry_forward_events: None,
                initial_custom_status: None,
            },
        )
    }

    fn activity(id: u64) -> Event {
        let kind = EventKind::ActivityScheduled {
            name: "A".into(),
            input: String::new(),
            session_id: None,
            tag: None,
        };
        event(id, None, kind)
    }

    fn child(id: u64, instance: &str) -> Event {
        let kind = EventKind::SubOrchestrationScheduled {
            name: "C".into(),
            instance: instance.into(),
            input: String::new(),
        };
        event(id, None, kind)
    }

    #[test]
    fn open_work_is_withdrawn_and_the_parent_is_told() {
        let history = [
            started(),
            activity(2),
            activity(3),
            child(4, "sub::4"),
            child(5, "other"),
            event(6, Some(2), EventKind::ActivityCompleted { result: String::new() }),
            event(7, Some(5), EventKind::SubOrchestrationCompleted { result: String::new() }),
        ];
        let failure = fail("i", 1, &history, None, ErrorDetails::nondeterminism("x"), 0);
        assert_eq!(failure.cancelled_activities, [3]);
        assert_eq!(failure.history_delta.len(), 1);
        assert_eq!(failure.history_delta[0].event_id, 8);
        assert!(matches!(&failure.orchestrator_items[..], [
            WorkItem::CancelInstance { instance, reason },
            WorkItem::SubOrchFailed { parent_id: 9, parent_execution_id: 2, .. },
        ] if instance == "i::sub::4" && reason == "parent failed"));
    }

    #[test]
    fn an_execution_without_history_is_started_first() {
        let failure = fail("i", 1, &[], Some(started()), ErrorDetails::nondeterminism("x"), 0);
        let ids: Vec<u64> = failure.history_delta.iter().map(|event| event.event_id).collect();
        assert_eq!(ids, [1, 2]);
        assert_eq!(failure.orchestrator_items.len(), 1);
    }
}
