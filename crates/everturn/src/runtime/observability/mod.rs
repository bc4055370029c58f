//! Logs and metrics of a runtime.
//!
//! The library installs neither a logger nor a metrics recorder. An application without a logger can call
//! [`init_logging`]. Metrics go through the `metrics` facade to the recorder that the application installed.

mod config;
mod handle;
mod labels;
mod logging;
mod metrics;
mod snapshot;

pub use config::{LogFormat, ObservabilityConfig};
pub use handle::ObservabilityHandle;
pub use labels::{ActivityOutcome, CompletionStatus, FailureType, InitiatedBy};
pub use logging::init_logging;
pub use metrics::MetricsProvider;
pub use snapshot::MetricsSnapshot;
