//! What is logged and how.

use std::time::Duration;

/// What is logged and how, and how often gauges are refreshed.
///
/// ```
/// use everturn::runtime::{LogFormat, ObservabilityConfig};
///
/// let config = ObservabilityConfig { log_format: LogFormat::Json, ..Default::default() };
/// assert_eq!(config.log_level, "info");
/// ```
#[derive(Debug, Clone)]
pub struct ObservabilityConfig {
    /// How a log line looks.
    pub log_format: LogFormat,
    /// Lowest level that orchestrations' and activities' own lines are logged at.
    pub log_level: String,
    /// Name of the application.
    pub service_name: String,
    /// Version of the application.
    pub service_version: Option<String>,
    /// How often gauges are read from the provider.
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

/// How a log line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// Several lines, for people.
    Pretty,
    /// One short line.
    #[default]
    Compact,
}
