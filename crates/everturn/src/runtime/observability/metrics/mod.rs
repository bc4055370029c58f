//! Counting what a runtime does.
//!
//! Each `record_*` method is one metric: it goes through the `metrics` facade, and if the snapshot has a counter of it,
//! that counter grows by one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use metrics::gauge;

use super::ObservabilityConfig;
use super::snapshot::{Counters, MetricsSnapshot};

mod activities;
mod orchestrations;
mod storage;

/// Counts what a runtime does.
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
    counters: Counters,
    orchestrator_queue_depth: AtomicU64,
    worker_queue_depth: AtomicU64,
    /// Under one lock with its gauge, so that the last value set is the last one shown.
    active_orchestrations: Mutex<u64>,
}

impl MetricsProvider {
    /// Begins to count, at zero.
    ///
    /// # Errors
    /// None today; a reporter that must connect somewhere could fail.
    pub fn new(_config: &ObservabilityConfig) -> Result<Self, String> {
        Ok(Self::default())
    }

    /// What was counted so far.
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

    /// The depths last set: orchestrator queue, worker queue.
    pub fn get_queue_depths(&self) -> (u64, u64) {
        (
            self.orchestrator_queue_depth.load(Ordering::Relaxed),
            self.worker_queue_depth.load(Ordering::Relaxed),
        )
    }

    /// One more instance is under way.
    pub fn increment_active_orchestrations(&self) {
        self.change_active_orchestrations(|active| active.saturating_add(1));
    }

    /// One instance has ended.
    pub fn decrement_active_orchestrations(&self) {
        // Another node may have counted its start: never below zero.
        self.change_active_orchestrations(|active| active.saturating_sub(1));
    }

    /// Sets how many instances are under way.
    pub fn set_active_orchestrations(&self, active: u64) {
        self.change_active_orchestrations(|_| active);
    }

    /// How many instances are under way.
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
