//! The writes of a turn to the key-value store of its instance.

use everturn_core::{Event, EventKind};

use super::stored_ms;

/// One write of a turn.
#[derive(Debug)]
pub enum KvChange {
    /// A key gets a value.
    Set {
        /// The key.
        key: String,
        /// Its value.
        value: String,
        /// When.
        at_ms: i64,
    },
    /// A key is removed.
    Clear {
        /// The key.
        key: String,
        /// When.
        at_ms: i64,
    },
    /// All keys are removed.
    ClearAll {
        /// When.
        at_ms: i64,
    },
}

impl KvChange {
    /// The change that an event records, if it records one.
    pub fn of(event: &Event) -> Option<Self> {
        let at_ms = stored_ms(event.timestamp_ms);
        match &event.kind {
            EventKind::KeyValueSet { key, value, last_updated_at_ms } => Some(Self::Set {
                key: key.clone(),
                value: value.clone(),
                at_ms: stored_ms(*last_updated_at_ms),
            }),
            EventKind::KeyValueCleared { key } => Some(Self::Clear { key: key.clone(), at_ms }),
            EventKind::KeyValuesCleared => Some(Self::ClearAll { at_ms }),
            EventKind::OrchestrationStarted { .. }
            | EventKind::OrchestrationCompleted { .. }
            | EventKind::OrchestrationFailed { .. }
            | EventKind::OrchestrationContinuedAsNew { .. }
            | EventKind::OrchestrationCancelRequested { .. }
            | EventKind::OrchestrationChained { .. }
            | EventKind::ActivityScheduled { .. }
            | EventKind::ActivityCompleted { .. }
            | EventKind::ActivityFailed { .. }
            | EventKind::ActivityCancelRequested { .. }
            | EventKind::TimerCreated { .. }
            | EventKind::TimerFired { .. }
            | EventKind::ExternalSubscribed { .. }
            | EventKind::ExternalEvent { .. }
            | EventKind::ExternalSubscribedCancelled { .. }
            | EventKind::QueueSubscribed { .. }
            | EventKind::QueueEventDelivered { .. }
            | EventKind::QueueSubscriptionCancelled { .. }
            | EventKind::SubOrchestrationScheduled { .. }
            | EventKind::SubOrchestrationCompleted { .. }
            | EventKind::SubOrchestrationFailed { .. }
            | EventKind::SubOrchestrationCancelRequested { .. }
            | EventKind::CustomStatusUpdated { .. } => None,
        }
    }
}
