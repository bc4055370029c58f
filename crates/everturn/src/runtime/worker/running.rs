//! The activities that run in this process, so that a committed cancellation reaches them at once.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use everturn_core::limits::MAX_UNMET_WITHDRAWALS;
use everturn_provider::ScheduledActivityIdentifier;
use tokio_util::sync::CancellationToken;

type RunningActivityKey = (String, u64, u64);

/// The activities under way; cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct RunningActivities(Arc<Mutex<RunningTokens>>);

#[derive(Default)]
struct RunningTokens {
    /// One key can have several tokens: its instance was deleted and created again while the first activity still ran.
    tokens: HashMap<RunningActivityKey, Vec<(u64, CancellationToken)>>,
    next_id: u64,
    /// Cancelled activities that were not running here.
    unmet: HashSet<RunningActivityKey>,
    unmet_by_age: VecDeque<RunningActivityKey>,
}

/// A registered activity, unregistered when dropped.
pub(crate) struct RunningGuard {
    key: RunningActivityKey,
    id: u64,
    running: RunningActivities,
    /// Whether an activity with this key was cancelled before it was registered. It may have been that of a deleted
    /// instance with the same id, so only the store can tell.
    pub(crate) is_doubtful: bool,
}

impl RunningActivities {
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
        let is_doubtful = !running.unmet.is_empty() && running.unmet.contains(&key);
        drop(running);
        RunningGuard { key, id, running: self.clone(), is_doubtful }
    }

    /// Cancels these activities. Call it only after the commit that cancels them is durable.
    pub(crate) fn cancel(&self, activities: &[ScheduledActivityIdentifier]) {
        if activities.is_empty() {
            return;
        }
        let mut running = self.running();
        for activity in activities {
            let key = (activity.instance.clone(), activity.execution_id, activity.activity_id);
            if let Some(tokens) = running.tokens.get(&key) {
                for (_, token) in tokens {
                    token.cancel();
                }
            } else {
                running.remember_unmet(key);
            }
        }
    }

    fn running(&self) -> MutexGuard<'_, RunningTokens> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RunningTokens {
    fn remember_unmet(&mut self, key: RunningActivityKey) {
        if self.unmet.insert(key.clone()) {
            self.unmet_by_age.push_back(key);
        }
        if self.unmet_by_age.len() > MAX_UNMET_WITHDRAWALS
            && let Some(oldest) = self.unmet_by_age.pop_front()
        {
            self.unmet.remove(&oldest);
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
    fn an_activity_cancelled_before_it_was_registered_is_doubtful() {
        let running = RunningActivities::default();
        running.cancel(&[named(2)]);
        let token = CancellationToken::new();
        assert!(running.register("i", 1, 2, token.clone()).is_doubtful);
        assert!(!token.is_cancelled());
        assert!(!running.register("i", 1, 3, token).is_doubtful);
    }

    #[test]
    fn unmet_cancellations_are_bounded() {
        let running = RunningActivities::default();
        for id in 0..=MAX_UNMET_WITHDRAWALS as u64 {
            running.cancel(&[named(id)]);
        }
        assert!(!running.register("i", 1, 0, CancellationToken::new()).is_doubtful);
        assert!(running.register("i", 1, 1, CancellationToken::new()).is_doubtful);
    }

    #[test]
    fn an_activity_that_ended_is_unregistered() {
        let running = RunningActivities::default();
        drop(running.register("i", 1, 2, CancellationToken::new()));
        assert!(running.running().tokens.is_empty());
    }
}
