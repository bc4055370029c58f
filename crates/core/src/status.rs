//! What a client sees of an instance.

use crate::error::ErrorDetails;

/// Where an instance stands, as of its last committed turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OrchestrationStatus {
    /// No turn of this instance was committed yet.
    NotFound,
    /// The instance is under way.
    Running {
        /// What the code last said of itself.
        custom_status: Option<String>,
        /// Grows by one with each committed turn that changed the custom status.
        custom_status_version: u64,
    },
    /// The instance returned `Ok`.
    Completed {
        /// What it returned.
        output: String,
        /// What the code last said of itself.
        custom_status: Option<String>,
        /// Grows by one with each committed turn that changed the custom status.
        custom_status_version: u64,
    },
    /// The instance failed.
    Failed {
        /// Why.
        details: ErrorDetails,
        /// What the code last said of itself.
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

    /// The custom status' version; 0 for an unknown instance.
    pub fn custom_status_version(&self) -> u64 {
        match self {
            Self::NotFound => 0,
            Self::Running { custom_status_version, .. }
            | Self::Completed { custom_status_version, .. }
            | Self::Failed { custom_status_version, .. } => *custom_status_version,
        }
    }
}
