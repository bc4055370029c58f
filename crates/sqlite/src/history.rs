//! Events as they are stored.

use std::collections::HashSet;

use everturn_core::{Event, EventKind};
use everturn_provider::ProviderError;
use rusqlite::{Connection, ErrorCode, params};

use crate::clock_reading::stored_ms;
use crate::operation::VerbFailure;
use crate::orchestrator_queue::encoded;

/// An event as it is stored.
#[derive(Debug)]
pub(crate) struct StoredEvent {
    event_id: i64,
    data: String,
}

/// Events to append, and what the execution's row records of them.
#[derive(Debug, Default)]
pub(crate) struct HistoryDelta {
    events: Vec<StoredEvent>,
    bytes: usize,
    carried_count: usize,
    start_event_id: Option<i64>,
    /// The one with the greatest id, because events may be appended in any order.
    outcome_event_id: Option<i64>,
}

impl HistoryDelta {
    /// Encodes events; refuses ids that no event may have.
    pub(crate) fn encode(operation: &str, events: &[Event]) -> Result<Self, ProviderError> {
        let mut delta = Self::default();
        let mut seen = HashSet::with_capacity(events.len());
        for event in events {
            let event_id = stored_id(operation, "event id", event.event_id)?;
            if !seen.insert(event_id) {
                let message = format!("duplicate event id {event_id} in one call");
                return Err(ProviderError::permanent(operation, message));
            }
            if let EventKind::OrchestrationStarted { carry_forward_events, .. } = &event.kind {
                delta.start_event_id = Some(event_id);
                delta.carried_count = carry_forward_events.as_ref().map_or(0, Vec::len);
            }
            if event.kind.ends_instance() {
                delta.outcome_event_id = delta.outcome_event_id.max(Some(event_id));
            }
            let data = encoded(operation, serde_json::to_string(event))?;
            delta.bytes = delta.bytes.saturating_add(data.len());
            delta.events.push(StoredEvent { event_id, data });
        }
        Ok(delta)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many events it has.
    pub(crate) fn count(&self) -> i64 {
        stored_count(self.events.len())
    }

    pub(crate) fn has_start(&self) -> bool {
        self.start_event_id.is_some()
    }

    pub(crate) fn has_outcome(&self) -> bool {
        self.outcome_event_id.is_some()
    }
}

/// An id as it is stored: 0 and what does not fit are refused.
pub(crate) fn stored_id(operation: &str, what: &str, id: u64) -> Result<i64, ProviderError> {
    match i64::try_from(id) {
        Ok(stored) if stored > 0 => Ok(stored),
        _ => Err(ProviderError::permanent(operation, format!("{what} {id} is out of range"))),
    }
}

const SELECT_TAKEN: &str = "SELECT event_id FROM history \
     WHERE instance_key = ?1 AND execution_id = ?2 AND event_id >= ?3 AND event_id <= ?4";
// A damaged count stays within what can be stored, so that the failure of the execution can be recorded.
const INSERT_EXECUTION: &str = "INSERT INTO executions (instance_key, execution_id, status, started_at_ms, event_count, \
     event_bytes, carried_count, start_event_id, outcome_event_id, pinned_engine_version) \
     VALUES (?1, ?2, 'Running', ?3, ?4, ?5, ?6, ?7, ?8, ?9) \
     ON CONFLICT (instance_key, execution_id) DO UPDATE SET \
     event_count = min(event_count, 4611686018427387903) + ?4, \
     event_bytes = min(event_bytes, 4611686018427387903) + ?5, carried_count = max(carried_count, ?6), \
     start_event_id = coalesce(start_event_id, ?7), \
     outcome_event_id = coalesce(max(outcome_event_id, ?8), ?8, outcome_event_id), \
     pinned_engine_version = coalesce(?9, pinned_engine_version)";
const INSERT_EVENT: &str =
    "INSERT INTO history (instance_key, execution_id, event_id, event_data) VALUES (?1, ?2, ?3, ?4)";

/// Refuses events whose id is taken, before anything is written.
pub(crate) fn check_new(
    conn: &Connection,
    key: i64,
    execution_id: i64,
    delta: &HistoryDelta,
) -> Result<(), VerbFailure> {
    let ids = || delta.events.iter().map(|event| event.event_id);
    let (Some(first), Some(last)) = (ids().min(), ids().max()) else { return Ok(()) };
    let mut select = conn.prepare_cached(SELECT_TAKEN)?;
    let mut rows = select.query([key, execution_id, first, last])?;
    while let Some(row) = rows.next()? {
        let taken: i64 = row.get(0)?;
        if ids().any(|id| id == taken) {
            return Err(duplicate(taken, execution_id).into());
        }
    }
    Ok(())
}

fn duplicate(event_id: i64, execution_id: i64) -> ProviderError {
    ProviderError::permanent("", format!("duplicate event id {event_id} in execution {execution_id}"))
}

/// Appends events to an execution, which is created if it is missing.
pub(crate) fn append(
    conn: &Connection,
    key: i64,
    execution_id: i64,
    now_ms: i64,
    delta: &HistoryDelta,
    pin: Option<String>,
) -> Result<(), VerbFailure> {
    conn.prepare_cached(INSERT_EXECUTION)?.execute(params![
        key,
        execution_id,
        now_ms,
        stored_count(delta.events.len()),
        stored_count(delta.bytes),
        stored_count(delta.carried_count),
        delta.start_event_id,
        delta.outcome_event_id,
        pin,
    ])?;
    let mut insert = conn.prepare_cached(INSERT_EVENT)?;
    for event in &delta.events {
        match insert.execute(params![key, execution_id, event.event_id, event.data]) {
            Ok(_) => {}
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
                return Err(duplicate(event.event_id, execution_id).with_source(error).into());
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn stored_count(count: usize) -> i64 {
    stored_ms(u64::try_from(count).unwrap_or(u64::MAX))
}
