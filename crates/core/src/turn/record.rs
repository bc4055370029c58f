//! An execution as its history knows it, without its code.

use super::history_index::HistoryIndex;
use super::start_event::StartEvent;
use super::{ExecutionIdentity, TurnClock};
use crate::{Event, EventKind};

/// An execution as its history knows it, without its code.
pub(super) struct ExecutionRecord {
    pub(super) identity: ExecutionIdentity,
    pub(super) start: Option<StartEvent>,
    pub(super) history: HistoryIndex,
}

impl ExecutionRecord {
    /// A new event with the next id. It is not part of the history yet.
    pub(super) fn next_event(&self, source: Option<u64>, clock: &dyn TurnClock, kind: EventKind) -> Event {
        let ExecutionIdentity { instance, execution_id, .. } = &self.identity;
        let event_id = self.history.last_event_id.saturating_add(1);
        Event::stamped(event_id, instance, *execution_id, source, clock.stamp_ms(), kind)
    }
}
