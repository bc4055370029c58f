//! The error of providers.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use everturn_core::ErrorDetails;

/// An error of a provider: what was being done, what went wrong, and whether trying again may help.
///
/// ```
/// use everturn_provider::ProviderError;
///
/// let error = ProviderError::retryable("settle_work", "database is locked");
/// assert!(error.is_retryable());
/// assert_eq!(error.to_string(), "settle_work: database is locked");
/// ```
#[derive(Clone)]
pub struct ProviderError {
    /// What was being done.
    pub operation: String,
    /// What went wrong.
    pub message: String,
    /// Whether trying again may help.
    pub retryable: bool,
    kind: Kind,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

/// What callers decide by; they never read the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Other,
    LockLost,
    HistoryMoved,
    NotFound,
    StillRunning,
    SubOrchestration,
    Damaged,
    Unsupported,
}

impl ProviderError {
    /// An error that trying again may help.
    pub fn retryable(operation: impl Into<String>, message: impl Into<String>) -> Self {
        Self::of_kind(Kind::Other, operation, message, true)
    }

    /// An error that trying again will not help.
    pub fn permanent(operation: impl Into<String>, message: impl Into<String>) -> Self {
        Self::of_kind(Kind::Other, operation, message, false)
    }

    /// The lock token is unknown, expired or used: its holder has lost the right to commit.
    pub fn lock_lost(operation: impl Into<String>, message: impl Into<String>) -> Self {
        Self::of_kind(Kind::LockLost, operation, message, false)
    }

    /// The history is not the one the turn was built on.
    pub fn history_moved(operation: impl Into<String>, message: impl Into<String>) -> Self {
        Self::of_kind(Kind::HistoryMoved, operation, message, false)
    }

    /// The instance or execution does not exist. The message should say `not found`.
    pub fn not_found(operation: impl Into<String>, message: impl Into<String>) -> Self {
        Self::of_kind(Kind::NotFound, operation, message, false)
    }

    /// The instance is still running and `force` was not given. The message should say `still running`.
    pub fn still_running(operation: impl Into<String>, message: impl Into<String>) -> Self {
        Self::of_kind(Kind::StillRunning, operation, message, false)
    }

    /// The instance is a child and can only go with its root. The message should say `sub-orchestration`.
    pub fn sub_orchestration(operation: impl Into<String>, message: impl Into<String>) -> Self {
        Self::of_kind(Kind::SubOrchestration, operation, message, false)
    }

    /// A stored record cannot be read.
    pub fn damaged(operation: impl Into<String>, message: impl Into<String>) -> Self {
        Self::of_kind(Kind::Damaged, operation, message, false)
    }

    /// The store cannot do this: it lacks the feature.
    pub fn unsupported(operation: impl Into<String>, message: impl Into<String>) -> Self {
        Self::of_kind(Kind::Unsupported, operation, message, false)
    }

    fn of_kind(
        kind: Kind,
        operation: impl Into<String>,
        message: impl Into<String>,
        retryable: bool,
    ) -> Self {
        Self { operation: operation.into(), message: message.into(), retryable, kind, source: None }
    }

    /// Adds the error that caused this one.
    #[must_use]
    pub fn with_source(mut self, source: impl Error + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// Whether trying again may help.
    pub fn is_retryable(&self) -> bool {
        self.retryable
    }

    /// Whether the caller's lock is gone.
    pub fn is_lock_lost(&self) -> bool {
        self.kind == Kind::LockLost
    }

    /// Whether the history is not the one the turn was built on.
    pub fn is_history_moved(&self) -> bool {
        self.kind == Kind::HistoryMoved
    }

    /// Whether the instance or execution does not exist.
    pub fn is_not_found(&self) -> bool {
        self.kind == Kind::NotFound
    }

    /// Whether the instance is still running.
    pub fn is_still_running(&self) -> bool {
        self.kind == Kind::StillRunning
    }

    /// Whether the instance is a child that can only go with its root.
    pub fn is_sub_orchestration(&self) -> bool {
        self.kind == Kind::SubOrchestration
    }

    /// Whether a stored record cannot be read.
    pub fn is_damaged(&self) -> bool {
        self.kind == Kind::Damaged
    }

    /// Whether the store lacks the feature.
    pub fn is_unsupported(&self) -> bool {
        self.kind == Kind::Unsupported
    }

    /// The same error as it is recorded in a history.
    pub fn to_infrastructure_error(&self) -> ErrorDetails {
        ErrorDetails::Infrastructure {
            operation: self.operation.clone(),
            message: self.message.clone(),
            retryable: self.retryable,
        }
    }
}

impl PartialEq for ProviderError {
    fn eq(&self, other: &Self) -> bool {
        self.operation == other.operation
            && self.message == other.message
            && self.retryable == other.retryable
    }
}

impl Eq for ProviderError {}

impl fmt::Debug for ProviderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderError")
            .field("operation", &self.operation)
            .field("message", &self.message)
            .field("retryable", &self.retryable)
            .finish()
    }
}

impl fmt::Display for ProviderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.operation, self.message)
    }
}

impl Error for ProviderError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| source.as_ref() as &(dyn Error + 'static))
    }
}

impl From<String> for ProviderError {
    fn from(message: String) -> Self {
        Self::retryable("unknown", message)
    }
}

impl From<&str> for ProviderError {
    fn from(message: &str) -> Self {
        Self::retryable("unknown", message)
    }
}

#[cfg(test)]
mod tests {
    use super::ProviderError;

    #[test]
    fn the_debug_form_shows_the_fields_that_programs_compare() {
        let error = ProviderError::permanent("commit_turn", "no room");
        let shown = r#"ProviderError { operation: "commit_turn", message: "no room", retryable: false }"#;
        assert_eq!(format!("{error:?}"), shown);
    }
}
