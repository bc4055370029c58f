//! What a commit or a client puts into the queues.

use std::time::Duration;

use everturn_core::WorkItem;

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
}

impl NewMessage {
    /// A message that becomes visible after `delay`.
    pub fn delayed(item: WorkItem, delay: Option<Duration>) -> Self {
        Self { item, delay }
    }
}

impl From<WorkItem> for NewMessage {
    fn from(item: WorkItem) -> Self {
        Self { item, delay: None }
    }
}
