//! How a runtime logs and reports metrics.

use std::time::Duration;

/// How a runtime logs, and how often it refreshes its gauges.
///
/// ```
/// use everturn::runtime::{LogFormat, ObservabilityConfig};
///
/// let config = ObservabilityConfig { log_format: LogFormat::Json, ..Default::default() };
/// assert_eq!(config.log_level, "info");
/// ```
#[derive(Debug, Clone)]
pub struct ObservabilityConfig {
    /// Format of log lines.
    pub log_format: LogFormat,
    /// Lowest level at which lines of orchestrations and activities are logged.
    pub log_level: String,
    /// Name of the application.
    pub service_name: String,
    /// Version of the application.
    pub service_version: Option<String>,
    /// Interval at which gauges are read from the store.
    pub gauge_poll_interval: Duration,
}

impl Default for ObservabilityConfig {
    fn default() -> Self {
        Self {
            log_format: LogFormat::Pretty,
            log_level: "info".to_owned(),
            service_name: "everturn".to_owned(),
            service_version: None,
            gauge_poll_interval: Duration::from_secs(60),
        }
    }
}

/// Format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// One JSON object per line.
    Json,
    /// Several lines per event, for people.
    Pretty,
    /// One short line per event.
    #[default]
    Compact,
}
