//! [`ErrorDetails`]: why an orchestration or an activity failed, as history records it.

use serde::{Deserialize, Serialize};

use crate::limits::MIN_FAILURE_TEXT_BYTES;

/// The recorded reason of a failure.
///
/// Orchestration code receives only [`ErrorDetails::Application`] failures of activities and children. The other three end
/// the waiting orchestration with the same details.
///
/// ```
/// use everturn_core::{AppErrorKind, ErrorDetails};
///
/// let details = ErrorDetails::Application {
///     kind: AppErrorKind::Cancelled { reason: "customer left".into() },
///     message: String::new(),
///     retryable: false,
/// };
/// assert_eq!(details.category(), "application");
/// assert_eq!(details.display_message(), "canceled: customer left");
/// ```
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub enum ErrorDetails {
    /// The engine or its store failed.
    Infrastructure {
        /// The operation that failed.
        operation: String,
        /// What went wrong.
        message: String,
        /// Whether trying again may help.
        retryable: bool,
    },
    /// The code does not fit the recorded history.
    Configuration {
        /// The kind of mismatch.
        kind: ConfigErrorKind,
        /// The resource concerned; may be empty.
        resource: String,
        /// A description of the mismatch.
        message: Option<String>,
    },
    /// The user's code failed, or was cancelled.
    Application {
        /// What failed.
        kind: AppErrorKind,
        /// The error text.
        message: String,
        /// Whether trying again may help.
        retryable: bool,
    },
    /// A message was fetched too often without success.
    Poison {
        /// How many times it was fetched.
        attempt_count: u32,
        /// How many times it may be fetched.
        max_attempts: u32,
        /// The kind of message.
        message_type: PoisonMessageType,
        /// The message itself as JSON, or the deserialisation error. A line before the JSON says why the message was not
        /// handled, if that is known.
        message: String,
    },
}

/// Kinds of [`ErrorDetails::Configuration`].
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub enum ConfigErrorKind {
    /// The code asks for something else than history records.
    Nondeterminism,
}

/// Kinds of [`ErrorDetails::Application`].
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub enum AppErrorKind {
    /// An activity failed.
    ActivityFailed,
    /// An orchestration failed.
    OrchestrationFailed,
    /// An orchestration panicked.
    Panicked,
    /// An orchestration was cancelled.
    Cancelled {
        /// The reason given.
        reason: String,
    },
}

/// Kinds of message in [`ErrorDetails::Poison`].
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub enum PoisonMessageType {
    /// A turn of an orchestration.
    Orchestration {
        /// The instance.
        instance: String,
        /// Its execution.
        execution_id: u64,
    },
    /// An activity.
    Activity {
        /// The instance that asked for it.
        instance: String,
        /// Its execution.
        execution_id: u64,
        /// Registered name of the activity.
        activity_name: String,
        /// Its schedule event.
        activity_id: u64,
    },
    /// A history that cannot be read.
    FailedDeserialization {
        /// The instance.
        instance: String,
        /// Its execution.
        execution_id: u64,
        /// What could not be read.
        error: String,
    },
}

impl ErrorDetails {
    /// An application failure of an activity, not retryable.
    pub fn activity_failed(message: impl Into<String>) -> Self {
        Self::application(AppErrorKind::ActivityFailed, message)
    }

    /// An application failure of an orchestration, not retryable.
    pub fn orchestration_failed(message: impl Into<String>) -> Self {
        Self::application(AppErrorKind::OrchestrationFailed, message)
    }

    /// The details of a cancelled orchestration.
    pub fn cancelled(reason: impl Into<String>) -> Self {
        Self::application(AppErrorKind::Cancelled { reason: reason.into() }, "")
    }

    /// A mismatch between the code and its history.
    pub fn nondeterminism(message: impl Into<String>) -> Self {
        Self::Configuration {
            kind: ConfigErrorKind::Nondeterminism,
            resource: String::new(),
            message: Some(message.into()),
        }
    }

    pub(crate) fn application(kind: AppErrorKind, message: impl Into<String>) -> Self {
        Self::Application { kind, message: message.into(), retryable: false }
    }

    /// Cuts every text in it to the payload limit; a cut text says so.
    ///
    /// ```
    /// use everturn_core::ErrorDetails;
    ///
    /// let details = ErrorDetails::nondeterminism("x".repeat(5_000)).cut_to(2_000);
    /// assert!(details.display_message().ends_with("x … (cut, 5000 bytes in all)"));
    /// ```
    #[must_use]
    pub fn cut_to(mut self, payload_bytes_max: usize) -> Self {
        let bytes_max = payload_bytes_max.max(MIN_FAILURE_TEXT_BYTES);
        match &mut self {
            Self::Infrastructure { message, .. } | Self::Configuration { message: Some(message), .. } => {
                cut(message, bytes_max);
            }
            Self::Configuration { message: None, .. } => {}
            Self::Application { kind, message, .. } => {
                cut(message, bytes_max);
                if let AppErrorKind::Cancelled { reason } = kind {
                    cut(reason, bytes_max);
                }
            }
            Self::Poison { message_type, message, .. } => {
                cut(message, bytes_max);
                if let PoisonMessageType::FailedDeserialization { error, .. } = message_type {
                    cut(error, bytes_max);
                }
            }
        }
        self
    }

    /// `infrastructure`, `configuration`, `application` or `poison`.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Infrastructure { .. } => "infrastructure",
            Self::Configuration { .. } => "configuration",
            Self::Application { .. } => "application",
            Self::Poison { .. } => "poison",
        }
    }

    /// Whether trying again may help.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Infrastructure { retryable, .. } | Self::Application { retryable, .. } => *retryable,
            Self::Configuration { .. } | Self::Poison { .. } => false,
        }
    }

    /// The failure in one line, as orchestration code and clients see it.
    pub fn display_message(&self) -> String {
        match self {
            Self::Infrastructure { operation, message, .. } => {
                format!("infrastructure:{operation}: {message}")
            }
            Self::Configuration { message: Some(message), .. } => format!("nondeterministic: {message}"),
            Self::Configuration { resource, message: None, .. } => format!("nondeterministic in {resource}"),
            Self::Application { kind, message, .. } => match kind {
                AppErrorKind::Cancelled { reason } => format!("canceled: {reason}"),
                AppErrorKind::Panicked => format!("orchestration panicked: {message}"),
                AppErrorKind::ActivityFailed | AppErrorKind::OrchestrationFailed => message.clone(),
            },
            Self::Poison { attempt_count, max_attempts, message_type, message } => {
                poison_message(*attempt_count, *max_attempts, message_type, message)
            }
        }
    }
}

fn cut(text: &mut String, bytes_max: usize) {
    let bytes = text.len();
    if bytes > bytes_max {
        let mark = format!(" … (cut, {bytes} bytes in all)");
        text.truncate(text.floor_char_boundary(bytes_max.saturating_sub(mark.len())));
        text.push_str(&mark);
    }
}

fn poison_message(attempts: u32, max: u32, what: &PoisonMessageType, message: &str) -> String {
    // Compact JSON has no line breaks.
    let reason = message.split_once('\n').map(|(reason, _json)| format!(": {reason}")).unwrap_or_default();
    match what {
        PoisonMessageType::Orchestration { instance, .. } => {
            format!("poison: orchestration {instance} exceeded {attempts} attempts (max {max}){reason}")
        }
        PoisonMessageType::Activity { activity_name, activity_id, .. } => {
            format!(
                "poison: activity {activity_name}#{activity_id} exceeded {attempts} attempts (max {max}){reason}"
            )
        }
        PoisonMessageType::FailedDeserialization { instance, error, .. } => format!(
            "poison: orchestration {instance} history deserialization failed after {attempts} attempts (max {max}): {error}"
        ),
    }
}
