//! Access to the metrics of a runtime.

use std::sync::Arc;

use super::{MetricsProvider, MetricsSnapshot, ObservabilityConfig};

/// Access to the metrics of a runtime.
pub struct ObservabilityHandle {
    metrics: Arc<MetricsProvider>,
}

impl ObservabilityHandle {
    /// Prepares metrics. Installs neither a log subscriber nor a metrics recorder.
    ///
    /// # Errors
    /// If the metrics cannot be prepared.
    pub fn init(config: &ObservabilityConfig) -> Result<Self, String> {
        Ok(Self { metrics: Arc::new(MetricsProvider::new(config)?) })
    }

    /// The metrics.
    pub fn metrics_provider(&self) -> &Arc<MetricsProvider> {
        &self.metrics
    }

    /// The counters so far.
    pub fn metrics_snapshot(&self) -> MetricsSnapshot {
        self.metrics.snapshot()
    }

    /// Ends reporting. Metrics reach the recorder at once, so nothing needs to be flushed.
    pub async fn shutdown(&self) {}
}
