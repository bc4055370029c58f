//! Fetches that wait for work.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};

use super::MemoryProvider;
use super::batch::{Answer, Ending, is_committed};
use super::hand_back::{Assigned, HandBackGuard};
use super::tables::{Moment, Tables};
use crate::error::ProviderError;
use crate::store::{FetchedTurn, FetchedWork};

/// A parked fetch looks at least this often: the store's clock may have been set.
pub(super) const LOOK_AT_LEAST_EVERY: Duration = Duration::from_secs(1);

/// What a fetch returns.
pub(super) trait Fetched {
    /// The lock.
    fn lock_token(&self) -> &str;

    /// Sets how much of the lock is left.
    fn set_lock_left(&mut self, lock_left: Duration);
}

impl Fetched for FetchedTurn {
    fn lock_token(&self) -> &str {
        &self.lock_token
    }

    fn set_lock_left(&mut self, lock_left: Duration) {
        self.lock_left = lock_left;
    }
}

impl Fetched for FetchedWork {
    fn lock_token(&self) -> &str {
        &self.lock_token
    }

    fn set_lock_left(&mut self, lock_left: Duration) {
        self.lock_left = lock_left;
    }
}

/// What a look into a queue came to.
enum Look<T> {
    Found {
        work: Vec<T>,
        assigned: Vec<Assigned>,
        /// Whether all of it may be taken before it is committed.
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
    /// Looks until something is found or `poll_timeout` is over. What `look` takes is answered when it is committed, or
    /// earlier if it may; a fetch that is dropped before that returns it to the queue.
    ///
    /// `next_wake` says how long it is until a look may find more.
    pub(super) async fn look_until<T: Fetched>(
        &self,
        operation: &str,
        poll_timeout: Duration,
        queue: &Notify,
        mut look: impl FnMut(&mut Tables, Moment) -> Vec<T>,
        next_wake: impl Fn(&Tables, Moment) -> Option<Duration>,
    ) -> Result<Vec<T>, ProviderError> {
        let begun = Instant::now();
        loop {
            // Registered before the look: whatever changes after it wakes this fetch.
            let changed = queue.notified();
            let moved = self.clock.moved();
            let (looked, batch) = self.run(true, |tables, now| {
                let work = look(tables, now);
                if work.is_empty() {
                    let passed_over = tables.changes.passed_over;
                    return Look::Nothing { wait: next_wake(tables, now), passed_over };
                }
                let is_early = !tables.changes.early.is_empty();
                let mut claims = std::mem::take(&mut tables.changes.claims);
                let assigned = work.iter().map(|work| {
                    let token = work.lock_token().to_owned();
                    Assigned { claim: claims.remove(&token), token }
                });
                Look::Found { assigned: assigned.collect(), work, is_early }
            });
            let (wait, passed_over) = match looked {
                Look::Found { work, assigned, is_early } => {
                    let work = self.take(operation, work, assigned, is_early, batch).await?;
                    if !work.is_empty() {
                        return Ok(work);
                    }
                    continue;
                }
                Look::Nothing { wait, passed_over } => (wait, passed_over),
            };
            let left = poll_timeout.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return Ok(Vec::new());
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

    /// Waits until assigned work may be taken; returns what there still is to take.
    async fn take<T: Fetched>(
        &self,
        operation: &str,
        mut work: Vec<T>,
        assigned: Vec<Assigned>,
        is_early: bool,
        batch: Option<Arc<Ending>>,
    ) -> Result<Vec<T>, ProviderError> {
        let Some(batch) = batch else { return Ok(work) };
        let guard = HandBackGuard::new(self, assigned);
        let fate = if is_early {
            // Callers that have released it get their answer first.
            yield_now().await;
            batch.fate()
        } else {
            Some(self.end_of(&batch).await)
        };
        guard.disarm();
        if !fate.map_or(Ok(true), |fate| is_committed(operation, fate))? {
            return Ok(Vec::new());
        }
        let now = self.moment();
        self.with_tables(|tables| {
            // It may have been deleted in the same batch.
            work.retain_mut(|work| match tables.lock(work.lock_token()) {
                Some(lock) => {
                    work.set_lock_left(now.until(lock.held_until));
                    true
                }
                None => false,
            });
        });
        Ok(work)
    }
}
