//! What a commit or a client puts into the queues.

use std::time::Duration;

use everturn_core::WorkItem;
use serde::{Deserialize, Serialize};

/// An activity on its way into the worker queue.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NewWork {
    /// The activity.
    pub item: WorkItem,
}

impl From<WorkItem> for NewWork {
    fn from(item: WorkItem) -> Self {
        Self { item }
    }
}

/// A message on its way into the orchestrator queue.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NewMessage {
    /// The message. A timer becomes visible at its fire time.
    pub item: WorkItem,
    /// How long it stays invisible.
    pub delay: Option<Duration>,
    /// What the engine knows of it beyond its fields. Needs [`Feature::MessageNotes`](super::Feature::MessageNotes).
    pub notes: MessageNotes,
}

impl NewMessage {
    /// A message that becomes visible after `delay`.
    pub fn delayed(item: WorkItem, delay: Option<Duration>) -> Self {
        Self { item, delay, notes: MessageNotes::default() }
    }

    /// The same message with notes.
    #[must_use]
    pub fn with_notes(mut self, notes: MessageNotes) -> Self {
        self.notes = notes;
        self
    }
}

impl From<WorkItem> for NewMessage {
    fn from(item: WorkItem) -> Self {
        Self::delayed(item, None)
    }
}

/// What the engine knows of a message beyond its fields. A store keeps the notes with the message and never looks into
/// them; plain providers do not see them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MessageNotes {
    /// Boxed, because most messages have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cancelled_by: Option<Box<ParentLink>>,
}

impl MessageNotes {
    /// The notes of a cancellation that a parent sends to the child of this call.
    pub fn of_parents_cancel(call: ParentLink) -> Self {
        Self { cancelled_by: Some(Box::new(call)) }
    }

    /// The call whose parent sent this cancellation. An instance that another call started ignores it.
    pub fn cancelled_by(&self) -> Option<&ParentLink> {
        self.cancelled_by.as_deref()
    }

    /// Returns true if there is nothing to keep.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The call of a parent that started a child.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParentLink {
    /// The parent.
    pub instance: String,
    /// The parent's execution.
    pub execution_id: u64,
    /// The parent's schedule event.
    pub schedule_id: u64,
}
