//! Keeps the leases of this runtime's sessions, and sweeps away what nobody uses.

use std::sync::Arc;
use std::time::Duration;

use everturn_provider::Provider;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::deadline::after;
use super::lock_keeper::renewal_interval;
use super::options::RuntimeOptions;
use super::retrying::retrying;

/// Renews the leases of all these owners in one call, and sweeps, each at its interval, for ever.
pub(crate) async fn run(store: Arc<dyn Provider>, owners: Vec<String>, options: RuntimeOptions) {
    let owners: Vec<&str> = owners.iter().map(String::as_str).collect();
    tokio::join!(keep(store.as_ref(), &owners, &options), sweep(store.as_ref(), &options));
}

/// Renews the leases. What fails for now is tried again as long as a lease can last that was held when it was due.
async fn keep(store: &dyn Provider, owners: &[&str], options: &RuntimeOptions) {
    let lease = options.session_lock_timeout;
    let interval = renewal_interval(lease, options.session_lock_renewal_buffer);
    let mut due_at = after(Instant::now(), interval);
    loop {
        sleep_until(due_at).await;
        due_at = after(Instant::now(), interval);
        let renewing = retrying(lease, || async {
            store.renew_session_lock(owners, lease, options.session_idle_timeout).await.map(drop)
        });
        match timeout(lease, renewing).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(target: "everturn::runtime::worker", %error, "session leases were not renewed");
            }
            Err(_elapsed) => {
                tracing::warn!(target: "everturn::runtime::worker",
                    "session leases were not renewed: the store did not answer");
            }
        }
    }
}

/// Removes sessions nobody needs.
async fn sweep(store: &dyn Provider, options: &RuntimeOptions) {
    loop {
        // An interval of zero is not one.
        sleep(options.session_cleanup_interval.max(Duration::from_millis(1))).await;
        if let Err(error) = store.cleanup_orphaned_sessions(options.session_idle_timeout).await {
            tracing::warn!(target: "everturn::runtime::worker", %error, "idle sessions were not swept");
        }
    }
}
