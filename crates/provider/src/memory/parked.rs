//! Fetches that wait for work.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};

use super::MemoryProvider;
use super::batch::{Answer, Ending, is_committed};
use super::hand_back::{Assigned, HandBackGuard};
use super::store::{Moment, Store};
use crate::error::ProviderError;

/// A waiting fetch looks at least this often: the clock it goes by may have been set.
pub(super) const LOOK_AT_LEAST_EVERY: Duration = Duration::from_secs(1);

/// What a look into a queue came to.
enum Look<T> {
    Found {
        work: T,
        assigned: Assigned,
        /// Whether it may be taken before it is committed.
        is_early: bool,
    },
    Nothing {
        /// How long it is until a look may find more.
        wait: Option<Duration>,
        /// There will be more when the open batch has ended.
        passed_over: bool,
    },
}

impl<T> Answer for Look<T> {
    fn has_changed(&self) -> bool {
        matches!(self, Self::Found { .. })
    }
}

impl MemoryProvider {
    /// Looks until something is found or `poll_timeout` is over. What `look` takes leaves when it is committed, or
    /// earlier if it may; a fetch that is dropped before that gives it back.
    ///
    /// `look` is told the time and a fresh token; `next_wake` says how long it is until a look may find more.
    pub(super) async fn look_until<T>(
        &self,
        operation: &str,
        poll_timeout: Duration,
        work: &Notify,
        mut look: impl FnMut(&mut Store, Moment, &str) -> Option<T>,
        next_wake: impl Fn(&Store, Moment) -> Option<Duration>,
    ) -> Result<Option<T>, ProviderError> {
        let begun = Instant::now();
        loop {
            // Registered before the look: whatever changes after it wakes this fetch.
            let changed = work.notified();
            let moved = self.clock.moved();
            let token = format!("{:032x}", self.clock.random_u128());
            let (looked, batch) = self.run(true, |store, now| match look(store, now, &token) {
                Some(work) => {
                    let is_early = store.changes.early.is_some();
                    let assigned = Assigned { token: token.clone(), claim: store.changes.claim.take() };
                    Look::Found { work, assigned, is_early }
                }
                None => Look::Nothing { wait: next_wake(store, now), passed_over: store.changes.passed_over },
            });
            let (wait, passed_over) = match looked {
                Look::Found { work, assigned, is_early } => {
                    if self.may_take(operation, assigned, is_early, batch).await? {
                        return Ok(Some(work));
                    }
                    continue;
                }
                Look::Nothing { wait, passed_over } => (wait, passed_over),
            };
            let left = poll_timeout.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return Ok(None);
            }
            let wait = wait.unwrap_or(LOOK_AT_LEAST_EVERY).min(LOOK_AT_LEAST_EVERY).min(left);
            let more_is_free = async {
                match batch.filter(|_| passed_over) {
                    Some(batch) => drop(self.end_of(&batch).await),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = changed => {}
                () = moved => {}
                () = more_is_free => {}
                () = sleep(wait) => {}
            }
        }
    }

    /// Waits until assigned work may be taken; `false` if there is nothing to take any more.
    async fn may_take(
        &self,
        operation: &str,
        assigned: Assigned,
        is_early: bool,
        batch: Option<Arc<Ending>>,
    ) -> Result<bool, ProviderError> {
        let Some(batch) = batch else { return Ok(true) };
        let token = assigned.token.clone();
        let guard = HandBackGuard::new(self, assigned);
        let fate = if is_early {
            // Those who have let go of it hear so first.
            yield_now().await;
            batch.fate()
        } else {
            Some(self.end_of(&batch).await)
        };
        guard.disarm();
        let is_taken = fate.map_or(Ok(true), |fate| is_committed(operation, fate))?;
        // It may have been deleted in the same batch.
        Ok(is_taken && self.with_store(|store| store.lock(&token).is_some()))
    }
}
