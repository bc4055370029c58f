//! Events as they are stored: a row holds consecutive events of one commit.

use everturn_core::{Event, EventKind};
use everturn_provider::ProviderError;
use rusqlite::{Connection, ErrorCode, OptionalExtension, Row, params};

use crate::clock_reading::{stored_ms, unsigned};
use crate::columns;
use crate::operation::VerbFailure;
use crate::orchestrator_queue::encoded;

/// How many events a row has at most, and after how many bytes it ends: a page of a long history reads few events that it does
/// not need.
const ROW_EVENTS: i64 = 64;
const ROW_BYTES: usize = 32 * 1024;
/// What is counted stays below this, so that a damaged number can be added to.
const COUNT_MAX: i64 = i64::MAX / 2;

/// Consecutive events as they are stored.
#[derive(Debug)]
pub(crate) struct StoredEvents {
    pub(crate) first: i64,
    pub(crate) last: i64,
    /// A JSON array; not closed while events are added.
    json: String,
}

/// Events to append, and what the row of the execution records of them.
#[derive(Debug, Default)]
pub(crate) struct HistoryDelta {
    /// In the order of their ids.
    rows: Vec<StoredEvents>,
    count: i64,
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
        let mut ordered: Vec<&Event> = events.iter().collect();
        ordered.sort_by_key(|event| event.event_id);
        for event in ordered {
            let event_id = stored_id(operation, "event id", event.event_id)?;
            if delta.last_event_id() == Some(event_id) {
                let message = format!("duplicate event id {event_id} in one call");
                return Err(ProviderError::permanent(operation, message));
            }
            if let EventKind::OrchestrationStarted { carry_forward_events, .. } = &event.kind {
                delta.start_event_id = Some(event_id);
                delta.carried_count = carry_forward_events.as_ref().map_or(0, Vec::len);
            }
            if event.kind.ends_instance() {
                delta.outcome_event_id = Some(event_id);
            }
            let json = encoded(operation, serde_json::to_string(event))?;
            delta.count += 1;
            delta.bytes = delta.bytes.saturating_add(json.len());
            delta.push(event_id, &json);
        }
        for row in &mut delta.rows {
            row.json.push(']');
        }
        Ok(delta)
    }

    fn push(&mut self, event_id: i64, json: &str) {
        match self.rows.last_mut() {
            Some(row)
                if row.last + 1 == event_id
                    && event_id - row.first < ROW_EVENTS
                    && row.json.len() < ROW_BYTES =>
            {
                row.last = event_id;
                row.json.push(',');
                row.json.push_str(json);
            }
            _ => self.rows.push(StoredEvents { first: event_id, last: event_id, json: format!("[{json}") }),
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many events it has.
    pub(crate) fn count(&self) -> i64 {
        self.count
    }

    fn first_event_id(&self) -> Option<i64> {
        self.rows.first().map(|row| row.first)
    }

    fn last_event_id(&self) -> Option<i64> {
        self.rows.last().map(|row| row.last)
    }

    pub(crate) fn has_start(&self) -> bool {
        self.start_event_id.is_some()
    }

    pub(crate) fn has_outcome(&self) -> bool {
        self.outcome_event_id.is_some()
    }

    pub(crate) fn outcome_event_id(&self) -> Option<i64> {
        self.outcome_event_id
    }

    /// Whether all its events come after these.
    pub(crate) fn is_after(&self, counted: EventCounts) -> bool {
        self.first_event_id().is_none_or(|first| first > counted.last_event_id)
    }
}

/// What is counted of the events of an execution.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EventCounts {
    pub(crate) count: i64,
    pub(crate) bytes: i64,
    pub(crate) last_event_id: i64,
}

impl EventCounts {
    /// Counts from three columns; a damaged one is 0.
    pub(crate) fn of(row: &Row<'_>, column: usize) -> rusqlite::Result<Self> {
        let number = |column| Ok::<_, rusqlite::Error>(columns::integer(row, column)?.unwrap_or(0).max(0));
        Ok(Self { count: number(column)?, bytes: number(column + 1)?, last_event_id: number(column + 2)? })
    }

    /// The same after these events. A damaged count stays within what can be stored, so that the failure of the execution
    /// can be recorded.
    pub(crate) fn with(self, delta: &HistoryDelta) -> Self {
        Self {
            count: self.count.min(COUNT_MAX) + delta.count,
            bytes: self.bytes.min(COUNT_MAX) + stored_count(delta.bytes),
            last_event_id: self.last_event_id.max(delta.last_event_id().unwrap_or(0)),
        }
    }
}

/// An id as it is stored: 0 and what does not fit are refused.
pub(crate) fn stored_id(operation: &str, what: &str, id: u64) -> Result<i64, ProviderError> {
    match i64::try_from(id) {
        Ok(stored) if stored > 0 => Ok(stored),
        _ => Err(ProviderError::permanent(operation, format!("{what} {id} is out of range"))),
    }
}

pub(crate) const SELECT_ROW_AT: &str = "SELECT last_event_id, events FROM everturn_history \
     WHERE instance_key = ?1 AND execution_id = ?2 AND first_event_id <= ?3 ORDER BY first_event_id DESC LIMIT 1";
const WRITE_EXECUTION: &str = "INSERT INTO everturn_executions (instance_key, execution_id, status, started_at_ms, \
     event_count, event_bytes, carried_count, start_event_id, outcome_event_id, pinned_engine_version) \
     VALUES (?1, ?2, 'Running', ?3, ?4, ?5, ?6, ?7, ?8, ?9) \
     ON CONFLICT (instance_key, execution_id) DO UPDATE SET \
     event_count = ?4, event_bytes = ?5, carried_count = max(carried_count, ?6), \
     start_event_id = coalesce(start_event_id, ?7), \
     outcome_event_id = coalesce(max(outcome_event_id, ?8), ?8, outcome_event_id), \
     pinned_engine_version = coalesce(?9, pinned_engine_version)";
const INSERT_EVENTS: &str = "INSERT INTO everturn_history (instance_key, execution_id, first_event_id, last_event_id, events) \
     VALUES (?1, ?2, ?3, ?4, ?5)";

/// Refuses events whose id is taken, before anything is written.
pub(crate) fn check_new(
    conn: &Connection,
    key: i64,
    execution_id: i64,
    delta: &HistoryDelta,
) -> Result<(), VerbFailure> {
    for row in &delta.rows {
        let before: Option<(Option<i64>, Vec<u8>)> = conn
            .prepare_cached(SELECT_ROW_AT)?
            .query_row([key, execution_id, row.last], |row| {
                Ok((columns::integer(row, 0)?, columns::bytes(row, 1)?))
            })
            .optional()?;
        // What the events themselves say counts: a damaged row must not keep the failure of its execution from being recorded.
        if let Some((Some(last), json)) = before
            && last >= row.first
            && let Ok(events) = serde_json::from_slice::<Vec<Event>>(&json)
        {
            let mut ids = events.iter().filter_map(|event| i64::try_from(event.event_id).ok());
            if let Some(taken) = ids.find(|id| (row.first..=row.last).contains(id)) {
                return Err(duplicate(taken, execution_id).into());
            }
        }
    }
    Ok(())
}

fn duplicate(event_id: i64, execution_id: i64) -> ProviderError {
    ProviderError::permanent("", format!("duplicate event id {event_id} in execution {execution_id}"))
}

/// Appends events to an execution.
pub(crate) fn append(
    conn: &Connection,
    key: i64,
    execution_id: i64,
    delta: &HistoryDelta,
) -> Result<(), VerbFailure> {
    let mut insert = conn.prepare_cached(INSERT_EVENTS)?;
    for row in &delta.rows {
        match insert.execute(params![key, execution_id, row.first, row.last, row.json]) {
            Ok(_) => {}
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
                return Err(duplicate(row.first, execution_id).with_source(error).into());
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Writes what the row of an execution records of its events; the row is created if it is missing.
pub(crate) fn write_execution(
    conn: &Connection,
    key: i64,
    execution_id: i64,
    now_ms: i64,
    counts: EventCounts,
    delta: &HistoryDelta,
    pin: Option<&str>,
) -> Result<(), VerbFailure> {
    conn.prepare_cached(WRITE_EXECUTION)?.execute(params![
        key,
        execution_id,
        now_ms,
        counts.count,
        counts.bytes,
        stored_count(delta.carried_count),
        delta.start_event_id,
        delta.outcome_event_id,
        pin,
    ])?;
    Ok(())
}

/// Decodes a row. Fails if it does not hold the events that its columns say.
pub(crate) fn decode(
    execution_id: i64,
    first: i64,
    last: i64,
    json: &[u8],
) -> Result<Vec<Event>, ProviderError> {
    let place = || format!("events {first} to {last} of execution {execution_id} are damaged");
    let events: Vec<Event> = serde_json::from_slice(json).map_err(|error| {
        ProviderError::damaged("read_execution", format!("{}: {error}", place())).with_source(error)
    })?;
    let mut ids = unsigned(first)..=unsigned(last);
    let wrong = events.iter().find(|event| ids.next() != Some(event.event_id));
    if let Some(event) = wrong {
        let message = format!("{}: there is event {} in its place", place(), event.event_id);
        return Err(ProviderError::damaged("read_execution", message));
    }
    if ids.next().is_some() {
        let message = format!("{}: there are {} events", place(), events.len());
        return Err(ProviderError::damaged("read_execution", message));
    }
    Ok(events)
}

fn stored_count(count: usize) -> i64 {
    stored_ms(u64::try_from(count).unwrap_or(u64::MAX))
}
