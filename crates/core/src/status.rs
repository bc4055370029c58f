//! Status of an instance as a client sees it, and status of one execution as a store keeps it.

use crate::error::ErrorDetails;

/// Status of an instance as of its last committed turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OrchestrationStatus {
    /// No turn of this instance has been committed.
    NotFound,
    /// The instance has not ended.
    Running {
        /// The custom status that the code set last.
        custom_status: Option<String>,
        /// Grows by one with each committed turn that changed the custom status.
        custom_status_version: u64,
    },
    /// The instance returned `Ok`.
    Completed {
        /// What it returned.
        output: String,
        /// The custom status that the code set last.
        custom_status: Option<String>,
        /// Grows by one with each committed turn that changed the custom status.
        custom_status_version: u64,
    },
    /// The instance failed.
    Failed {
        /// Why.
        details: ErrorDetails,
        /// The custom status that the code set last.
        custom_status: Option<String>,
        /// Grows by one with each committed turn that changed the custom status.
        custom_status_version: u64,
    },
}

impl OrchestrationStatus {
    /// Whether the instance has ended.
    pub fn is_terminal(&self) -> bool {
        matches!(self, Self::Completed { .. } | Self::Failed { .. })
    }

    /// The version of the custom status; 0 for an unknown instance.
    pub fn custom_status_version(&self) -> u64 {
        match self {
            Self::NotFound => 0,
            Self::Running { custom_status_version, .. }
            | Self::Completed { custom_status_version, .. }
            | Self::Failed { custom_status_version, .. } => *custom_status_version,
        }
    }
}

/// Where one execution stands, as it is stored.
///
/// ```
/// use everturn_core::ExecutionStatus;
///
/// assert_eq!(ExecutionStatus::from_name("Failed"), Some(ExecutionStatus::Failed));
/// assert_eq!(ExecutionStatus::ContinuedAsNew.as_str(), "ContinuedAsNew");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ExecutionStatus {
    /// It has not ended.
    Running,
    /// It returned `Ok`.
    Completed,
    /// It failed.
    Failed,
    /// It ended, and a successor follows.
    ContinuedAsNew,
}

impl ExecutionStatus {
    /// The name under which it is stored and listed.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "Running",
            Self::Completed => "Completed",
            Self::Failed => "Failed",
            Self::ContinuedAsNew => "ContinuedAsNew",
        }
    }

    /// The status with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Running, Self::Completed, Self::Failed, Self::ContinuedAsNew]
            .into_iter()
            .find(|status| status.as_str() == name)
    }

    /// Whether the instance has ended with this execution.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed)
    }
}
