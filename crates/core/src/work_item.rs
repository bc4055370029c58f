//! Work items: the messages of the orchestrator queue and of the worker queue.

use serde::{Deserialize, Serialize};

use crate::error::ErrorDetails;

/// A message in one of the two queues. `ActivityExecute` goes to the worker queue, everything else to the
/// orchestrator queue.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub enum WorkItem {
    /// Start an instance.
    StartOrchestration {
        /// Its id.
        instance: String,
        /// Registered name of the orchestration.
        orchestration: String,
        /// Its input.
        input: String,
        /// Exact version, or `None` for the registry's policy.
        version: Option<String>,
        /// The instance that waits for this child.
        parent_instance: Option<String>,
        /// The parent's schedule event.
        parent_id: Option<u64>,
        /// The parent's execution.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent_execution_id: Option<u64>,
        /// The execution to start.
        execution_id: u64,
    },
    /// Run an activity.
    ActivityExecute {
        /// The instance that asked for it.
        instance: String,
        /// Its execution.
        execution_id: u64,
        /// Its schedule event.
        id: u64,
        /// Registered name of the activity.
        name: String,
        /// Its input.
        input: String,
        /// The session it is bound to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session_id: Option<String>,
        /// The tag that routes it to certain workers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tag: Option<String>,
    },
    /// An activity returned `Ok`.
    ActivityCompleted {
        /// The instance that asked for it.
        instance: String,
        /// Its execution.
        execution_id: u64,
        /// Its schedule event.
        id: u64,
        /// What it returned.
        result: String,
    },
    /// An activity failed.
    ActivityFailed {
        /// The instance that asked for it.
        instance: String,
        /// Its execution.
        execution_id: u64,
        /// Its schedule event.
        id: u64,
        /// Why it failed.
        details: ErrorDetails,
    },
    /// A timer is due. Hidden in the queue until `fire_at_ms`.
    TimerFired {
        /// The instance that asked for it.
        instance: String,
        /// Its execution.
        execution_id: u64,
        /// Its schedule event.
        id: u64,
        /// When it is due.
        fire_at_ms: u64,
    },
    /// A positional signal.
    ExternalRaised {
        /// The instance it is for.
        instance: String,
        /// Name of the signal.
        name: String,
        /// Its payload.
        data: String,
    },
    /// A child returned `Ok`.
    SubOrchCompleted {
        /// The instance that waits for it.
        parent_instance: String,
        /// Its execution.
        parent_execution_id: u64,
        /// Its schedule event.
        parent_id: u64,
        /// What the child returned.
        result: String,
    },
    /// A child failed.
    SubOrchFailed {
        /// The instance that waits for it.
        parent_instance: String,
        /// Its execution.
        parent_execution_id: u64,
        /// Its schedule event.
        parent_id: u64,
        /// Why it failed.
        details: ErrorDetails,
    },
    /// Cancel an instance.
    CancelInstance {
        /// The instance to cancel.
        instance: String,
        /// Why.
        reason: String,
    },
    /// Start the next execution of an instance.
    ContinueAsNew {
        /// The instance.
        instance: String,
        /// Registered name of the orchestration.
        orchestration: String,
        /// Input of the next execution.
        input: String,
        /// Exact version, or `None` for the registry's policy.
        version: Option<String>,
        /// The instance that waits for this one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent_instance: Option<String>,
        /// The parent's schedule event.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent_id: Option<u64>,
        /// The parent's execution.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent_execution_id: Option<u64>,
        /// Unread queue messages: (queue, data), oldest first.
        #[serde(default)]
        carry_forward_events: Vec<(String, String)>,
        /// Custom status carried over.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        initial_custom_status: Option<String>,
    },
    /// A message for one of the instance's queues.
    QueueMessage {
        /// The instance it is for.
        instance: String,
        /// Name of the queue.
        name: String,
        /// Its payload.
        data: String,
    },
}

impl WorkItem {
    /// The instance whose turn, or whose activity, this message belongs to.
    pub fn instance(&self) -> &str {
        match self {
            Self::StartOrchestration { instance, .. }
            | Self::ActivityExecute { instance, .. }
            | Self::ActivityCompleted { instance, .. }
            | Self::ActivityFailed { instance, .. }
            | Self::TimerFired { instance, .. }
            | Self::ExternalRaised { instance, .. }
            | Self::CancelInstance { instance, .. }
            | Self::ContinueAsNew { instance, .. }
            | Self::QueueMessage { instance, .. } => instance,
            Self::SubOrchCompleted { parent_instance, .. } | Self::SubOrchFailed { parent_instance, .. } => {
                parent_instance
            }
        }
    }

    /// Whether this message starts an execution.
    pub fn is_start(&self) -> bool {
        matches!(self, Self::StartOrchestration { .. } | Self::ContinueAsNew { .. })
    }
}

/// The kind of a work item as text, for logs and stores.
///
/// ```
/// use everturn_core::{WorkItem, kind_of};
///
/// let item = WorkItem::QueueMessage { instance: "i".into(), name: "q".into(), data: "d".into() };
/// assert_eq!(kind_of(&item), "ExternalRaisedPersistent");
/// ```
pub fn kind_of(item: &WorkItem) -> &'static str {
    match item {
        WorkItem::StartOrchestration { .. } => "StartOrchestration",
        WorkItem::ActivityExecute { .. } => "ActivityExecute",
        WorkItem::ActivityCompleted { .. } => "ActivityCompleted",
        WorkItem::ActivityFailed { .. } => "ActivityFailed",
        WorkItem::TimerFired { .. } => "TimerFired",
        WorkItem::ExternalRaised { .. } => "ExternalRaised",
        WorkItem::SubOrchCompleted { .. } => "SubOrchCompleted",
        WorkItem::SubOrchFailed { .. } => "SubOrchFailed",
        WorkItem::CancelInstance { .. } => "CancelInstance",
        WorkItem::ContinueAsNew { .. } => "ContinueAsNew",
        WorkItem::QueueMessage { .. } => "ExternalRaisedPersistent",
    }
}
