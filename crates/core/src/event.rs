//! Events: the records of an execution's history, written once and never changed.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::error::ErrorDetails;
use crate::status::ExecutionStatus;
use crate::version::BUILD_VERSION;

/// One record of an execution's history.
///
/// ```
/// use everturn_core::{Event, EventKind};
///
/// let event = Event::with_event_id(3, "order-42", 1, Some(2), EventKind::ActivityCompleted { result: "ok".into() });
/// assert_eq!(event.source_event_id(), Some(2));
/// assert!(!event.is_terminal());
/// ```
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct Event {
    /// Position in the execution's history; the first is 1.
    pub event_id: u64,
    /// The schedule event that a completion or cancellation refers to.
    #[serde(default)]
    pub source_event_id: Option<u64>,
    /// The instance this event belongs to.
    pub instance_id: String,
    /// The execution of that instance.
    pub execution_id: u64,
    /// Wall clock at creation, in milliseconds since the epoch.
    pub timestamp_ms: u64,
    /// Version of the build that created the event.
    pub engine_version: String,
    /// What happened.
    #[serde(flatten)]
    pub kind: EventKind,
}

impl Event {
    /// An event with the given id, stamped with the system's time and this build's version.
    pub fn with_event_id(
        event_id: u64,
        instance_id: impl Into<String>,
        execution_id: u64,
        source_event_id: Option<u64>,
        kind: EventKind,
    ) -> Self {
        Self::stamped(event_id, instance_id, execution_id, source_event_id, system_time_ms(), kind)
    }

    /// An event with id 0, for callers that assign the id later, stamped like [`Event::with_event_id`].
    pub fn new(
        instance_id: impl Into<String>,
        execution_id: u64,
        source_event_id: Option<u64>,
        kind: EventKind,
    ) -> Self {
        Self::with_event_id(0, instance_id, execution_id, source_event_id, kind)
    }

    /// An event stamped with the given time. The engine makes events only this way.
    #[inline]
    pub fn stamped(
        event_id: u64,
        instance_id: impl Into<String>,
        execution_id: u64,
        source_event_id: Option<u64>,
        timestamp_ms: u64,
        kind: EventKind,
    ) -> Self {
        Self {
            event_id,
            source_event_id,
            instance_id: instance_id.into(),
            execution_id,
            timestamp_ms,
            engine_version: BUILD_VERSION.to_owned(),
            kind,
        }
    }

    /// Position in the execution's history.
    pub fn event_id(&self) -> u64 {
        self.event_id
    }

    /// The schedule event this one refers to, if any.
    pub fn source_event_id(&self) -> Option<u64> {
        self.source_event_id
    }

    /// Whether this event ends its execution: completed, failed or continued as new.
    pub fn is_terminal(&self) -> bool {
        self.kind.ends_as().is_some()
    }

    /// The event with every time that a clock gave it set to 0.
    ///
    /// Two turns that take the same decisions at different moments write events that are equal without their times.
    /// The fire time of a [`TimerFired`](EventKind::TimerFired) event stays: it comes with the message.
    ///
    /// ```
    /// use everturn_core::{Event, EventKind};
    ///
    /// let timer = |now_ms| Event::stamped(2, "order-42", 1, None, now_ms, EventKind::TimerCreated { fire_at_ms: now_ms + 5 });
    /// assert_ne!(timer(1), timer(9));
    /// assert_eq!(timer(1).without_times(), timer(9).without_times());
    /// ```
    #[must_use]
    pub fn without_times(&self) -> Self {
        let mut event = self.clone();
        event.timestamp_ms = 0;
        match &mut event.kind {
            EventKind::TimerCreated { fire_at_ms } => *fire_at_ms = 0,
            EventKind::KeyValueSet { last_updated_at_ms, .. } => *last_updated_at_ms = 0,
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
            | EventKind::CustomStatusUpdated { .. }
            | EventKind::KeyValueCleared { .. }
            | EventKind::KeyValuesCleared => {}
        }
        event
    }
}

fn system_time_ms() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX)
}

/// What happened. Schedule events record what the code asked for; the other events complete or cancel them, or come from
/// clients and other instances.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
#[serde(tag = "type")]
pub enum EventKind {
    /// The execution started. Always event 1.
    OrchestrationStarted {
        /// Registered name of the orchestration.
        name: String,
        /// Version of the handler that this execution is bound to.
        version: String,
        /// Input of this execution.
        input: String,
        /// The instance that started this one as its child.
        #[serde(default)]
        parent_instance: Option<String>,
        /// The schedule event of the parent that started this child.
        #[serde(default)]
        parent_id: Option<u64>,
        /// The parent's execution that started this child.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent_execution_id: Option<u64>,
        /// Unread queue messages of the previous execution: (queue, data), oldest first.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        carry_forward_events: Option<Vec<(String, String)>>,
        /// Custom status carried over from the previous execution.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        initial_custom_status: Option<String>,
    },
    /// The orchestration returned `Ok`.
    OrchestrationCompleted {
        /// What it returned.
        output: String,
    },
    /// The orchestration returned `Err`, panicked, was cancelled, or could not go on.
    OrchestrationFailed {
        /// Why.
        details: ErrorDetails,
    },
    /// The code asked for an activity.
    ActivityScheduled {
        /// Registered name of the activity.
        name: String,
        /// Input of the activity.
        input: String,
        /// The session it is bound to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session_id: Option<String>,
        /// The tag that routes it to specialised workers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tag: Option<String>,
    },
    /// An activity returned `Ok`.
    ActivityCompleted {
        /// What it returned.
        result: String,
    },
    /// An activity failed.
    ActivityFailed {
        /// Why.
        details: ErrorDetails,
    },
    /// An activity is no longer wanted.
    ActivityCancelRequested {
        /// Why it is no longer wanted.
        reason: String,
    },
    /// The code asked for a durable timer.
    TimerCreated {
        /// When it is due, by the provider's clock.
        fire_at_ms: u64,
    },
    /// A durable timer fired.
    TimerFired {
        /// When it was due.
        fire_at_ms: u64,
    },
    /// The code waits for a positional signal.
    ExternalSubscribed {
        /// Name of the signal.
        name: String,
    },
    /// A positional signal arrived.
    ExternalEvent {
        /// Name of the signal.
        name: String,
        /// Its payload.
        data: String,
    },
    /// A wait for a positional signal was cancelled.
    ExternalSubscribedCancelled {
        /// Why.
        reason: String,
    },
    /// The code asked for the next message of a queue.
    #[serde(rename = "ExternalSubscribedPersistent")]
    QueueSubscribed {
        /// Name of the queue.
        name: String,
    },
    /// A queue message arrived.
    #[serde(rename = "ExternalEventPersistent")]
    QueueEventDelivered {
        /// Name of the queue.
        name: String,
        /// Its payload.
        data: String,
    },
    /// A queue read was cancelled; it consumed no message.
    #[serde(rename = "ExternalSubscribedPersistentCancelled")]
    QueueSubscriptionCancelled {
        /// Why.
        reason: String,
    },
    /// The code started a detached orchestration.
    OrchestrationChained {
        /// Registered name of the orchestration.
        name: String,
        /// Its instance id.
        instance: String,
        /// Its input.
        input: String,
    },
    /// The code asked for a child orchestration.
    SubOrchestrationScheduled {
        /// Registered name of the child.
        name: String,
        /// The recorded suffix of an auto-named child, or the explicit instance id.
        instance: String,
        /// Its input.
        input: String,
    },
    /// A child returned `Ok`.
    SubOrchestrationCompleted {
        /// What it returned.
        result: String,
    },
    /// A child failed.
    SubOrchestrationFailed {
        /// Why.
        details: ErrorDetails,
    },
    /// A child is no longer wanted.
    SubOrchestrationCancelRequested {
        /// Why it is no longer wanted.
        reason: String,
    },
    /// The execution ended, and a successor starts with this input.
    OrchestrationContinuedAsNew {
        /// Input of the successor.
        input: String,
    },
    /// A client or the parent asked to cancel this instance.
    OrchestrationCancelRequested {
        /// The reason given.
        reason: String,
    },
    /// The code set or cleared its custom status.
    CustomStatusUpdated {
        /// The new status; `None` clears it.
        #[serde(default)]
        status: Option<String>,
    },
    /// The code set a key of the instance's key-value store.
    KeyValueSet {
        /// The key.
        key: String,
        /// Its new value.
        value: String,
        /// Time of the write: that of the last event applied before it.
        #[serde(default)]
        last_updated_at_ms: u64,
    },
    /// The code cleared one key.
    KeyValueCleared {
        /// The key.
        key: String,
    },
    /// The code cleared all keys.
    KeyValuesCleared,
}

impl EventKind {
    /// How the execution ends with this event; `None` if it goes on.
    #[doc(hidden)]
    #[inline]
    pub fn ends_as(&self) -> Option<EndEvent<'_>> {
        match self {
            Self::OrchestrationCompleted { output } => Some(EndEvent::Completed { output }),
            Self::OrchestrationFailed { details } => Some(EndEvent::Failed { details }),
            Self::OrchestrationContinuedAsNew { input } => Some(EndEvent::ContinuedAsNew { input }),
            Self::OrchestrationStarted { .. }
            | Self::OrchestrationCancelRequested { .. }
            | Self::OrchestrationChained { .. }
            | Self::ActivityScheduled { .. }
            | Self::ActivityCompleted { .. }
            | Self::ActivityFailed { .. }
            | Self::ActivityCancelRequested { .. }
            | Self::TimerCreated { .. }
            | Self::TimerFired { .. }
            | Self::ExternalSubscribed { .. }
            | Self::ExternalEvent { .. }
            | Self::ExternalSubscribedCancelled { .. }
            | Self::QueueSubscribed { .. }
            | Self::QueueEventDelivered { .. }
            | Self::QueueSubscriptionCancelled { .. }
            | Self::SubOrchestrationScheduled { .. }
            | Self::SubOrchestrationCompleted { .. }
            | Self::SubOrchestrationFailed { .. }
            | Self::SubOrchestrationCancelRequested { .. }
            | Self::CustomStatusUpdated { .. }
            | Self::KeyValueSet { .. }
            | Self::KeyValueCleared { .. }
            | Self::KeyValuesCleared => None,
        }
    }

    /// Returns true if the instance ends with this event: no successor follows.
    #[doc(hidden)]
    #[inline]
    pub fn ends_instance(&self) -> bool {
        self.ends_as().is_some_and(|end| end.status().is_terminal())
    }
}

/// The event that ends an execution.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndEvent<'a> {
    /// The orchestration returned `Ok`.
    Completed {
        /// What it returned.
        output: &'a str,
    },
    /// It failed.
    Failed {
        /// Why.
        details: &'a ErrorDetails,
    },
    /// A successor follows.
    ContinuedAsNew {
        /// Input of the successor.
        input: &'a str,
    },
}

impl EndEvent<'_> {
    /// The status of the execution from then on.
    #[inline]
    pub fn status(self) -> ExecutionStatus {
        match self {
            Self::Completed { .. } => ExecutionStatus::Completed,
            Self::Failed { .. } => ExecutionStatus::Failed,
            Self::ContinuedAsNew { .. } => ExecutionStatus::ContinuedAsNew,
        }
    }
}
