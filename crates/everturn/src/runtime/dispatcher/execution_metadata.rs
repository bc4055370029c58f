//! What a commit changes about the execution as a whole, derived from its new events.

use everturn_core::{Event, EventKind};
use everturn_provider::ExecutionMetadata;
use semver::Version;

/// Name, version, parent and pin from a start event; status and output from the first event that ends the execution.
pub(super) fn metadata_of_delta(delta: &[Event]) -> ExecutionMetadata {
    let mut metadata = ExecutionMetadata::default();
    for event in delta {
        let (status, output) = match &event.kind {
            EventKind::OrchestrationStarted { name, version, parent_instance, .. } => {
                metadata.orchestration_name = Some(name.clone());
                metadata.orchestration_version = Some(version.clone());
                metadata.parent_instance_id.clone_from(parent_instance);
                metadata.pinned_engine_version = Version::parse(&event.engine_version).ok();
                continue;
            }
            EventKind::OrchestrationCompleted { output } => ("Completed", output.clone()),
            EventKind::OrchestrationFailed { details } => ("Failed", details.display_message()),
            EventKind::OrchestrationContinuedAsNew { input } => ("ContinuedAsNew", input.clone()),
            _ => continue,
        };
        if metadata.status.is_none() {
            metadata.status = Some(status.to_owned());
            metadata.output = Some(output);
        }
    }
    metadata
}

#[cfg(test)]
mod tests {
    use everturn_core::{ErrorDetails, current_build_version};

    use super::*;

    fn event(kind: EventKind) -> Event {
        Event::stamped(1, "i", 1, None, 0, kind)
    }

    #[test]
    fn start_event_gives_name_version_parent_and_pin() {
        let metadata = metadata_of_delta(&[event(EventKind::OrchestrationStarted {
            name: "N".into(),
            version: "2.0.0".into(),
            input: String::new(),
            parent_instance: Some("p".into()),
            parent_id: Some(1),
            parent_execution_id: None,
            carry_forward_events: None,
            initial_custom_status: None,
        })]);
        assert_eq!(metadata.orchestration_name.as_deref(), Some("N"));
        assert_eq!(metadata.orchestration_version.as_deref(), Some("2.0.0"));
        assert_eq!(metadata.parent_instance_id.as_deref(), Some("p"));
        assert_eq!(metadata.pinned_engine_version, Some(current_build_version()));
        assert_eq!(metadata.status, None);
    }

    #[test]
    fn first_terminal_event_gives_status_and_output() {
        let failed =
            event(EventKind::OrchestrationFailed { details: ErrorDetails::orchestration_failed("boom") });
        let completed = event(EventKind::OrchestrationCompleted { output: "o".into() });
        let metadata = metadata_of_delta(&[failed, completed]);
        assert_eq!(metadata.status.as_deref(), Some("Failed"));
        assert_eq!(metadata.output.as_deref(), Some("boom"));
        let continued = event(EventKind::OrchestrationContinuedAsNew { input: "next".into() });
        assert_eq!(metadata_of_delta(&[continued]).output.as_deref(), Some("next"));
    }

    #[test]
    fn a_turn_without_an_end_says_nothing() {
        let metadata = metadata_of_delta(&[event(EventKind::KeyValuesCleared)]);
        assert!(
            metadata.status.is_none() && metadata.output.is_none() && metadata.orchestration_name.is_none()
        );
    }
}
