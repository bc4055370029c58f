//! Waiting for an instance to change.

use std::time::Duration;

use tokio::sync::watch;
use tokio::sync::watch::error::RecvError;
use tokio::time::error::Elapsed;

/// First wait of a watch that polls.
const POLL_MIN: Duration = Duration::from_millis(5);
/// Longest wait of a watch that polls.
const POLL_MAX: Duration = Duration::from_millis(100);

/// Waits for the next change of an instance. Made before the state is read, so that no change falls in between.
///
/// ```
/// # async fn example(store: &dyn everturn_provider::store::Store) -> Result<(), everturn_provider::ProviderError> {
/// use std::time::Duration;
///
/// let mut watch = store.watch("order-42");
/// while !store.read_status("order-42").await?.is_terminal() {
///     while !watch.changed(Duration::from_secs(1)).await {
///         println!("still the same");
///     }
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

    /// A watch that fires when the provider changes the value. The provider does so after each commit that clients can see,
    /// whichever process made it, and drops the sender when it can no longer tell: then the watch polls.
    pub fn woken(changes: watch::Receiver<u64>) -> Self {
        Self(Source::Woken(changes))
    }

    /// Returns true when the instance may have changed since the last call (or since the watch was made), so that it is
    /// worth a look; false after `at_most` without a change.
    pub async fn changed(&mut self, at_most: Duration) -> bool {
        match &mut self.0 {
            Source::Polling { next } => {
                let wait = (*next).min(at_most);
                *next = next.saturating_mul(2).min(POLL_MAX);
                tokio::time::sleep(wait).await;
                true
            }
            Source::Woken(changes) => {
                let changed = tokio::time::timeout(at_most, changes.changed()).await;
                self.look_again(changed)
            }
        }
    }

    /// The same for a caller with its own interval: a polling watch waits exactly `interval`, a woken one at most that.
    pub async fn changed_or_after(&mut self, interval: Duration) -> bool {
        match &mut self.0 {
            Source::Polling { .. } => {
                tokio::time::sleep(interval).await;
                true
            }
            Source::Woken(changes) => {
                let changed = tokio::time::timeout(interval, changes.changed()).await;
                self.look_again(changed)
            }
        }
    }

    /// Whether to look at the instance after a wait of a woken watch.
    fn look_again(&mut self, changed: Result<Result<(), RecvError>, Elapsed>) -> bool {
        match changed {
            Ok(Ok(())) => true,
            Ok(Err(_closed)) => {
                // The provider is closed and wakes no watch any more.
                *self = Self::polling();
                true
            }
            Err(_elapsed) => false,
        }
    }
}
