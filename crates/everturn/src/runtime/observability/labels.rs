//! The values of metric labels.

use everturn_core::{AppErrorKind, ErrorDetails};

/// What started an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InitiatedBy {
    /// A start message of a client, or of an orchestration that started it detached.
    Client,
    /// A parent that called it as its child.
    Parent,
    /// The previous execution, which continued as new.
    ContinueAsNew,
}

impl InitiatedBy {
    /// The label's text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Parent => "parent",
            Self::ContinueAsNew => "continueAsNew",
        }
    }
}

/// How an execution ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompletionStatus {
    /// It returned `Ok`.
    Success,
    /// It failed.
    Failed,
    /// It continued as new.
    ContinuedAsNew,
}

impl CompletionStatus {
    /// The label's text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failed => "failed",
            Self::ContinuedAsNew => "continuedAsNew",
        }
    }
}

/// What made an orchestration fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureType {
    /// The user's code.
    Application,
    /// The engine or the store.
    Infrastructure,
    /// The code does not match the history.
    Configuration,
    /// Anything else: messages that were tried too often.
    Unknown,
}

impl FailureType {
    /// The type of a recorded failure.
    pub fn of(details: &ErrorDetails) -> Self {
        match details {
            ErrorDetails::Application { .. } => Self::Application,
            ErrorDetails::Infrastructure { .. } => Self::Infrastructure,
            ErrorDetails::Configuration { .. } => Self::Configuration,
            ErrorDetails::Poison { .. } => Self::Unknown,
        }
    }

    /// The label's text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Application => "app_error",
            Self::Infrastructure => "infrastructure_error",
            Self::Configuration => "config_error",
            Self::Unknown => "unknown",
        }
    }
}

/// The `error_category` of a recorded failure: one of a few fixed texts.
pub(super) fn error_category(details: &ErrorDetails) -> &'static str {
    match details {
        ErrorDetails::Application { kind, .. } => match kind {
            AppErrorKind::ActivityFailed => "activity_failed",
            AppErrorKind::OrchestrationFailed => "orchestration_failed",
            AppErrorKind::Panicked => "panicked",
            AppErrorKind::Cancelled { .. } => "cancelled",
        },
        ErrorDetails::Infrastructure { .. } => "infrastructure",
        ErrorDetails::Configuration { .. } => "nondeterminism",
        ErrorDetails::Poison { .. } => "poison",
    }
}

/// How an attempt at an activity ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActivityOutcome {
    /// It returned `Ok`.
    Success,
    /// It returned `Err` or panicked.
    AppError,
    /// It failed because of the engine or the store.
    InfraError,
    /// It failed because of its configuration.
    ConfigError,
    /// It was cancelled.
    Cancelled,
}

impl ActivityOutcome {
    /// The label's text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::AppError => "app_error",
            Self::InfraError => "infra_error",
            Self::ConfigError => "config_error",
            Self::Cancelled => "cancelled",
        }
    }
}

/// The `final_turn_count` of an execution.
pub(super) fn turn_count_bucket(turns: u64) -> &'static str {
    match turns {
        0..=5 => "1-5",
        6..=10 => "6-10",
        11..=50 => "11-50",
        _ => "50+",
    }
}

/// The `retry_attempt` of an activity.
pub(super) fn retry_attempt(retries: u32) -> &'static str {
    match retries {
        0 => "0",
        1 => "1",
        2 => "2",
        _ => "3+",
    }
}

/// The `error_type` of a store's error: the first of these words in its message. It only labels a metric.
pub(super) fn provider_error_type(message: &str) -> &'static str {
    let message = message.to_lowercase();
    ["deadlock", "timeout", "connection"].into_iter().find(|kind| message.contains(kind)).unwrap_or("other")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_fall_into_four_buckets() {
        let buckets = [0, 1, 5, 6, 10, 11, 50, 51].map(turn_count_bucket);
        assert_eq!(buckets, ["1-5", "1-5", "1-5", "6-10", "6-10", "11-50", "11-50", "50+"]);
    }

    #[test]
    fn store_errors_are_labelled_by_their_message() {
        let types =
            ["Deadlock found", "pool Timeout", "connection reset", "disk full"].map(provider_error_type);
        assert_eq!(types, ["deadlock", "timeout", "connection", "other"]);
    }

    #[test]
    fn from_the_third_retry_on_the_label_is_the_same() {
        assert_eq!([0, 1, 2, 3, 4].map(retry_attempt), ["0", "1", "2", "3+", "3+"]);
    }
}
