//! Fetches that wait for work.

use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::MemoryProvider;
use super::tables::{Moment, Tables};

/// A parked fetch looks at least this often: the store's clock may have been set.
pub(super) const LOOK_AT_LEAST_EVERY: Duration = Duration::from_secs(1);

impl MemoryProvider {
    /// Looks until something is found or `poll_timeout` is over; `next_wake` says how long it is until a look may find
    /// more.
    pub(super) async fn look_until<T>(
        &self,
        poll_timeout: Duration,
        queue: &Notify,
        mut look: impl FnMut(&mut Tables, Moment) -> Vec<T>,
        next_wake: impl Fn(&Tables, Moment) -> Option<Duration>,
    ) -> Vec<T> {
        let begun = Instant::now();
        loop {
            // Registered before the look: every change after it wakes this fetch.
            let changed = queue.notified();
            let moved = self.clock.moved();
            let (found, wait) = self.run(|tables, now| {
                let found = look(tables, now);
                let wait = if found.is_empty() { next_wake(tables, now) } else { None };
                (found, wait)
            });
            let left = poll_timeout.saturating_sub(begun.elapsed());
            if !found.is_empty() || left.is_zero() {
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
