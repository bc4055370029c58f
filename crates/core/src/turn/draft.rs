//! A turn before it is finished.

use super::CancelledChild;
use crate::Event;
use crate::action::Action;

/// A turn before it is finished.
#[derive(Default)]
pub(super) struct TurnDraft {
    pub(super) delta: Vec<Event>,
    /// The first events of the delta are recorded whatever the code does: the start event and the messages.
    pub(super) received: usize,
    /// Id of the last received event.
    pub(super) received_event_id: u64,
    /// Decisions that may need a work item, in order.
    pub(super) pending: Vec<PendingDecision>,
    /// The first continue-as-new of the turn.
    pub(super) successor: Option<Successor>,
    pub(super) cancelled_activities: Vec<u64>,
    /// Children whose future the code dropped.
    pub(super) dropped_children: Vec<CancelledChild>,
}

/// A decision with the event that records it.
pub(super) struct PendingDecision {
    pub(super) event_id: u64,
    pub(super) action: Action,
    /// The recorded id of a child.
    pub(super) child: Option<String>,
}

/// What the code passed to continue-as-new.
pub(super) struct Successor {
    pub(super) input: String,
    pub(super) version: Option<String>,
}
