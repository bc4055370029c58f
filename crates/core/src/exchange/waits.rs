//! Positional signals: the n-th wait on a name gets the n-th accepted signal.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Bound waits: those without a signal by name, oldest first, and those that were given one.
#[derive(Debug, Default)]
pub(super) struct Waits {
    open: BTreeMap<String, VecDeque<Wait>>,
    answered: BTreeSet<u64>,
}

#[derive(Debug)]
struct Wait {
    event_id: u64,
    token: u64,
}

impl Waits {
    pub(super) fn subscribe(&mut self, name: &str, event_id: u64, token: u64) {
        self.open.entry(name.to_owned()).or_default().push_back(Wait { event_id, token });
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

    /// Whether a wait was given its signal.
    pub(super) fn was_answered(&self, event_id: u64) -> bool {
        self.answered.contains(&event_id)
    }

    /// Gives up a wait; the ones behind it move up. One that has its signal already stands in nobody's way.
    pub(super) fn cancel(&mut self, event_id: u64) {
        self.open.retain(|_, open| {
            open.retain(|wait| wait.event_id != event_id);
            !open.is_empty()
        });
    }
}
