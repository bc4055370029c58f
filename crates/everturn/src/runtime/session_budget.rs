//! The limit on sessions that this runtime serves at the same time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// Counts the distinct sessions in flight; cheap to clone.
#[derive(Clone)]
pub(crate) struct SessionBudget(Arc<SessionBudgetInner>);

struct SessionBudgetInner {
    sessions_max: usize,
    /// Activities in flight by session.
    in_flight: Mutex<HashMap<String, usize>>,
    full: watch::Sender<bool>,
}

/// A place in the budget, released when dropped.
pub(crate) struct SessionPlace {
    session: String,
    budget: SessionBudget,
}

impl SessionBudget {
    pub(crate) fn new(sessions_max: usize) -> Self {
        let (full, _) = watch::channel(sessions_max == 0);
        Self(Arc::new(SessionBudgetInner { sessions_max, in_flight: Mutex::default(), full }))
    }

    /// Whether the budget is full, and every change of that. A fetch that waits must be repeated after a change.
    pub(crate) fn watch_full(&self) -> watch::Receiver<bool> {
        self.0.full.subscribe()
    }

    /// Takes a place for an activity of this session; `None` if that would exceed the limit.
    pub(crate) fn enter(&self, session: &str) -> Option<SessionPlace> {
        let mut in_flight = self.in_flight();
        if let Some(activities) = in_flight.get_mut(session) {
            *activities += 1;
        } else if in_flight.len() >= self.0.sessions_max {
            return None;
        } else {
            in_flight.insert(session.to_owned(), 1);
        }
        self.set_full(in_flight.len());
        Some(SessionPlace { session: session.to_owned(), budget: self.clone() })
    }

    fn set_full(&self, sessions: usize) {
        let now_full = sessions >= self.0.sessions_max;
        self.0.full.send_if_modified(|full| std::mem::replace(full, now_full) != now_full);
    }

    fn in_flight(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.0.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SessionPlace {
    fn drop(&mut self) {
        let mut in_flight = self.budget.in_flight();
        if let Some(activities) = in_flight.get_mut(&self.session) {
            *activities -= 1;
            if *activities == 0 {
                in_flight.remove(&self.session);
            }
        }
        self.budget.set_full(in_flight.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_session_counts_once_however_many_activities_it_has() {
        let budget = SessionBudget::new(1);
        let full = budget.watch_full();
        assert!(!*full.borrow());
        let first = budget.enter("a").unwrap();
        let second = budget.enter("a").unwrap();
        assert!(*full.borrow());
        assert!(budget.enter("b").is_none());
        drop(first);
        assert!(budget.enter("b").is_none());
        drop(second);
        assert!(!*full.borrow());
        assert!(budget.enter("b").is_some());
    }

    #[test]
    fn a_budget_of_zero_is_always_full() {
        let budget = SessionBudget::new(0);
        assert!(*budget.watch_full().borrow());
        assert!(budget.enter("a").is_none());
    }
}
