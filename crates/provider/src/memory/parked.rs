//! Fetches that wait for work.

use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::MemoryProvider;
use super::store::{Moment, Store};

/// A waiting fetch looks at least this often: the clock it goes by may have been set.
pub(super) const LOOK_AT_LEAST_EVERY: Duration = Duration::from_secs(1);

impl MemoryProvider {
    /// Looks until something is found or `poll_timeout` is over. What `look` takes leaves with the very poll that took
    /// it, so a dropped fetch holds nothing.
    ///
    /// `look` is told the time and a fresh token; `next_wake` says how long it is until a look may find more.
    pub(super) async fn look_until<T>(
        &self,
        poll_timeout: Duration,
        work: &Notify,
        mut look: impl FnMut(&mut Store, Moment, &str) -> Option<T>,
        next_wake: impl Fn(&Store, Moment) -> Option<Duration>,
    ) -> Option<T> {
        let begun = Instant::now();
        loop {
            // Registered before the look: whatever changes after it wakes this fetch.
            let changed = work.notified();
            let moved = self.clock.moved();
            let token = format!("{:032x}", self.clock.random_u128());
            let (found, wait) = self.with_store(|store, now| {
                let found = look(store, now, &token);
                let wait = if found.is_some() { None } else { next_wake(store, now) };
                (found, wait)
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
