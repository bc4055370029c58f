//! The events that end an instance whose messages were tried too often.

use everturn_core::{ErrorDetails, Event, EventKind, PoisonMessageType, WorkItem};

use super::duplicate_start::failure_notice;
use super::execution_start::ExecutionStart;
use super::execution_state::{ExecutionState, RecordedEnd};

/// Id of the failure event over a history that cannot be read, because the last id cannot be known. Most histories are
/// shorter. In a longer one the id is taken, and the failure cannot be recorded.
const UNREADABLE_HISTORY_EVENT_ID: u64 = 99_999;

/// A turn that is not tried again.
pub(super) struct PoisonedTurn {
    pub(super) state: ExecutionState,
    /// The version that the provider gave, for a start that names none.
    pub(super) version: String,
    pub(super) messages: Vec<WorkItem>,
    /// Set if the history or a message could not be read.
    pub(super) history_error: Option<String>,
    /// How many turns the execution has taken.
    pub(super) turns: u64,
}

/// What is known of a poisoned turn when its failure is recorded.
pub(super) struct PoisonFacts<'a> {
    pub(super) instance: &'a str,
    /// The current execution.
    pub(super) execution_id: u64,
    /// The version that the provider gave, for a start that names none.
    pub(super) version: &'a str,
    pub(super) state: &'a ExecutionState,
    pub(super) start: Option<&'a ExecutionStart>,
    /// The messages as JSON, after a line that says why they were not handled, if that is known.
    pub(super) messages_json: String,
    pub(super) attempt_count: u32,
    pub(super) max_attempts: u32,
    /// The texts of the failure are cut to this.
    pub(super) payload_bytes_max: usize,
    pub(super) now_ms: u64,
}

/// What is recorded of a poisoned turn.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PoisonRecord {
    pub(super) execution_id: u64,
    pub(super) history_delta: Vec<Event>,
    /// Messages to parents.
    pub(super) notices: Vec<WorkItem>,
}

/// The failure event, after the stored history or after a start event of its own. `None` if neither a message nor the
/// store says what the instance was to run.
pub(super) fn poison_record(facts: &PoisonFacts<'_>) -> Option<PoisonRecord> {
    let is_successor = facts.start.is_some_and(ExecutionStart::is_successor)
        || facts.state.end == Some(RecordedEnd::ContinuedAsNew);
    let execution_id = facts.execution_id.saturating_add(u64::from(is_successor));
    let details = ErrorDetails::Poison {
        attempt_count: facts.attempt_count,
        max_attempts: facts.max_attempts,
        message_type: PoisonMessageType::Orchestration { instance: facts.instance.to_owned(), execution_id },
        message: facts.messages_json.clone(),
    }
    .cut_to(facts.payload_bytes_max);
    let mut history_delta = Vec::new();
    let (last_event_id, parent) = if facts.state.has_history && !is_successor {
        (facts.state.last_event_id, facts.state.parent())
    } else {
        // Its start message or, for a successor that never came, the start of its predecessor.
        let start = facts.start.or(facts.state.start.as_deref())?;
        let version = start.version.as_deref().unwrap_or(facts.version);
        let event = start.to_event(facts.instance, execution_id, version, facts.now_ms);
        let last_event_id = event.event_id;
        history_delta.push(event);
        (last_event_id, start.parent.as_ref())
    };
    let notices = parent.into_iter().map(|parent| failure_notice(parent, details.clone())).collect();
    history_delta.push(Event::stamped(
        last_event_id.saturating_add(1),
        facts.instance,
        execution_id,
        None,
        facts.now_ms,
        EventKind::OrchestrationFailed { details },
    ));
    Some(PoisonRecord { execution_id, history_delta, notices })
}

/// The failure event over a history that cannot be read.
pub(super) fn unreadable_history_record(facts: &PoisonFacts<'_>, error: &str) -> PoisonRecord {
    let details = ErrorDetails::Poison {
        attempt_count: facts.attempt_count,
        max_attempts: facts.max_attempts,
        message_type: PoisonMessageType::FailedDeserialization {
            instance: facts.instance.to_owned(),
            execution_id: facts.execution_id,
            error: error.to_owned(),
        },
        message: error.to_owned(),
    }
    .cut_to(facts.payload_bytes_max);
    let failed = Event::stamped(
        UNREADABLE_HISTORY_EVENT_ID,
        facts.instance,
        facts.execution_id,
        None,
        facts.now_ms,
        EventKind::OrchestrationFailed { details },
    );
    PoisonRecord { execution_id: facts.execution_id, history_delta: vec![failed], notices: Vec::new() }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::execution_start::ParentCall;
    use super::*;

    fn facts<'a>(state: &'a ExecutionState, start: Option<&'a ExecutionStart>) -> PoisonFacts<'a> {
        PoisonFacts {
            instance: "i",
            execution_id: 1,
            version: "unknown",
            state,
            start,
            messages_json: "[]".into(),
            attempt_count: 11,
            max_attempts: 10,
            payload_bytes_max: 2_000,
            now_ms: 7,
        }
    }

    fn parent() -> ParentCall {
        ParentCall { instance: "p".into(), id: 3, execution_id: Some(1) }
    }

    fn running(end: Option<RecordedEnd>) -> ExecutionState {
        let start = ExecutionStart::recorded("N".into(), "1.0.0".into(), Some(parent()));
        ExecutionState { has_history: true, start: Some(Arc::new(start)), last_event_id: 5, end }
    }

    fn start(input: &str) -> ExecutionStart {
        ExecutionStart { name: "N".into(), version: None, parent: None, input: input.into(), carried: None }
    }

    #[test]
    fn failure_follows_the_last_event_and_the_parent_is_notified() {
        let state = running(None);
        let record = poison_record(&facts(&state, None)).unwrap();
        assert_eq!(record.execution_id, 1);
        assert_eq!(record.history_delta.len(), 1);
        assert_eq!(record.history_delta[0].event_id, 6);
        assert!(matches!(&record.notices[..], [WorkItem::SubOrchFailed { parent_id: 3, .. }]));
    }

    #[test]
    fn unstarted_instance_gets_a_start_event_first() {
        let state = ExecutionState::of(&[]);
        let item = start("x");
        let record = poison_record(&facts(&state, Some(&item))).unwrap();
        let ids: Vec<u64> = record.history_delta.iter().map(|event| event.event_id).collect();
        assert_eq!(ids, [1, 2]);
        assert!(matches!(&record.history_delta[0].kind,
            EventKind::OrchestrationStarted { input, version, .. } if input == "x" && version == "unknown"));
    }

    #[test]
    fn successor_that_never_came_is_recorded_as_its_own_execution() {
        let state = running(Some(RecordedEnd::ContinuedAsNew));
        let record = poison_record(&facts(&state, None)).unwrap();
        assert_eq!(record.execution_id, 2);
        assert!(matches!(&record.history_delta[0].kind,
            EventKind::OrchestrationStarted { input, parent_instance: Some(p), .. } if input.is_empty() && p == "p"));
        assert_eq!(record.notices.len(), 1);
    }

    #[test]
    fn a_batch_above_the_payload_limit_is_cut() {
        let state = running(None);
        let facts = PoisonFacts { messages_json: "m".repeat(3_000), ..facts(&state, None) };
        for record in [poison_record(&facts).unwrap(), unreadable_history_record(&facts, &"e".repeat(3_000))]
        {
            let EventKind::OrchestrationFailed { details: ErrorDetails::Poison { message, .. } } =
                &record.history_delta[0].kind
            else {
                panic!("{record:?}")
            };
            assert_eq!(message.len(), 2_000);
            assert!(message.ends_with(" … (cut, 3000 bytes in all)"), "{message}");
        }
    }

    #[test]
    fn nothing_to_run_is_not_recorded() {
        assert_eq!(poison_record(&facts(&ExecutionState::of(&[]), None)), None);
    }

    #[test]
    fn unreadable_history_gets_its_failure_at_the_fixed_id() {
        let state = ExecutionState::of(&[]);
        let record = unreadable_history_record(&facts(&state, None), "bad json");
        assert_eq!(record.history_delta[0].event_id, 99_999);
        assert!(record.notices.is_empty());
    }
}
