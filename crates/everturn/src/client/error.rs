//! Errors of the client.

use std::error::Error;
use std::fmt;

use everturn_provider::ProviderError;

/// Why a call of the client failed.
#[derive(Debug, Clone)]
pub enum ClientError {
    /// The store failed.
    Provider(ProviderError),
    /// The store has no management side.
    ManagementNotAvailable,
    /// An argument is invalid.
    InvalidInput {
        /// What is invalid.
        message: String,
    },
    /// The timeout passed.
    Timeout,
    /// The instance has not ended, and `force` was not set.
    InstanceStillRunning {
        /// The instance.
        instance_id: String,
    },
    /// The instance is a child. It can only be deleted with its root.
    CannotDeleteSubOrchestration {
        /// The instance.
        instance_id: String,
    },
    /// There is no such instance.
    InstanceNotFound {
        /// The instance.
        instance_id: String,
    },
}

impl ClientError {
    /// Returns true if the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Provider(error) => error.is_retryable(),
            Self::Timeout => true,
            Self::ManagementNotAvailable
            | Self::InvalidInput { .. }
            | Self::InstanceStillRunning { .. }
            | Self::CannotDeleteSubOrchestration { .. }
            | Self::InstanceNotFound { .. } => false,
        }
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Provider(error) => error.fmt(f),
            Self::ManagementNotAvailable => {
                f.write_str("Management features not available - provider doesn't implement ProviderAdmin")
            }
            Self::InvalidInput { message } => write!(f, "Invalid input: {message}"),
            Self::Timeout => f.write_str("Operation timed out"),
            Self::InstanceStillRunning { instance_id } => {
                write!(f, "Instance {instance_id} is still running. Use force=true or cancel first.")
            }
            Self::CannotDeleteSubOrchestration { instance_id } => write!(
                f,
                "Cannot delete sub-orchestration {instance_id} directly. Delete the root orchestration instead."
            ),
            Self::InstanceNotFound { instance_id } => write!(f, "Instance {instance_id} not found"),
        }
    }
}

impl Error for ClientError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            // This error displays the provider's text already, so the next cause is the provider's source.
            Self::Provider(error) => error.source(),
            _ => None,
        }
    }
}

impl From<ProviderError> for ClientError {
    fn from(error: ProviderError) -> Self {
        Self::Provider(error)
    }
}
