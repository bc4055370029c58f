//! In how many places scheduled work is; it must be exactly one.

use everturn::{Event, EventKind, build_child_instance_id};
use everturn_core::WorkItem;

use crate::tables::StoredTables;

fn recorded(events: &[&Event], of: u64, test: impl Fn(&EventKind) -> bool) -> usize {
    events.iter().filter(|event| event.source_event_id == Some(of) && test(&event.kind)).count()
}

/// An activity: in the worker queue, completed in the orchestrator queue, or recorded.
pub(crate) fn activity_places(tables: &StoredTables, events: &[&Event], of: (&str, u64, u64)) -> usize {
    let queued = tables.activities.iter().filter(|row| (row.of.0.as_str(), row.of.1, row.of.2) == of).count();
    let returning = tables.messages.iter().filter(|message| match &message.item {
        WorkItem::ActivityCompleted { instance, execution_id, id, .. }
        | WorkItem::ActivityFailed { instance, execution_id, id, .. } => {
            (instance.as_str(), *execution_id, *id) == of
        }
        _ => false,
    });
    let recorded = recorded(events, of.2, |kind| {
        matches!(kind, EventKind::ActivityCompleted { .. } | EventKind::ActivityFailed { .. })
    });
    queued + returning.count() + recorded
}

/// A timer: in the orchestrator queue, or recorded.
pub(crate) fn timer_places(tables: &StoredTables, events: &[&Event], of: (&str, u64, u64)) -> usize {
    let queued = tables.messages.iter().filter(|message| match &message.item {
        WorkItem::TimerFired { instance, execution_id, id, .. } => {
            (instance.as_str(), *execution_id, *id) == of
        }
        _ => false,
    });
    queued.count() + recorded(events, of.2, |kind| matches!(kind, EventKind::TimerFired { .. }))
}

/// A child: started and not ended, ended with its completion in the orchestrator queue, or recorded.
pub(crate) fn child_places(
    tables: &StoredTables,
    events: &[&Event],
    of: (&str, u64, u64),
    suffix: &str,
) -> usize {
    let child = build_child_instance_id(of.0, suffix);
    let under_way = usize::from(
        tables.messages_to(&child).any(WorkItem::is_start)
            || (tables.executions_of(&child).next().is_some() && !tables.has_ended(&child)),
    );
    let returning = tables.messages.iter().filter(|message| match &message.item {
        WorkItem::SubOrchCompleted { parent_instance, parent_execution_id, parent_id, .. }
        | WorkItem::SubOrchFailed { parent_instance, parent_execution_id, parent_id, .. } => {
            (parent_instance.as_str(), *parent_execution_id, *parent_id) == of
        }
        _ => false,
    });
    let recorded = recorded(events, of.2, |kind| {
        matches!(kind, EventKind::SubOrchestrationCompleted { .. } | EventKind::SubOrchestrationFailed { .. })
    });
    under_way + returning.count() + recorded
}

/// A detached instance: its start in the orchestrator queue, or an execution.
pub(crate) fn detached_places(tables: &StoredTables, instance: &str) -> usize {
    let starts = tables.messages_to(instance).filter(|item| item.is_start()).count();
    starts + usize::from(tables.executions_of(instance).next().is_some())
}
