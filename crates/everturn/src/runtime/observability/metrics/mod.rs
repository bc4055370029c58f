//! The metrics of a runtime.
//!
//! Each `record_*` method is one metric: it is sent to the `metrics` facade, and increments its counter in the snapshot if
//! it has one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use metrics::gauge;

use super::ObservabilityConfig;
use super::snapshot::{MetricCounters, MetricsSnapshot};

mod activities;
mod orchestrations;
mod storage;

/// The metrics of a runtime, sent to the `metrics` facade and counted for [`snapshot`](Self::snapshot).
///
/// ```
/// use everturn::runtime::observability::{InitiatedBy, MetricsProvider, ObservabilityConfig};
///
/// let metrics = MetricsProvider::new(&ObservabilityConfig::default())?;
/// metrics.record_orchestration_start("order", "1.0.0", InitiatedBy::Client);
/// assert_eq!(metrics.snapshot().orch_starts, 1);
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Default)]
pub struct MetricsProvider {
    counters: MetricCounters,
    orchestrator_queue_depth: AtomicU64,
    worker_queue_depth: AtomicU64,
    /// Locked while its gauge is set, so that the gauge shows the latest value.
    active_orchestrations: Mutex<u64>,
}

impl MetricsProvider {
    /// Metrics with all counters at zero.
    ///
    /// # Errors
    /// None today. A later exporter that connects to a server may fail.
    pub fn new(_config: &ObservabilityConfig) -> Result<Self, String> {
        Ok(Self::default())
    }

    /// The counters so far.
    pub fn snapshot(&self) -> MetricsSnapshot {
        self.counters.snapshot()
    }

    /// Sets `everturn_orchestrator_queue_depth` and `everturn_worker_queue_depth`.
    pub fn update_queue_depths(&self, orchestrator_queue: u64, worker_queue: u64) {
        self.orchestrator_queue_depth.store(orchestrator_queue, Ordering::Relaxed);
        self.worker_queue_depth.store(worker_queue, Ordering::Relaxed);
        gauge!("everturn_orchestrator_queue_depth").set(orchestrator_queue as f64);
        gauge!("everturn_worker_queue_depth").set(worker_queue as f64);
    }

    /// The depths that were set last: orchestrator queue, worker queue.
    pub fn get_queue_depths(&self) -> (u64, u64) {
        (
            self.orchestrator_queue_depth.load(Ordering::Relaxed),
            self.worker_queue_depth.load(Ordering::Relaxed),
        )
    }

    /// Adds one to the running instances.
    pub fn increment_active_orchestrations(&self) {
        self.change_active_orchestrations(|active| active.saturating_add(1));
    }

    /// Subtracts one from the running instances.
    pub fn decrement_active_orchestrations(&self) {
        // Another node may have counted the start, so this can be 0 already.
        self.change_active_orchestrations(|active| active.saturating_sub(1));
    }

    /// Sets the number of running instances.
    pub fn set_active_orchestrations(&self, active: u64) {
        self.change_active_orchestrations(|_| active);
    }

    /// The number of running instances.
    pub fn get_active_orchestrations(&self) -> u64 {
        *self.active_orchestrations()
    }

    fn change_active_orchestrations(&self, change: impl FnOnce(u64) -> u64) {
        let mut active = self.active_orchestrations();
        *active = change(*active);
        gauge!("everturn_active_orchestrations").set(*active as f64);
    }

    fn active_orchestrations(&self) -> MutexGuard<'_, u64> {
        self.active_orchestrations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
