//! Positional signals: the n-th wait on a name gets the n-th accepted signal.

use std::collections::{BTreeMap, VecDeque};

/// Bound waits that have no signal yet, by name, oldest first.
#[derive(Debug, Default)]
pub(super) struct Waits {
    open: BTreeMap<String, VecDeque<Wait>>,
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
        Some(wait.token)
    }

    /// Gives up a wait; the ones behind it move up. One that has its signal already is not here any more.
    pub(super) fn cancel(&mut self, event_id: u64) {
        self.open.retain(|_, open| {
            open.retain(|wait| wait.event_id != event_id);
            !open.is_empty()
        });
    }
}
