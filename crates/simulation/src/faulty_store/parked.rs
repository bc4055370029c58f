//! Fetches from a [`BatchedMemory`] that wait for work, and for the end of their batch.

use std::sync::Arc;
use std::time::Duration;

use everturn_provider::ProviderError;
use everturn_provider::store::{FetchedTurn, FetchedWork};
use everturn_provider::testing::{Moment, SessionsBefore, TableAccess as _, Tables};
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};

use super::batch::{Assigned, BatchEnd, BatchNotes, BatchedMemory, VerbAnswer, is_committed};

/// A parked fetch looks at least this often: the store's clock may have been set.
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_secs(1);

/// What a fetch returns.
pub(super) trait FetchedRow {
    /// The lock.
    fn lock_token(&self) -> &str;

    /// Sets how much of the lock is left.
    fn set_lock_left(&mut self, lock_left: Duration);
}

impl FetchedRow for FetchedTurn {
    fn lock_token(&self) -> &str {
        &self.lock_token
    }

    fn set_lock_left(&mut self, lock_left: Duration) {
        self.lock_left = lock_left;
    }
}

impl FetchedRow for FetchedWork {
    fn lock_token(&self) -> &str {
        &self.lock_token
    }

    fn set_lock_left(&mut self, lock_left: Duration) {
        self.lock_left = lock_left;
    }
}

/// One look into a queue.
pub(super) struct Look<T> {
    pub(super) found: Vec<T>,
    /// Whether all of it may be answered before it is committed.
    pub(super) is_early: bool,
    /// The sessions before the look, if it claimed any.
    pub(super) before: Option<Arc<SessionsBefore>>,
    /// How long it is until a look may find more.
    pub(super) wait: Option<Duration>,
    /// There will be more when the open batch has ended.
    pub(super) passed_over: bool,
}

impl<T> VerbAnswer for Look<T> {
    fn has_changed(&self) -> bool {
        !self.found.is_empty()
    }
}

impl BatchedMemory {
    /// Looks until something is found or `poll_timeout` is over. What `look` takes is answered when it is committed, or
    /// earlier if it may; a fetch that is dropped before that is undone.
    pub(super) async fn look_until<T: FetchedRow>(
        &self,
        verb_name: &str,
        poll_timeout: Duration,
        queue: &Notify,
        mut look: impl FnMut(&mut Tables, Moment, &BatchNotes, &mut BatchNotes) -> Look<T>,
    ) -> Result<Vec<T>, ProviderError> {
        let begun = Instant::now();
        loop {
            // Registered before the look: every change after it wakes this fetch.
            let changed = queue.notified();
            let moved = self.clock.moved();
            let (Look { found, is_early, before, wait, passed_over }, batch) = self
                .run(true, |tables, now, open, notes| {
                    look(tables, now, open.unwrap_or(&BatchNotes::default()), notes)
                });
            if !found.is_empty() {
                let taken = self.take(verb_name, found, is_early, before, batch).await?;
                if taken.is_empty() {
                    continue;
                }
                return Ok(taken);
            }
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

    /// Waits until assigned rows may be taken; returns what there still is to take.
    async fn take<T: FetchedRow>(
        &self,
        verb_name: &str,
        mut found: Vec<T>,
        is_early: bool,
        before: Option<Arc<SessionsBefore>>,
        batch: Option<Arc<BatchEnd>>,
    ) -> Result<Vec<T>, ProviderError> {
        let Some(batch) = batch else { return Ok(found) };
        let assigned =
            found.iter().map(|row| Assigned { token: row.lock_token().to_owned(), before: before.clone() });
        let undo = UndoOnDrop { memory: self, assigned: assigned.collect() };
        let fate = if is_early {
            // The caller that has released it gets its answer first.
            yield_now().await;
            batch.fate()
        } else {
            Some(self.end_of(&batch).await)
        };
        undo.disarm();
        if !fate.map_or(Ok(true), |fate| is_committed(verb_name, fate))? {
            return Ok(Vec::new());
        }
        self.memory.inspect(|tables, now| {
            // It may have been deleted in the same batch.
            found.retain_mut(|row| match tables.lock_left(now, row.lock_token()) {
                Some(lock_left) => {
                    row.set_lock_left(lock_left);
                    true
                }
                None => false,
            });
        });
        Ok(found)
    }
}

impl BatchedMemory {
    /// Waits until the step that assigned these activities is committed. `None` if its batch was lost and the step must run
    /// again. If the call is dropped before that, the activities return to their queue.
    pub(super) async fn take_next(
        &self,
        verb_name: &str,
        mut next: Vec<Option<FetchedWork>>,
        assigned: Vec<Assigned>,
        batch: Option<Arc<BatchEnd>>,
    ) -> Result<Option<Vec<Option<FetchedWork>>>, ProviderError> {
        let Some(batch) = batch else { return Ok(Some(next)) };
        let undo = UndoOnDrop { memory: self, assigned };
        let fate = self.end_of(&batch).await;
        undo.disarm();
        if !is_committed(verb_name, fate)? {
            return Ok(None);
        }
        self.memory.inspect(|tables, now| {
            for place in &mut next {
                // It may have been deleted in the same batch.
                let left = place.as_ref().and_then(|work| tables.lock_left(now, &work.lock_token));
                match (place.as_mut(), left) {
                    (Some(work), Some(lock_left)) => work.lock_left = lock_left,
                    _ => *place = None,
                }
            }
        });
        Ok(Some(next))
    }
}

/// What a step has assigned to its workers.
pub(super) fn assigned_by(
    next: &[Option<FetchedWork>],
    before: Option<&Arc<SessionsBefore>>,
) -> Vec<Assigned> {
    let work = next.iter().flatten();
    work.map(|work| Assigned { token: work.lock_token.clone(), before: before.cloned() }).collect()
}

/// Undoes a fetch if it is dropped before its rows were taken.
struct UndoOnDrop<'a> {
    memory: &'a BatchedMemory,
    assigned: Vec<Assigned>,
}

impl UndoOnDrop<'_> {
    /// The rows were taken, or are lost.
    fn disarm(mut self) {
        self.assigned.clear();
    }
}

impl Drop for UndoOnDrop<'_> {
    fn drop(&mut self) {
        for assigned in self.assigned.drain(..) {
            self.memory.undo(assigned);
        }
    }
}
