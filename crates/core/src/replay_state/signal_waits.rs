//! Positional signals: the n-th wait on a name gets the n-th accepted signal.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

/// Recorded waits: those without a signal by name, oldest first, and the ids of those that got one.
#[derive(Debug, Default)]
pub(super) struct SignalWaits {
    open: BTreeMap<Arc<str>, VecDeque<SignalWait>>,
    /// The name and the token of each open wait, by its schedule event.
    by_event: HashMap<u64, (Arc<str>, u64)>,
    answered: BTreeSet<u64>,
}

#[derive(Debug)]
struct SignalWait {
    event_id: u64,
    /// Ascending among the waits on a name, because tokens are bound in the order in which they were given out.
    token: u64,
}

impl SignalWaits {
    pub(super) fn subscribe(&mut self, name: &str, event_id: u64, token: u64) {
        let shared =
            self.open.get_key_value(name).map_or_else(|| Arc::from(name), |(name, _)| Arc::clone(name));
        self.open.entry(Arc::clone(&shared)).or_default().push_back(SignalWait { event_id, token });
        self.by_event.insert(event_id, (shared, token));
    }

    /// The token of the wait that takes the next signal of this name.
    pub(super) fn accept(&mut self, name: &str) -> Option<u64> {
        let open = self.open.get_mut(name)?;
        let wait = open.pop_front()?;
        if open.is_empty() {
            self.open.remove(name);
        }
        self.by_event.remove(&wait.event_id);
        self.answered.insert(wait.event_id);
        Some(wait.token)
    }

    /// Whether a wait got its signal.
    pub(super) fn was_answered(&self, event_id: u64) -> bool {
        self.answered.contains(&event_id)
    }

    /// Removes a wait; later waits on the same name move up. A wait that got its signal is not in the list any more.
    pub(super) fn cancel(&mut self, event_id: u64) {
        let Some((name, token)) = self.by_event.remove(&event_id) else { return };
        let Some(open) = self.open.get_mut(&name) else { return };
        if let Ok(position) = open.binary_search_by_key(&token, |wait| wait.token) {
            open.remove(position);
        }
        if open.is_empty() {
            self.open.remove(&name);
        }
    }
}
