//! What a commit changes about the execution as a whole, derived from its new events.

use everturn_core::{EndEvent, Event, EventKind};
use everturn_provider::store::ExecutionUpdate;
use semver::Version;

/// Name, version, parent and pin from a start event; status and output from the first event that ends the execution.
pub(super) fn update_of_delta(delta: &[Event]) -> ExecutionUpdate {
    let mut update = ExecutionUpdate::default();
    for event in delta {
        if let EventKind::OrchestrationStarted { name, version, parent_instance, .. } = &event.kind {
            update.orchestration_name = Some(name.clone());
            update.orchestration_version = Some(version.clone());
            update.parent_instance_id.clone_from(parent_instance);
            update.pinned_engine_version = Version::parse(&event.engine_version).ok();
        }
        if let Some(end) = event.kind.ends_as().filter(|_| update.status.is_none()) {
            update.status = Some(end.status());
            update.output = Some(match end {
                EndEvent::Completed { output } => output.to_owned(),
                EndEvent::Failed { details } => details.display_message(),
                EndEvent::ContinuedAsNew { input } => input.to_owned(),
            });
        }
    }
    update
}

#[cfg(test)]
mod tests {
    use everturn_core::{ErrorDetails, ExecutionStatus, current_build_version};

    use super::*;

    fn event(kind: EventKind) -> Event {
        Event::stamped(1, "i", 1, None, 0, kind)
    }

    #[test]
    fn start_event_gives_name_version_parent_and_pin() {
        let update = update_of_delta(&[event(EventKind::OrchestrationStarted {
            name: "N".into(),
            version: "2.0.0".into(),
            input: String::new(),
            parent_instance: Some("p".into()),
            parent_id: Some(1),
            parent_execution_id: None,
            carry_forward_events: None,
            initial_custom_status: None,
        })]);
        assert_eq!(update.orchestration_name.as_deref(), Some("N"));
        assert_eq!(update.orchestration_version.as_deref(), Some("2.0.0"));
        assert_eq!(update.parent_instance_id.as_deref(), Some("p"));
        assert_eq!(update.pinned_engine_version, Some(current_build_version()));
        assert_eq!(update.status, None);
    }

    #[test]
    fn first_terminal_event_gives_status_and_output() {
        let failed =
            event(EventKind::OrchestrationFailed { details: ErrorDetails::orchestration_failed("boom") });
        let completed = event(EventKind::OrchestrationCompleted { output: "o".into() });
        let update = update_of_delta(&[failed, completed]);
        assert_eq!(update.status, Some(ExecutionStatus::Failed));
        assert_eq!(update.output.as_deref(), Some("boom"));
        let continued = event(EventKind::OrchestrationContinuedAsNew { input: "next".into() });
        assert_eq!(update_of_delta(&[continued]).output.as_deref(), Some("next"));
    }

    #[test]
    fn a_turn_without_an_end_says_nothing() {
        let update = update_of_delta(&[event(EventKind::KeyValuesCleared)]);
        assert!(update.status.is_none() && update.output.is_none() && update.orchestration_name.is_none());
    }
}
