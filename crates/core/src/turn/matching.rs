//! Replay's comparison of what the code asks for with what history recorded.

use crate::action::{Action, EmittedAction};
use crate::codec::is_same_payload;
use crate::limits::PayloadTooLarge;
use crate::{AppErrorKind, ErrorDetails, Event, EventKind};

/// Whether `event` records this action. `next` is the event after it, which shows whether the call was refused.
pub(super) fn fits(action: &Action, event: &Event, next: Option<&Event>) -> bool {
    let recorded = &event.kind;
    match action {
        Action::Activity { name, input, session_id, tag } => matches!(
            recorded,
            EventKind::ActivityScheduled { name: was_name, input: was_input, session_id: was_session, tag: was_tag }
                if name == was_name
                    && session_id == was_session
                    && tag == was_tag
                    && (is_same_payload(input, was_input) || was_refused(event, was_input, next))
        ),
        Action::SubOrchestration { name, input, .. } => matches!(
            recorded,
            EventKind::SubOrchestrationScheduled { name: was_name, input: was_input, .. }
                if name == was_name && (is_same_payload(input, was_input) || was_refused(event, was_input, next))
        ),
        Action::StartDetached { name, instance, input, .. } => matches!(
            recorded,
            EventKind::OrchestrationChained { name: was_name, instance: was_instance, input: was_input }
                if name == was_name && instance == was_instance && is_same_payload(input, was_input)
        ),
        Action::Timer { .. } => matches!(recorded, EventKind::TimerCreated { .. }),
        Action::Wait { name } => {
            matches!(recorded, EventKind::ExternalSubscribed { name: was } if name == was)
        }
        Action::Dequeue { name } => {
            matches!(recorded, EventKind::QueueSubscribed { name: was } if name == was)
        }
        Action::SetCustomStatus { .. } => matches!(recorded, EventKind::CustomStatusUpdated { .. }),
        Action::SetKv { key, value, .. } => matches!(
            recorded,
            EventKind::KeyValueSet { key: was_key, value: was_value, .. } if key == was_key && value == was_value
        ),
        Action::ClearKv { key } => {
            matches!(recorded, EventKind::KeyValueCleared { key: was } if key == was)
        }
        Action::ClearAllKv => matches!(recorded, EventKind::KeyValuesCleared),
        Action::ContinueAsNew { .. } => false,
    }
}

/// Whether the call that `event` records was refused for its payload: its input is empty and `next` is its failure
/// with a [`PayloadTooLarge`].
fn was_refused(event: &Event, input: &str, next: Option<&Event>) -> bool {
    let Some(next) = next.filter(|next| input.is_empty() && next.source_event_id == Some(event.event_id))
    else {
        return false;
    };
    let (EventKind::ActivityFailed { details } | EventKind::SubOrchestrationFailed { details }) = &next.kind
    else {
        return false;
    };
    let ErrorDetails::Application { kind, message, .. } = details else { return false };
    match kind {
        AppErrorKind::ActivityFailed | AppErrorKind::OrchestrationFailed => {
            PayloadTooLarge::from_recorded(message).is_some()
        }
        AppErrorKind::Panicked | AppErrorKind::Cancelled { .. } => false,
    }
}

/// The failure if the code asks for something else than `event` records. `what` is the kind of mismatch.
pub(super) fn mismatch(what: &str, emitted: &EmittedAction, event: &Event) -> ErrorDetails {
    ErrorDetails::nondeterminism(format!(
        "{what}: action={:?} vs event={:?} (history recorded event {}, the code now asks for this at {})",
        emitted.action, event.kind, event.event_id, emitted.location
    ))
}

/// The failure if the code asks for nothing where `event` records a call.
pub(super) fn no_action(event: &Event) -> ErrorDetails {
    let what = match event.kind {
        EventKind::OrchestrationChained { .. } => "history OrchestrationChained but no emitted action",
        _ => "history schedule but no emitted action",
    };
    ErrorDetails::nondeterminism(format!(
        "{what} (history recorded event {}: {:?}; the code now asks for nothing there)",
        event.event_id, event.kind
    ))
}
