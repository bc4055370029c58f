//! Fetches that wait for work.

use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::MemoryProvider;
use super::store::Store;

/// A waiting fetch looks at least this often: the clock it goes by may have been set.
pub(super) const LOOK_AT_LEAST_EVERY: Duration = Duration::from_secs(1);

impl MemoryProvider {
    /// Looks until something is found or `poll_timeout` is over. What `look` takes leaves with the very poll that took
    /// it, so a dropped fetch holds nothing.
    ///
    /// `look` is told the time and a fresh token; `next_wake_ms` names the moment from which a look may find more.
    pub(super) async fn look_until<T>(
        &self,
        poll_timeout: Duration,
        work: &Notify,
        mut look: impl FnMut(&mut Store, u64, &str) -> Option<T>,
        next_wake_ms: impl Fn(&Store, u64) -> Option<u64>,
    ) -> Option<T> {
        let begun = Instant::now();
        loop {
            // Registered before the look: whatever changes after it wakes this fetch.
            let changed = work.notified();
            let moved = self.clock.moved();
            let token = format!("{:032x}", self.clock.random_u128());
            let (found, wait) = self.with_store(|store, now_ms| {
                let found = look(store, now_ms, &token);
                let wake_ms = if found.is_some() { None } else { next_wake_ms(store, now_ms) };
                (found, wake_ms.map(|wake_ms| Duration::from_millis(wake_ms.saturating_sub(now_ms))))
            });
            let left = poll_timeout.saturating_sub(begun.elapsed());
            if found.is_some() || left.is_zero() {
                return found;
            }
            let wait = wait.unwrap_or(LOOK_AT_LEAST_EVERY).min(LOOK_AT_LEAST_EVERY).min(left);
            tokio::select! {
                biased;
                () = changed => {}
                () = moved => {}
                () = sleep(wait) => {}
            }
        }
    }
}
