//! Renewing the leases of this runtime's sessions.

use std::sync::Arc;

use everturn_provider::store::{Renewal, SessionRenewal, Store};
use tokio::time::{Instant, sleep_until, timeout};

use super::deadline::after;
use super::lock_keeper::renewal_interval;
use super::options::RuntimeOptions;
use super::retrying::retrying;

/// Renews the leases of all `owner_ids` in one call, at an interval, until this future is dropped. Retryable errors are
/// retried for the duration of a lease.
pub(crate) async fn run(store: Arc<dyn Store>, owner_ids: Vec<String>, options: RuntimeOptions) {
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
