//! The activities that run in this process, so that a committed cancellation reaches them at once, whichever runtime
//! commits it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use everturn_core::limits::MAX_EARLY_CANCELLATIONS;
use everturn_provider::ScheduledActivityIdentifier;
use everturn_provider::store::StoreIdentity;
use tokio_util::sync::CancellationToken;

use super::super::shared_by_store::SharedByStore;

type RunningActivityKey = (String, u64, u64);

/// The activities under way on one store; cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct RunningActivities(Arc<Mutex<RunningTokens>>);

/// The activities under way in this process, by their store.
static BY_STORE: SharedByStore<Mutex<RunningTokens>> = SharedByStore::new();

#[derive(Default)]
struct RunningTokens {
    /// One key can have several tokens: its instance was deleted and created again while the first activity still ran.
    tokens: HashMap<RunningActivityKey, Vec<(u64, CancellationToken)>>,
    next_id: u64,
    /// Activities that were cancelled before they were registered here.
    early: HashSet<RunningActivityKey>,
    early_by_age: VecDeque<RunningActivityKey>,
}

/// A registered activity, unregistered when dropped.
pub(crate) struct RunningGuard {
    key: RunningActivityKey,
    id: u64,
    running: RunningActivities,
    /// Whether an activity with this key was cancelled before it was registered. It may have been that of a deleted
    /// instance with the same id, so only the store can tell.
    pub(crate) may_be_cancelled: bool,
}

impl RunningActivities {
    /// The activities of all runtimes of this process on that store. A store without identity shares them with no other.
    pub(crate) fn on(store: Option<StoreIdentity>) -> Self {
        Self(BY_STORE.of(store))
    }

    /// Registers an activity. `cancelled` is cancelled when a committed turn no longer wants the activity.
    pub(crate) fn register(
        &self,
        instance: &str,
        execution_id: u64,
        activity_id: u64,
        cancelled: CancellationToken,
    ) -> RunningGuard {
        let key = (instance.to_owned(), execution_id, activity_id);
        let mut running = self.running();
        let id = running.next_id;
        running.next_id += 1;
        running.tokens.entry(key.clone()).or_default().push((id, cancelled));
        let may_be_cancelled = !running.early.is_empty() && running.early.contains(&key);
        drop(running);
        RunningGuard { key, id, running: self.clone(), may_be_cancelled }
    }

    /// Cancels these activities. Call it only after the commit that cancels them is durable.
    pub(crate) fn cancel(&self, activities: &[ScheduledActivityIdentifier]) {
        if activities.is_empty() {
            return;
        }
        let mut running = self.running();
        let mut cancelled = Vec::new();
        for activity in activities {
            let key = (activity.instance.clone(), activity.execution_id, activity.activity_id);
            if let Some(tokens) = running.tokens.get(&key) {
                cancelled.extend(tokens.iter().map(|(_, token)| token.clone()));
            } else {
                running.remember_early(key);
            }
        }
        drop(running);
        // Outside the lock, because this runs wakers of the user's code.
        for token in cancelled {
            token.cancel();
        }
    }

    fn running(&self) -> MutexGuard<'_, RunningTokens> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RunningTokens {
    fn remember_early(&mut self, key: RunningActivityKey) {
        if self.early.insert(key.clone()) {
            self.early_by_age.push_back(key);
        }
        if self.early_by_age.len() > MAX_EARLY_CANCELLATIONS
            && let Some(oldest) = self.early_by_age.pop_front()
        {
            self.early.remove(&oldest);
        }
    }
}

impl Drop for RunningGuard {
    fn drop(&mut self) {
        let mut running = self.running.running();
        if let Some(tokens) = running.tokens.get_mut(&self.key) {
            tokens.retain(|(id, _)| *id != self.id);
            if tokens.is_empty() {
                running.tokens.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(activity_id: u64) -> ScheduledActivityIdentifier {
        ScheduledActivityIdentifier { instance: "i".into(), execution_id: 1, activity_id }
    }

    #[test]
    fn cancellation_reaches_the_activity_it_names_and_no_other() {
        let running = RunningActivities::default();
        let (two, three) = (CancellationToken::new(), CancellationToken::new());
        let _two = running.register("i", 1, 2, two.clone());
        let _three = running.register("i", 1, 3, three.clone());
        running.cancel(&[named(2)]);
        assert!(two.is_cancelled());
        assert!(!three.is_cancelled());
    }

    #[test]
    fn an_activity_cancelled_before_it_was_registered_may_be_cancelled() {
        let running = RunningActivities::default();
        running.cancel(&[named(2)]);
        let token = CancellationToken::new();
        assert!(running.register("i", 1, 2, token.clone()).may_be_cancelled);
        assert!(!token.is_cancelled());
        assert!(!running.register("i", 1, 3, token).may_be_cancelled);
    }

    #[test]
    fn early_cancellations_are_bounded() {
        let running = RunningActivities::default();
        for id in 0..=MAX_EARLY_CANCELLATIONS as u64 {
            running.cancel(&[named(id)]);
        }
        assert!(!running.register("i", 1, 0, CancellationToken::new()).may_be_cancelled);
        assert!(running.register("i", 1, 1, CancellationToken::new()).may_be_cancelled);
    }

    #[test]
    fn the_end_of_one_activity_leaves_another_with_the_same_identity_registered() {
        let running = RunningActivities::default();
        let (first, second) = (CancellationToken::new(), CancellationToken::new());
        let ends = running.register("i", 1, 2, first.clone());
        let _runs = running.register("i", 1, 2, second.clone());
        drop(ends);
        running.cancel(&[named(2)]);
        assert!(second.is_cancelled(), "the second activity still runs and is told");
        assert!(!first.is_cancelled(), "the first has ended");
        assert!(!running.register("i", 1, 3, CancellationToken::new()).may_be_cancelled);
    }

    #[test]
    fn runtimes_share_the_activities_of_one_store_and_of_no_other() {
        let (one, other) = (StoreIdentity::unique(), StoreIdentity::unique());
        let token = CancellationToken::new();
        let first = RunningActivities::on(Some(one.clone()));
        let _runs = first.register("i", 1, 2, token.clone());
        RunningActivities::on(Some(other)).cancel(&[named(2)]);
        RunningActivities::on(None).cancel(&[named(2)]);
        assert!(!token.is_cancelled(), "another store's activity has the same name");
        RunningActivities::on(Some(one.clone())).cancel(&[named(2)]);
        assert!(token.is_cancelled());
    }

    #[test]
    fn an_activity_that_ended_is_unregistered() {
        let running = RunningActivities::default();
        drop(running.register("i", 1, 2, CancellationToken::new()));
        assert!(running.running().tokens.is_empty());
    }
}
