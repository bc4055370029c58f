//! A log subscriber for applications without one.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::fmt;

use super::config::{LogFormat, ObservabilityConfig};

/// Installs a log subscriber for the whole process, which writes to standard output.
///
/// For applications without a subscriber of their own; nothing in this library calls it. `RUST_LOG` sets the filter.
/// Without it, warnings are logged, and lines of orchestrations and activities from [`ObservabilityConfig::log_level`] on.
///
/// ```no_run
/// use everturn::runtime::observability::{ObservabilityConfig, init_logging};
///
/// init_logging(&ObservabilityConfig::default()).expect("no other subscriber is set");
/// ```
///
/// # Errors
/// If a subscriber is set already, or the filter cannot be read.
pub fn init_logging(config: &ObservabilityConfig) -> Result<(), String> {
    let filter = std::env::var("RUST_LOG").unwrap_or_else(|_| default_filter(&config.log_level));
    let filter =
        EnvFilter::try_new(&filter).map_err(|error| format!("reading log filter '{filter}': {error}"))?;
    let subscriber = fmt().with_env_filter(filter);
    match config.log_format {
        LogFormat::Json => subscriber.json().try_init(),
        LogFormat::Pretty => subscriber.pretty().try_init(),
        LogFormat::Compact => subscriber.compact().try_init(),
    }
    .map_err(|error| format!("installing the log subscriber: {error}"))
}

fn default_filter(level: &str) -> String {
    format!("warn,everturn::orchestration={level},everturn::activity={level}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_filter_names_both_targets_of_users_code() {
        assert_eq!(default_filter("debug"), "warn,everturn::orchestration=debug,everturn::activity=debug");
    }

    #[test]
    fn a_second_subscriber_is_refused() {
        let config = ObservabilityConfig { log_format: LogFormat::Compact, ..Default::default() };
        init_logging(&config).expect("the first one is installed");
        let error = init_logging(&config).expect_err("the second one is not");
        assert!(error.contains("installing the log subscriber"), "{error}");
    }
}
