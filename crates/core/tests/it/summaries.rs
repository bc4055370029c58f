//! Events and work items as short lines, so that a test can show a whole history.

use everturn_core::turn::{CancelledChild, Turn};
use everturn_core::{Event, EventKind, WorkItem};

/// One line per event: `id<source kind details`.
pub fn summarize(events: &[Event]) -> Vec<String> {
    events.iter().map(line).collect()
}

fn line(event: &Event) -> String {
    let source = event.source_event_id.map(|source| format!("<{source}")).unwrap_or_default();
    format!("{}{source} {}", event.event_id, words(&event.kind))
}

fn words(kind: &EventKind) -> String {
    match kind {
        EventKind::OrchestrationStarted { .. } => "started".to_owned(),
        EventKind::OrchestrationCompleted { output } => format!("completed {output}"),
        EventKind::OrchestrationFailed { details } => format!("failed {}", details.display_message()),
        EventKind::OrchestrationContinuedAsNew { input } => format!("continued {input}"),
        EventKind::OrchestrationCancelRequested { reason } => format!("cancel {reason}"),
        EventKind::ActivityScheduled { name, input, session_id, tag } => {
            let session = session_id.as_ref().map(|session| format!(" @{session}")).unwrap_or_default();
            let tag = tag.as_ref().map(|tag| format!(" #{tag}")).unwrap_or_default();
            format!("activity {name} {input}{session}{tag}")
        }
        EventKind::ActivityCompleted { result } => format!("activity-completed {result}"),
        EventKind::ActivityFailed { details } => format!("activity-failed {}", details.display_message()),
        EventKind::ActivityCancelRequested { reason } => format!("activity-cancelled {reason}"),
        EventKind::TimerCreated { fire_at_ms } => format!("timer {fire_at_ms}"),
        EventKind::TimerFired { .. } => "fired".to_owned(),
        EventKind::ExternalSubscribed { name } => format!("wait {name}"),
        EventKind::ExternalEvent { name, data } => format!("signal {name} {data}"),
        EventKind::ExternalSubscribedCancelled { reason } => format!("wait-cancelled {reason}"),
        EventKind::QueueSubscribed { name } => format!("dequeue {name}"),
        EventKind::QueueEventDelivered { name, data } => format!("queued {name} {data}"),
        EventKind::QueueSubscriptionCancelled { reason } => format!("dequeue-cancelled {reason}"),
        EventKind::OrchestrationChained { name, instance, input } => {
            format!("detached {name} {instance} {input}")
        }
        EventKind::SubOrchestrationScheduled { name, instance, input } => {
            format!("child {name} {instance} {input}")
        }
        EventKind::SubOrchestrationCompleted { result } => format!("child-completed {result}"),
        EventKind::SubOrchestrationFailed { details } => {
            format!("child-failed {}", details.display_message())
        }
        EventKind::SubOrchestrationCancelRequested { reason } => format!("child-cancelled {reason}"),
        EventKind::CustomStatusUpdated { status } => format!("status {status:?}"),
        EventKind::KeyValueSet { key, value, .. } => format!("set {key}={value}"),
        EventKind::KeyValueCleared { key } => format!("clear {key}"),
        EventKind::KeyValuesCleared => "clear-all".to_owned(),
    }
}

/// One line per work item of the turn: those for workers first, then those for orchestrations, then cancelled children.
pub fn sent(turn: &Turn) -> Vec<String> {
    let cancelled = |child: &CancelledChild| format!("cancel {}: {}", child.instance, child.reason);
    let items = turn.worker_items.iter().chain(&turn.orchestrator_items).map(item);
    items.chain(turn.cancelled_children.iter().map(cancelled)).collect()
}

fn item(item: &WorkItem) -> String {
    match item {
        WorkItem::ActivityExecute { id, name, input, .. } => format!("run {id} {name} {input}"),
        WorkItem::TimerFired { id, fire_at_ms, .. } => format!("fire {id} {fire_at_ms}"),
        WorkItem::StartOrchestration { instance, orchestration, input, parent_instance: Some(_), .. } => {
            format!("start child {orchestration} {instance} {input}")
        }
        WorkItem::StartOrchestration { instance, orchestration, input, .. } => {
            format!("start {orchestration} {instance} {input}")
        }
        WorkItem::SubOrchCompleted { parent_instance, parent_id, result, .. } => {
            format!("notify {parent_instance} {parent_id} ok {result}")
        }
        WorkItem::SubOrchFailed { parent_instance, parent_id, details, .. } => {
            format!("notify {parent_instance} {parent_id} failed {}", details.display_message())
        }
        WorkItem::ContinueAsNew { input, .. } => format!("successor {input}"),
        other => format!("{other:?}"),
    }
}
