//! Events as tables hold them: a row holds consecutive events of one commit.

use everturn_core::{Event, EventKind};

use super::{encoded, stored_ms, unsigned};
use crate::error::ProviderError;

/// How many events a row has at most, and after how many bytes it ends: a page of a long history reads few events that it does
/// not need.
const ROW_EVENTS: i64 = 64;
const ROW_BYTES: usize = 32 * 1024;
/// What is counted stays below this, so that a damaged number can be added to.
const COUNT_MAX: i64 = i64::MAX / 2;

/// Consecutive events as they are stored.
#[derive(Debug)]
pub struct StoredEvents {
    /// The id of the first one.
    pub first: i64,
    /// The id of the last one.
    pub last: i64,
    /// A JSON array; not closed while events are added.
    pub json: String,
}

/// Events to append, and what the row of the execution records of them.
#[derive(Debug, Default)]
pub struct HistoryDelta {
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
    pub fn encode(operation: &str, events: &[Event]) -> Result<Self, ProviderError> {
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

    /// How many bytes its events have.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The rows to insert, in the order of their ids.
    pub fn rows(&self) -> &[StoredEvents] {
        &self.rows
    }

    /// How many queue messages its start event carried in.
    pub fn carried_count(&self) -> i64 {
        stored_count(self.carried_count)
    }

    /// The start event, if it has one.
    pub fn start_event_id(&self) -> Option<i64> {
        self.start_event_id
    }

    /// How many events it has.
    pub fn count(&self) -> i64 {
        self.count
    }

    /// The smallest id.
    pub fn first_event_id(&self) -> Option<i64> {
        self.rows.first().map(|row| row.first)
    }

    /// The greatest id.
    pub fn last_event_id(&self) -> Option<i64> {
        self.rows.last().map(|row| row.last)
    }

    /// Whether it has a start event.
    pub fn has_start(&self) -> bool {
        self.start_event_id.is_some()
    }

    /// Whether it has an event that ends the instance.
    pub fn has_outcome(&self) -> bool {
        self.outcome_event_id.is_some()
    }

    /// The last event that ends the instance.
    pub fn outcome_event_id(&self) -> Option<i64> {
        self.outcome_event_id
    }

    /// Whether all its events come after these.
    pub fn is_after(&self, counted: EventCounts) -> bool {
        self.first_event_id().is_none_or(|first| first > counted.last_event_id)
    }
}

/// What is counted of the events of an execution.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct EventCounts {
    /// How many there are.
    pub count: i64,
    /// Their bytes.
    pub bytes: i64,
    /// The greatest id.
    pub last_event_id: i64,
}

impl EventCounts {
    /// The same after these events. A damaged count stays within what can be stored, so that the failure of the execution
    /// can be recorded.
    pub fn with(self, delta: &HistoryDelta) -> Self {
        Self {
            count: self.count.min(COUNT_MAX) + delta.count,
            bytes: self.bytes.min(COUNT_MAX) + stored_count(delta.bytes),
            last_event_id: self.last_event_id.max(delta.last_event_id().unwrap_or(0)),
        }
    }
}

/// An id as it is stored: 0 and what does not fit are refused.
pub fn stored_id(operation: &str, what: &str, id: u64) -> Result<i64, ProviderError> {
    match i64::try_from(id) {
        Ok(stored) if stored > 0 => Ok(stored),
        _ => Err(ProviderError::permanent(operation, format!("{what} {id} is out of range"))),
    }
}

/// Decodes a row. Fails if it does not hold the events that its columns say.
pub fn decode(execution_id: i64, first: i64, last: i64, json: &[u8]) -> Result<Vec<Event>, ProviderError> {
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

/// A count as tables hold it.
pub fn stored_count(count: usize) -> i64 {
    stored_ms(u64::try_from(count).unwrap_or(u64::MAX))
}
