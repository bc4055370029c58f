//! Removing what has expired from the store: idle sessions, and messages for instances that were never started.

use std::sync::Arc;
use std::time::Duration;

use everturn_core::limits::MAX_DEAD_LETTERS_PER_SWEEP;
use everturn_provider::store::{Feature, Store, Sweep, Swept};
use tokio::time::sleep;

use super::observability::MetricsProvider;
use super::options::RuntimeOptions;

/// Sweeps the store at an interval, until this future is dropped.
pub(crate) async fn run(
    store: Arc<dyn Store>,
    metrics: Option<Arc<MetricsProvider>>,
    options: RuntimeOptions,
) {
    let mut sweep = Sweep::new(options.session_idle_timeout);
    if store.supports(Feature::DeadLetters) {
        sweep = sweep.with_dead_letter_after(options.dead_letter_after);
    }
    loop {
        // An interval of zero would never yield.
        sleep(options.session_cleanup_interval.max(Duration::from_millis(1))).await;
        sweep_all(store.as_ref(), &sweep, metrics.as_deref()).await;
    }
}

/// Sweeps until no message is left to be dead-lettered: each sweep takes a bounded number.
async fn sweep_all(store: &dyn Store, sweep: &Sweep, metrics: Option<&MetricsProvider>) {
    loop {
        let swept = match store.sweep(sweep).await {
            Ok(swept) => swept,
            Err(error) => {
                tracing::warn!(target: "everturn::runtime::worker", %error,
                    "sweeping idle sessions and unstarted instances failed; retrying after the interval");
                return;
            }
        };
        report(&swept, metrics);
        if swept.dead_letters.len() < MAX_DEAD_LETTERS_PER_SWEEP {
            return;
        }
    }
}

fn report(swept: &Swept, metrics: Option<&MetricsProvider>) {
    for letter in &swept.dead_letters {
        tracing::warn!(target: "everturn::runtime", instance_id = %letter.instance, kind = %letter.kind,
            "message for an instance that was never started was dead-lettered; check the id that its sender used");
    }
    if let Some(metrics) = metrics {
        metrics.record_messages_dead_lettered(swept.dead_letters.len() as u64);
    }
}
