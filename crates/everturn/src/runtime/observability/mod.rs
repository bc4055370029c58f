//! Logs and metrics of a runtime.
//!
//! Nothing here installs a logger or a metrics recorder by itself: [`init_logging`] does so when the application calls
//! it, and metrics go through the `metrics` facade to whatever recorder the application installed.

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
