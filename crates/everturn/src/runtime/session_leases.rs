//! Keeps the leases of this runtime's sessions, and sweeps away what nobody uses.

use std::sync::Arc;
use std::time::Duration;

use everturn_provider::Provider;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::lock_keeper::renewal_interval;
use super::options::RuntimeOptions;

/// Renews the leases of all these owners in one call, and sweeps, each at its interval, for ever.
pub(crate) async fn run(store: Arc<dyn Provider>, owners: Vec<String>, options: RuntimeOptions) {
    let owners: Vec<&str> = owners.iter().map(String::as_str).collect();
    let renewal = renewal_interval(options.session_lock_timeout, options.session_lock_renewal_buffer);
    let mut renewals = ticks(renewal);
    let mut sweeps = ticks(options.session_cleanup_interval);
    loop {
        tokio::select! {
            biased;
            _ = renewals.tick() => {
                let renewed = store
                    .renew_session_lock(&owners, options.session_lock_timeout, options.session_idle_timeout)
                    .await;
                if let Err(error) = renewed {
                    tracing::warn!(target: "everturn::runtime::worker", %error, "session leases were not renewed");
                }
            }
            _ = sweeps.tick() => {
                if let Err(error) = store.cleanup_orphaned_sessions(options.session_idle_timeout).await {
                    tracing::warn!(target: "everturn::runtime::worker", %error, "idle sessions were not swept");
                }
            }
        }
    }
}

fn ticks(every: Duration) -> tokio::time::Interval {
    // An interval of zero is not one.
    let every = every.max(Duration::from_millis(1));
    let mut ticks = interval_at(Instant::now() + every, every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
