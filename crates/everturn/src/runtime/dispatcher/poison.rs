//! Ending an instance whose messages were tried too often.

use everturn_core::{ErrorDetails, Event, EventKind, PoisonMessageType, WorkItem};

use super::batch::StartItem;
use super::collision::failure_notice;
use super::standing::{End, Standing};
use super::start_event::start_event;

/// The failure event over a history that cannot be read bears this id, because the last one cannot be known. It is
/// beyond what most histories reach; in one that is longer it is taken, and the failure cannot be recorded.
const UNREADABLE_HISTORY_EVENT_ID: u64 = 99_999;

/// What is known of the poisoned batch.
pub(crate) struct PoisonedBatch<'a> {
    pub(crate) instance: &'a str,
    /// The current execution.
    pub(crate) execution_id: u64,
    /// The version the provider gave, for a start that names none.
    pub(crate) version: &'a str,
    pub(crate) standing: &'a Standing,
    pub(crate) start: Option<&'a StartItem>,
    /// The batch as JSON.
    pub(crate) batch_json: String,
    pub(crate) attempt_count: u32,
    pub(crate) max_attempts: u32,
    /// What the texts of the failure may hold.
    pub(crate) payload_bytes_max: usize,
    pub(crate) now_ms: u64,
}

/// What is recorded of it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PoisonRecord {
    pub(crate) execution_id: u64,
    pub(crate) history_delta: Vec<Event>,
    /// The parent's notice.
    pub(crate) notices: Vec<WorkItem>,
}

/// Records the failure after the history there is, or with a start event of its own. `None` if nothing says what
/// the instance was to run.
pub(crate) fn record(batch: &PoisonedBatch<'_>) -> Option<PoisonRecord> {
    let succeeds =
        batch.start.is_some_and(StartItem::is_successor) || batch.standing.end == Some(End::ContinuedAsNew);
    let execution_id = if succeeds { batch.execution_id.saturating_add(1) } else { batch.execution_id };
    let details = ErrorDetails::Poison {
        attempt_count: batch.attempt_count,
        max_attempts: batch.max_attempts,
        message_type: PoisonMessageType::Orchestration { instance: batch.instance.to_owned(), execution_id },
        message: batch.batch_json.clone(),
    }
    .cut_to(batch.payload_bytes_max);
    let mut history_delta = Vec::new();
    let (last_event_id, parent) = if batch.standing.has_history && !succeeds {
        (batch.standing.last_event_id, batch.standing.parent().cloned())
    } else {
        let start = begun(batch)?;
        let version = start.version.clone().unwrap_or_else(|| batch.version.to_owned());
        let event = start_event(batch.instance, execution_id, &version, batch.now_ms, &start);
        let last_event_id = event.event_id;
        history_delta.push(event);
        (last_event_id, start.parent)
    };
    let notices = parent.iter().map(|parent| failure_notice(parent, details.clone())).collect();
    history_delta.push(Event::stamped(
        last_event_id.saturating_add(1),
        batch.instance,
        execution_id,
        None,
        batch.now_ms,
        EventKind::OrchestrationFailed { details },
    ));
    Some(PoisonRecord { execution_id, history_delta, notices })
}

/// What the execution would have begun with: its start message, or what its predecessor says of it.
fn begun(batch: &PoisonedBatch<'_>) -> Option<StartItem> {
    if let Some(start) = batch.start {
        return Some(start.clone());
    }
    let previous = batch.standing.started.as_ref()?;
    Some(StartItem {
        orchestration: previous.name.clone(),
        input: String::new(),
        version: Some(previous.version.clone()),
        parent: previous.parent.clone(),
        successor: None,
    })
}

/// Records the failure over a history that cannot be read.
pub(crate) fn record_unreadable(batch: &PoisonedBatch<'_>, error: &str) -> PoisonRecord {
    let details = ErrorDetails::Poison {
        attempt_count: batch.attempt_count,
        max_attempts: batch.max_attempts,
        message_type: PoisonMessageType::FailedDeserialization {
            instance: batch.instance.to_owned(),
            execution_id: batch.execution_id,
            error: error.to_owned(),
        },
        message: error.to_owned(),
    }
    .cut_to(batch.payload_bytes_max);
    let failed = Event::stamped(
        UNREADABLE_HISTORY_EVENT_ID,
        batch.instance,
        batch.execution_id,
        None,
        batch.now_ms,
        EventKind::OrchestrationFailed { details },
    );
    PoisonRecord { execution_id: batch.execution_id, history_delta: vec![failed], notices: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::super::standing::{ParentLink, StartFacts};
    use super::*;

    fn batch<'a>(standing: &'a Standing, start: Option<&'a StartItem>) -> PoisonedBatch<'a> {
        PoisonedBatch {
            instance: "i",
            execution_id: 1,
            version: "unknown",
            standing,
            start,
            batch_json: "[]".into(),
            attempt_count: 11,
            max_attempts: 10,
            payload_bytes_max: 2_000,
            now_ms: 7,
        }
    }

    fn parent() -> ParentLink {
        ParentLink { instance: "p".into(), id: 3, execution_id: Some(1) }
    }

    fn running(end: Option<End>) -> Standing {
        let facts = StartFacts { name: "N".into(), version: "1.0.0".into(), parent: Some(parent()) };
        Standing { has_history: true, started: Some(facts), last_event_id: 5, end }
    }

    fn start(input: &str) -> StartItem {
        StartItem {
            orchestration: "N".into(),
            input: input.into(),
            version: None,
            parent: None,
            successor: None,
        }
    }

    #[test]
    fn failure_follows_the_last_event_and_the_parent_is_told() {
        let standing = running(None);
        let record = record(&batch(&standing, None)).unwrap();
        assert_eq!(record.execution_id, 1);
        assert_eq!(record.history_delta.len(), 1);
        assert_eq!(record.history_delta[0].event_id, 6);
        assert!(matches!(&record.notices[..], [WorkItem::SubOrchFailed { parent_id: 3, .. }]));
    }

    #[test]
    fn unstarted_instance_gets_a_start_event_first() {
        let standing = Standing::of(&[]);
        let item = start("x");
        let record = record(&batch(&standing, Some(&item))).unwrap();
        let ids: Vec<u64> = record.history_delta.iter().map(|event| event.event_id).collect();
        assert_eq!(ids, [1, 2]);
        assert!(matches!(&record.history_delta[0].kind,
            EventKind::OrchestrationStarted { input, version, .. } if input == "x" && version == "unknown"));
    }

    #[test]
    fn successor_that_never_came_is_recorded_as_its_own_execution() {
        let standing = running(Some(End::ContinuedAsNew));
        let record = record(&batch(&standing, None)).unwrap();
        assert_eq!(record.execution_id, 2);
        assert!(matches!(&record.history_delta[0].kind,
            EventKind::OrchestrationStarted { input, parent_instance: Some(p), .. } if input.is_empty() && p == "p"));
        assert_eq!(record.notices.len(), 1);
    }

    #[test]
    fn a_batch_above_the_payload_limit_is_cut() {
        let standing = running(None);
        let batch = PoisonedBatch { batch_json: "m".repeat(3_000), ..batch(&standing, None) };
        for record in [record(&batch).unwrap(), record_unreadable(&batch, &"e".repeat(3_000))] {
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
        assert_eq!(record(&batch(&Standing::of(&[]), None)), None);
    }

    #[test]
    fn unreadable_history_gets_its_failure_at_the_fixed_id() {
        let standing = Standing::of(&[]);
        let record = record_unreadable(&batch(&standing, None), "bad json");
        assert_eq!(record.history_delta[0].event_id, 99_999);
        assert!(record.notices.is_empty());
    }
}
