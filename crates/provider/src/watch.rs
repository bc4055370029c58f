//! Waiting for an instance to change.

use std::time::Duration;

use tokio::sync::watch;

/// First wait of a watch that polls.
const POLL_MIN: Duration = Duration::from_millis(5);
/// Longest wait of a watch that polls.
const POLL_MAX: Duration = Duration::from_millis(100);
/// A woken watch still looks this often: the wake-up of another process may come late.
const SAFETY_POLL: Duration = Duration::from_secs(1);

/// Waits for the next change of an instance. Made before the state is read, so that no change falls in between.
///
/// ```
/// # async fn example(store: &dyn everturn_provider::store::Store) -> Result<(), everturn_provider::ProviderError> {
/// use std::time::Duration;
///
/// let mut watch = store.watch("order-42");
/// while !store.read_status("order-42").await?.is_terminal() {
///     watch.changed(Duration::from_secs(1)).await;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct InstanceWatch(Source);

#[derive(Debug)]
enum Source {
    Polling { next: Duration },
    Woken(watch::Receiver<u64>),
}

impl InstanceWatch {
    /// A watch that only lets time pass: 5 ms at first, doubling to 100 ms.
    pub fn polling() -> Self {
        Self(Source::Polling { next: POLL_MIN })
    }

    /// A watch that ends when the provider changes the value: after each commit that clients can see.
    pub fn woken(changes: watch::Receiver<u64>) -> Self {
        Self(Source::Woken(changes))
    }

    /// Returns when the instance may have changed since the last call (or since the watch was made), or after
    /// `at_most`. Look again either way.
    pub async fn changed(&mut self, at_most: Duration) {
        if let Source::Polling { next } = &mut self.0 {
            let wait = (*next).min(at_most);
            *next = next.saturating_mul(2).min(POLL_MAX);
            tokio::time::sleep(wait).await;
        } else {
            self.woken_or_after(at_most.min(SAFETY_POLL)).await;
        }
    }

    /// The same for a caller with its own interval: a polling watch waits exactly `interval`, a woken one at most that.
    pub async fn changed_or_after(&mut self, interval: Duration) {
        if let Source::Polling { .. } = &self.0 {
            tokio::time::sleep(interval).await;
        } else {
            self.woken_or_after(interval.min(SAFETY_POLL)).await;
        }
    }

    async fn woken_or_after(&mut self, wait: Duration) {
        let Source::Woken(changes) = &mut self.0 else { return };
        if let Ok(Err(_closed)) = tokio::time::timeout(wait, changes.changed()).await {
            // The provider is gone and wakes no watch any more.
            *self = Self::polling();
            tokio::time::sleep(POLL_MIN.min(wait)).await;
        }
    }
}
