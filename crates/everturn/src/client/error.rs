//! What a client says when it cannot do what it was asked.

use std::error::Error;
use std::fmt;

use everturn_provider::ProviderError;

/// Why a client could not do what it was asked.
#[derive(Debug, Clone)]
pub enum ClientError {
    /// The store could not do its part.
    Provider(ProviderError),
    /// The store has no management side.
    ManagementNotAvailable,
    /// What was asked for makes no sense.
    InvalidInput {
        /// What is wrong with it.
        message: String,
    },
    /// The time was over.
    Timeout,
    /// The instance has not ended, and it was not to be forced.
    InstanceStillRunning {
        /// The instance.
        instance_id: String,
    },
    /// The instance is a child and can only go with its root.
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
    /// Whether trying again may help.
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
            // Its text is this error's text already: the next cause is its source.
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
