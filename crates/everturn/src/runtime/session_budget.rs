//! The limit on sessions that this runtime serves at the same time.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use everturn_provider::store::{SessionPlace, SessionPlaces, SessionRoom};
use tokio::sync::Notify;

/// Counts the distinct sessions in flight; cheap to clone.
#[derive(Clone)]
pub(crate) struct SessionBudget(Arc<SessionBudgetInner>);

struct SessionBudgetInner {
    sessions_max: usize,
    sessions: Mutex<SessionsInFlight>,
    /// Wakes the slots in the order in which they began to wait: tokio's `watch` would choose an order by chance.
    changed: Notify,
}

struct SessionsInFlight {
    /// Activities in flight by session, in an order that is the same in every run: stores ask in this order.
    activities: BTreeMap<String, usize>,
    fullness: Fullness,
}

/// Whether the budget is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fullness {
    pub(crate) is_full: bool,
    /// How often that has changed.
    changes: u64,
}

/// One activity in flight, which ends when this is dropped.
struct SessionInFlight {
    session: String,
    budget: SessionBudget,
}

impl SessionBudget {
    pub(crate) fn new(sessions_max: usize) -> Self {
        let sessions = SessionsInFlight {
            activities: BTreeMap::new(),
            fullness: Fullness { is_full: sessions_max == 0, changes: 0 },
        };
        Self(Arc::new(SessionBudgetInner {
            sessions_max,
            sessions: Mutex::new(sessions),
            changed: Notify::new(),
        }))
    }

    /// Whether the budget is full now.
    pub(crate) fn fullness(&self) -> Fullness {
        self.sessions().fullness
    }

    /// Waits until the budget has become full, or has room again, since `seen`.
    pub(crate) async fn changed_since(&self, seen: Fullness) -> Fullness {
        loop {
            let mut changed = pin!(self.0.changed.notified());
            // From here on no change is missed.
            changed.as_mut().enable();
            let now = self.fullness();
            if now != seen {
                return now;
            }
            changed.await;
        }
    }

    fn enter(&self, session: &str) -> Option<SessionInFlight> {
        let mut sessions = self.sessions();
        if let Some(activities) = sessions.activities.get_mut(session) {
            *activities += 1;
        } else if sessions.activities.len() >= self.0.sessions_max {
            return None;
        } else {
            sessions.activities.insert(session.to_owned(), 1);
        }
        self.note_fullness(sessions);
        Some(SessionInFlight { session: session.to_owned(), budget: self.clone() })
    }

    fn note_fullness(&self, mut sessions: MutexGuard<'_, SessionsInFlight>) {
        let is_full = sessions.activities.len() >= self.0.sessions_max;
        let Fullness { is_full: was_full, changes } = sessions.fullness;
        if is_full != was_full {
            sessions.fullness = Fullness { is_full, changes: changes + 1 };
            drop(sessions);
            self.0.changed.notify_waiters();
        }
    }

    fn sessions(&self) -> MutexGuard<'_, SessionsInFlight> {
        self.0.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SessionPlaces for SessionBudget {
    fn room(&self) -> SessionRoom {
        let sessions = self.sessions();
        if sessions.fullness.is_full {
            SessionRoom::Only(sessions.activities.keys().cloned().collect())
        } else {
            SessionRoom::Any
        }
    }

    /// Takes a place for an activity of this session; `None` if that would exceed the limit.
    fn reserve(&self, session_id: &str) -> Option<SessionPlace> {
        self.enter(session_id).map(SessionPlace::new)
    }
}

impl Drop for SessionInFlight {
    fn drop(&mut self) {
        let mut sessions = self.budget.sessions();
        if let Some(activities) = sessions.activities.get_mut(&self.session) {
            *activities -= 1;
            if *activities == 0 {
                sessions.activities.remove(&self.session);
            }
        }
        self.budget.note_fullness(sessions);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_session_counts_once_however_many_activities_it_has() {
        let budget = SessionBudget::new(1);
        assert!(!budget.fullness().is_full);
        let first = budget.enter("a").unwrap();
        let second = budget.enter("a").unwrap();
        assert!(budget.fullness().is_full);
        assert!(budget.enter("b").is_none());
        drop(first);
        assert!(budget.enter("b").is_none());
        drop(second);
        assert!(!budget.fullness().is_full);
        assert!(budget.enter("b").is_some());
    }

    #[test]
    fn a_full_budget_has_room_for_the_sessions_in_flight_only() {
        let budget = SessionBudget::new(2);
        let first = budget.reserve("a");
        assert_eq!(budget.room(), SessionRoom::Any);
        let second = budget.reserve("b");
        let room = budget.room();
        assert!(room.admits("a") && room.admits("b") && !room.admits("c"), "{room:?}");
        assert!(budget.reserve("c").is_none());
        drop((first, second));
        assert_eq!(budget.room(), SessionRoom::Any);
    }

    #[test]
    fn a_budget_of_zero_is_always_full() {
        let budget = SessionBudget::new(0);
        assert!(budget.fullness().is_full);
        assert!(budget.enter("a").is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn slots_are_woken_in_the_order_in_which_they_began_to_wait() {
        let budget = SessionBudget::new(1);
        let place = budget.enter("a");
        let full = budget.fullness();
        let woken = Arc::new(Mutex::new(Vec::new()));
        let mut slots = tokio::task::JoinSet::new();
        for slot in 0..50 {
            let (budget, woken) = (budget.clone(), Arc::clone(&woken));
            slots.spawn(async move {
                assert!(!budget.changed_since(full).await.is_full);
                woken.lock().unwrap().push(slot);
            });
        }
        tokio::task::yield_now().await;
        drop(place);
        slots.join_all().await;
        assert_eq!(*woken.lock().unwrap(), Vec::from_iter(0..50), "slots in order of their waits");
    }

    #[tokio::test(start_paused = true)]
    async fn a_slot_is_woken_by_room_that_was_there_for_a_moment() {
        let budget = SessionBudget::new(1);
        let seen = budget.fullness();
        drop(budget.enter("a"));
        assert!(!budget.changed_since(seen).await.is_full, "the budget was full and has room again");
    }
}
