//! Does what the code asks for now fit what history recorded?

use crate::action::{Action, Emitted};
use crate::limits::PAYLOAD_REFUSAL_PREFIX;
use crate::{AppErrorKind, ErrorDetails, Event, EventKind};

/// Whether `next` shows that the call recorded by `event` was refused for its payload: its input was not kept then.
pub(super) fn was_refused(event: &Event, next: Option<&Event>) -> bool {
    let (EventKind::ActivityScheduled { input, .. } | EventKind::SubOrchestrationScheduled { input, .. }) =
        &event.kind
    else {
        return false;
    };
    let Some(next) = next.filter(|next| input.is_empty() && next.source_event_id == Some(event.event_id))
    else {
        return false;
    };
    let (EventKind::ActivityFailed { details } | EventKind::SubOrchestrationFailed { details }) = &next.kind
    else {
        return false;
    };
    matches!(
        details,
        ErrorDetails::Application { kind: AppErrorKind::ActivityFailed | AppErrorKind::OrchestrationFailed, message, .. }
            if message.starts_with(PAYLOAD_REFUSAL_PREFIX)
    )
}

/// Whether an action is the one that a schedule event records. `refused` leaves the input out of the comparison.
pub(super) fn fits(action: &Action, event: &EventKind, refused: bool) -> bool {
    match (action, event) {
        (
            Action::Activity { name, input, session_id, tag },
            EventKind::ActivityScheduled {
                name: was_name,
                input: was_input,
                session_id: was_session,
                tag: was_tag,
            },
        ) => {
            name == was_name && (refused || input == was_input) && session_id == was_session && tag == was_tag
        }
        (Action::Timer { .. }, EventKind::TimerCreated { .. })
        | (Action::SetCustomStatus { .. }, EventKind::CustomStatusUpdated { .. })
        | (Action::ClearAllKv, EventKind::KeyValuesCleared) => true,
        (Action::Wait { name }, EventKind::ExternalSubscribed { name: was })
        | (Action::Dequeue { name }, EventKind::QueueSubscribed { name: was }) => name == was,
        (
            Action::SubOrchestration { name, input, .. },
            EventKind::SubOrchestrationScheduled { name: was_name, input: was_input, .. },
        ) => name == was_name && (refused || input == was_input),
        (
            Action::StartDetached { name, instance, input, .. },
            EventKind::OrchestrationChained { name: was_name, instance: was_instance, input: was_input },
        ) => name == was_name && instance == was_instance && input == was_input,
        (Action::SetKv { key, value, .. }, EventKind::KeyValueSet { key: was_key, value: was_value, .. }) => {
            key == was_key && value == was_value
        }
        (Action::ClearKv { key }, EventKind::KeyValueCleared { key: was }) => key == was,
        _ => false,
    }
}

/// What the contract calls a mismatch with this event.
fn mismatch_word(event: &EventKind) -> &'static str {
    match event {
        EventKind::CustomStatusUpdated { .. } => "custom status mismatch",
        EventKind::KeyValueSet { .. } => "kv set mismatch",
        EventKind::KeyValueCleared { .. } => "kv clear mismatch",
        EventKind::KeyValuesCleared => "kv clear_all mismatch",
        _ => "schedule mismatch",
    }
}

/// The code asked for something else.
pub(super) fn mismatch(emitted: &Emitted, event: &Event) -> ErrorDetails {
    ErrorDetails::nondeterminism(format!(
        "{}: action={:?} vs event={:?} (history recorded event {}, the code now asks for this at {})",
        mismatch_word(&event.kind),
        emitted.action,
        event.kind,
        event.event_id,
        emitted.location
    ))
}

/// The code asked for nothing where history records something.
pub(super) fn nothing_asked(event: &Event) -> ErrorDetails {
    let what = match event.kind {
        EventKind::OrchestrationChained { .. } => "history OrchestrationChained but no emitted action",
        _ => "history schedule but no emitted action",
    };
    ErrorDetails::nondeterminism(format!(
        "{what} (history recorded event {}: {:?}; the code now asks for nothing there)",
        event.event_id, event.kind
    ))
}
