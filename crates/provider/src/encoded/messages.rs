//! Messages of the orchestrator queue as tables hold them.

use everturn_core::{WorkItem, kind_of};

use super::{encoded, stored_ms};
use crate::error::ProviderError;
use crate::store::NewMessage;

/// A message as it is stored.
#[derive(Debug)]
pub struct StoredMessage {
    /// The instance that it is for.
    pub instance_id: String,
    /// What it is, as [`kind_of`] names it.
    pub kind: &'static str,
    /// Whether it starts an instance or an execution.
    pub is_start: bool,
    /// Whether it is a queue message.
    pub is_queue_message: bool,
    /// Whether it is a cancellation.
    pub is_cancel: bool,
    /// When a timer fires, and the execution it belongs to.
    pub timer: Option<StoredTimer>,
    /// The message as JSON.
    pub work_item: String,
    /// Its notes as JSON.
    pub notes: Option<String>,
}

/// What is stored of a timer beside its message.
#[derive(Debug, Clone, Copy)]
pub struct StoredTimer {
    /// When it fires.
    pub fire_at_ms: i64,
    /// The execution that it belongs to.
    pub execution_id: i64,
}

impl StoredMessage {
    /// Encodes a message of the orchestrator queue with its notes; refuses an activity.
    pub fn encode(operation: &str, message: &NewMessage) -> Result<Self, ProviderError> {
        let NewMessage { item, notes, .. } = message;
        if matches!(item, WorkItem::ActivityExecute { .. }) {
            return Err(ProviderError::permanent(
                operation,
                "an ActivityExecute belongs into the worker queue, not into the orchestrator queue",
            ));
        }
        let timer = match item {
            WorkItem::TimerFired { fire_at_ms, execution_id, .. } => Some(StoredTimer {
                fire_at_ms: stored_ms(*fire_at_ms),
                execution_id: i64::try_from(*execution_id).unwrap_or(i64::MAX),
            }),
            _ => None,
        };
        Ok(Self {
            instance_id: item.instance().to_owned(),
            kind: kind_of(item),
            is_start: item.is_start(),
            is_queue_message: matches!(item, WorkItem::QueueMessage { .. }),
            is_cancel: matches!(item, WorkItem::CancelInstance { .. }),
            timer,
            work_item: encoded(operation, serde_json::to_string(item))?,
            notes: if notes.is_empty() {
                None
            } else {
                Some(encoded(operation, serde_json::to_string(notes))?)
            },
        })
    }
}
