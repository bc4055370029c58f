//! Events as they are stored: a row holds consecutive events of one commit.

use everturn_core::Event;
use everturn_provider::ProviderError;
use everturn_provider::encoded::{EventCounts, HistoryDelta};
use rusqlite::{Connection, ErrorCode, OptionalExtension, Row, params};

use crate::columns;
use crate::operation::VerbFailure;

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
    for row in delta.rows() {
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
    for row in delta.rows() {
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
        delta.carried_count(),
        delta.start_event_id(),
        delta.outcome_event_id(),
        pin,
    ])?;
    Ok(())
}

/// Counts from three columns; a damaged one is 0.
pub(crate) fn counts_of(row: &Row<'_>, column: usize) -> rusqlite::Result<EventCounts> {
    let number = |column| Ok::<_, rusqlite::Error>(columns::integer(row, column)?.unwrap_or(0).max(0));
    Ok(EventCounts { count: number(column)?, bytes: number(column + 1)?, last_event_id: number(column + 2)? })
}
