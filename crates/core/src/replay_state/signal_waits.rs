//! Positional signals: the n-th wait on a name gets the n-th accepted signal.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Recorded waits: those without a signal by name, oldest first, and the ids of those that got one.
#[derive(Debug, Default)]
pub(super) struct SignalWaits {
    open: BTreeMap<String, VecDeque<SignalWait>>,
    answered: BTreeSet<u64>,
}

#[derive(Debug)]
struct SignalWait {
    event_id: u64,
    token: u64,
}

impl SignalWaits {
    pub(super) fn subscribe(&mut self, name: &str, event_id: u64, token: u64) {
        self.open.entry(name.to_owned()).or_default().push_back(SignalWait { event_id, token });
    }

    /// The token of the wait that takes the next signal of this name.
    pub(super) fn accept(&mut self, name: &str) -> Option<u64> {
        let open = self.open.get_mut(name)?;
        let wait = open.pop_front()?;
        if open.is_empty() {
            self.open.remove(name);
        }
        self.answered.insert(wait.event_id);
        Some(wait.token)
    }

    /// Whether a wait got its signal.
    pub(super) fn was_answered(&self, event_id: u64) -> bool {
        self.answered.contains(&event_id)
    }

    /// Removes a wait; later waits on the same name move up. A wait that got its signal is not in the list any more.
    pub(super) fn cancel(&mut self, event_id: u64) {
        self.open.retain(|_, open| {
            open.retain(|wait| wait.event_id != event_id);
            !open.is_empty()
        });
    }
}
