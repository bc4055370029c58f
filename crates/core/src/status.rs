//! Status of an instance as a client sees it, and status of one execution as a store keeps it.

use std::fmt;
use std::str::FromStr;

use crate::error::ErrorDetails;

/// Status of one execution, as a store keeps it.
///
/// The plain provider contract carries it as text (`ExecutionMetadata::status`); [`as_str`](Self::as_str) and
/// [`FromStr`] translate.
///
/// ```
/// use everturn_core::ExecutionStatus;
///
/// assert_eq!(ExecutionStatus::ContinuedAsNew.as_str(), "ContinuedAsNew");
/// assert_eq!("Failed".parse(), Ok(ExecutionStatus::Failed));
/// assert!("failed".parse::<ExecutionStatus>().is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ExecutionStatus {
    /// The execution has not ended.
    Running,
    /// The orchestration returned `Ok`.
    Completed,
    /// The orchestration failed or was cancelled.
    Failed,
    /// The execution ended and a next execution of the same instance follows.
    ContinuedAsNew,
}

impl ExecutionStatus {
    /// Every status.
    pub const ALL: [Self; 4] = [Self::Running, Self::Completed, Self::Failed, Self::ContinuedAsNew];

    /// The text that the provider contract uses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "Running",
            Self::Completed => "Completed",
            Self::Failed => "Failed",
            Self::ContinuedAsNew => "ContinuedAsNew",
        }
    }

    /// Whether the instance has ended with this execution: completed or failed.
    pub const fn ends_instance(self) -> bool {
        match self {
            Self::Completed | Self::Failed => true,
            Self::Running | Self::ContinuedAsNew => false,
        }
    }
}

impl fmt::Display for ExecutionStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for ExecutionStatus {
    type Err = UnknownExecutionStatus;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let status = Self::ALL.into_iter().find(|status| status.as_str() == text);
        status.ok_or_else(|| UnknownExecutionStatus(text.to_owned()))
    }
}

/// A text that is no [`ExecutionStatus`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownExecutionStatus(String);

impl fmt::Display for UnknownExecutionStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown execution status {:?}", self.0)
    }
}

impl std::error::Error for UnknownExecutionStatus {}

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
