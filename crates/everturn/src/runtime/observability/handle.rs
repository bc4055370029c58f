//! A runtime's metrics, held together.

use std::sync::Arc;

use super::{MetricsProvider, MetricsSnapshot, ObservabilityConfig};

/// What a runtime reports through.
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

    /// Where everything is counted.
    pub fn metrics_provider(&self) -> &Arc<MetricsProvider> {
        &self.metrics
    }

    /// What was counted so far.
    pub fn metrics_snapshot(&self) -> MetricsSnapshot {
        self.metrics.snapshot()
    }

    /// Ends reporting. Everything is handed to the recorder at once, so nothing is left to flush.
    pub async fn shutdown(&self) {}
}
