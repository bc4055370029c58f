//! Refreshing the gauges from the store.

use std::sync::Arc;
use std::time::Duration;

use everturn_provider::store::Store;

use super::observability::MetricsProvider;

/// Sets the gauges from the store's queue depths and running instances, if the store has a management side.
async fn refresh(store: &dyn Store, metrics: &MetricsProvider) {
    let Some(admin) = store.admin() else { return };
    match admin.get_queue_depths().await {
        Ok(depths) => {
            metrics.update_queue_depths(depths.orchestrator_queue as u64, depths.worker_queue as u64);
        }
        Err(error) => {
            tracing::debug!(target: "everturn::runtime", %error, "reading queue depths failed; their gauges keep their values");
        }
    }
    match admin.get_system_metrics().await {
        Ok(system) => metrics.set_active_orchestrations(system.running_instances),
        Err(error) => {
            tracing::debug!(target: "everturn::runtime", %error, "reading the number of running instances failed; its gauge keeps its value");
        }
    }
}

/// Refreshes the gauges now and at this interval, until this future is dropped. No slot waits for it.
pub(crate) async fn run(store: Arc<dyn Store>, metrics: Arc<MetricsProvider>, every: Duration) {
    loop {
        refresh(store.as_ref(), &metrics).await;
        tokio::time::sleep(every.max(Duration::from_millis(1))).await;
    }
}
