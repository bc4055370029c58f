//! Renewing the leases of this runtime's sessions, and sweeping idle sessions.

use std::sync::Arc;
use std::time::Duration;

use everturn_provider::store::{Renewal, SessionRenewal, Store, Sweep};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::deadline::after;
use super::lock_keeper::renewal_interval;
use super::options::RuntimeOptions;
use super::retrying::retrying;

/// Renews the leases of all `owners` in one call and sweeps idle sessions, each at its interval, until this future is
/// dropped.
pub(crate) async fn run(store: Arc<dyn Store>, owners: Vec<String>, options: RuntimeOptions) {
    tokio::join!(
        renew_leases(store.as_ref(), owners, &options),
        sweep_idle_sessions(store.as_ref(), &options)
    );
}

/// Renews the leases. Retryable errors are retried for the duration of a lease.
async fn renew_leases(store: &dyn Store, owner_ids: Vec<String>, options: &RuntimeOptions) {
    let lease = options.session_lock_timeout;
    let interval = renewal_interval(lease, options.session_lock_renewal_buffer);
    let renewal = Renewal::of_sessions(SessionRenewal {
        owner_ids,
        extend_for: lease,
        idle_timeout: options.session_idle_timeout,
    });
    let mut due_at = after(Instant::now(), interval);
    loop {
        sleep_until(due_at).await;
        due_at = after(Instant::now(), interval);
        let renewing = retrying(lease, || async { store.renew(&renewal).await.map(drop) });
        match timeout(lease, renewing).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(target: "everturn::runtime::worker", %error, "renewing session leases failed; their activities may move to other workers");
            }
            Err(_elapsed) => {
                tracing::warn!(target: "everturn::runtime::worker",
                    "renewing session leases failed: the store did not answer; their activities may move to other workers");
            }
        }
    }
}

/// Removes sessions that no activity uses.
async fn sweep_idle_sessions(store: &dyn Store, options: &RuntimeOptions) {
    let sweep = Sweep::new(options.session_idle_timeout);
    loop {
        // An interval of zero would never yield.
        sleep(options.session_cleanup_interval.max(Duration::from_millis(1))).await;
        if let Err(error) = store.sweep(&sweep).await {
            tracing::warn!(target: "everturn::runtime::worker", %error, "sweeping idle sessions failed; retrying after the interval");
        }
    }
}
