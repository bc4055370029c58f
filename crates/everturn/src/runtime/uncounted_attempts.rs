//! Attempts that the store counted although the work was not at fault.
//!
//! When a lock is lost to an outage of the store, the attempt is taken back with the abandoned lock. During a longer outage
//! abandoning fails too: the lock expires, and the stored count is one too high. The runtimes of this process on that store
//! remember such attempts and subtract them when one of them fetches the work again, so that no outage ends in poison.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use everturn_core::limits::MAX_UNCOUNTED_ATTEMPTS;
use everturn_provider::store::StoreIdentity;

use super::shared_by_store::SharedByStore;

/// What is fetched: the messages of an instance, or one activity.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum AttemptKey {
    /// The turns of an instance.
    Turn { instance: String },
    /// One activity of an execution.
    Activity { instance: String, execution_id: u64, activity_id: u64 },
}

/// Attempts that do not count, by what was tried; cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct UncountedAttempts(Arc<Mutex<UncountedByKey>>);

#[derive(Default)]
struct UncountedByKey {
    attempts: HashMap<AttemptKey, u32>,
    /// The same keys, the oldest first.
    by_age: VecDeque<AttemptKey>,
}

/// The attempts that do not count, by their store.
static BY_STORE: SharedByStore<Mutex<UncountedByKey>> = SharedByStore::new();

impl UncountedAttempts {
    /// Those of all runtimes of this process on that store. A store without identity shares them with no other.
    pub(crate) fn on(store: Option<StoreIdentity>) -> Self {
        Self(BY_STORE.of(store))
    }

    /// The last attempt does not count, and the store could not be told.
    pub(crate) fn note(&self, key: AttemptKey) {
        let mut uncounted = self.uncounted();
        if let Some(attempts) = uncounted.attempts.get_mut(&key) {
            *attempts = attempts.saturating_add(1);
            return;
        }
        uncounted.by_age.push_back(key.clone());
        uncounted.attempts.insert(key, 1);
        while uncounted.by_age.len() > MAX_UNCOUNTED_ATTEMPTS {
            if let Some(oldest) = uncounted.by_age.pop_front() {
                uncounted.attempts.remove(&oldest);
            }
        }
    }

    /// The stored number of attempts without those that do not count. The attempt under way always counts.
    pub(crate) fn subtract_from(&self, attempt_count: u32, key: impl FnOnce() -> AttemptKey) -> u32 {
        let uncounted = self.uncounted();
        if uncounted.attempts.is_empty() {
            return attempt_count;
        }
        match uncounted.attempts.get(&key()) {
            Some(attempts) => attempt_count.saturating_sub(*attempts).max(attempt_count.min(1)),
            None => attempt_count,
        }
    }

    /// The work is done: what is fetched under this key later starts anew.
    pub(crate) fn forget(&self, key: impl FnOnce() -> AttemptKey) {
        let mut uncounted = self.uncounted();
        if uncounted.attempts.is_empty() {
            return;
        }
        let key = key();
        if uncounted.attempts.remove(&key).is_some() {
            uncounted.by_age.retain(|other| *other != key);
        }
    }

    fn uncounted(&self) -> MutexGuard<'_, UncountedByKey> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(instance: &str) -> AttemptKey {
        AttemptKey::Turn { instance: instance.to_owned() }
    }

    #[test]
    fn noted_attempts_are_subtracted_until_they_are_forgotten() {
        let uncounted = UncountedAttempts::default();
        assert_eq!(uncounted.subtract_from(3, || turn("i")), 3);
        uncounted.note(turn("i"));
        uncounted.note(turn("i"));
        assert_eq!(uncounted.subtract_from(3, || turn("i")), 1);
        assert_eq!(uncounted.subtract_from(3, || turn("other")), 3);
        uncounted.forget(|| turn("i"));
        assert_eq!(uncounted.subtract_from(3, || turn("i")), 3);
    }

    #[test]
    fn the_attempt_under_way_counts() {
        let uncounted = UncountedAttempts::default();
        uncounted.note(turn("i"));
        uncounted.note(turn("i"));
        assert_eq!(uncounted.subtract_from(1, || turn("i")), 1);
        assert_eq!(uncounted.subtract_from(0, || turn("i")), 0);
    }

    #[test]
    fn only_so_many_are_remembered_and_the_oldest_go_first() {
        let uncounted = UncountedAttempts::default();
        for number in 0..=MAX_UNCOUNTED_ATTEMPTS {
            uncounted.note(turn(&number.to_string()));
        }
        assert_eq!(uncounted.subtract_from(5, || turn("0")), 5);
        assert_eq!(uncounted.subtract_from(5, || turn("1")), 4);
        assert_eq!(uncounted.uncounted().attempts.len(), MAX_UNCOUNTED_ATTEMPTS);
    }
}
