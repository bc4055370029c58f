//! Subscriptions of an execution, counted from its history alone.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

/// Subscriptions to named signals or to named queues that were not cancelled.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    by_name: BTreeMap<Arc<str>, NamedSubscriptions>,
    name_of: HashMap<u64, Arc<str>>,
    /// Bytes of the names.
    name_bytes: usize,
}

#[derive(Debug, Default)]
struct NamedSubscriptions {
    /// Their schedule events, oldest first.
    ids: VecDeque<u64>,
    /// How many signals or messages arrived for them; the oldest subscriptions take them.
    delivered: usize,
}

impl Subscriptions {
    pub(super) fn subscribe(&mut self, name: &str, id: u64) {
        let (name, named) = self.named(name);
        named.ids.push_back(id);
        self.name_of.insert(id, name);
    }

    /// The subscriptions to a name, and the name as it is shared by them.
    fn named(&mut self, name: &str) -> (Arc<str>, &mut NamedSubscriptions) {
        let shared = match self.by_name.get_key_value(name) {
            Some((shared, _)) => Arc::clone(shared),
            None => {
                self.name_bytes += name.len();
                Arc::from(name)
            }
        };
        let named = self.by_name.entry(Arc::clone(&shared)).or_default();
        (shared, named)
    }

    /// Bytes of the names, each of which is in memory once.
    pub(super) fn name_bytes(&self) -> usize {
        self.name_bytes
    }

    /// Counts a signal. It is lost if no wait is open.
    pub(super) fn signal_arrived(&mut self, name: &str) {
        if let Some(waits) = self.by_name.get_mut(name) {
            waits.delivered = (waits.delivered + 1).min(waits.ids.len());
        }
    }

    /// Counts a queue message. It stays until a read takes it.
    pub(super) fn message_arrived(&mut self, name: &str) {
        self.named(name).1.delivered += 1;
    }

    /// Removes a wait, and with it the signal that it got.
    pub(super) fn cancel_wait(&mut self, id: u64) {
        if let Some((position, waits)) = self.remove(id)
            && position < waits.delivered
        {
            waits.delivered -= 1;
        }
    }

    /// Removes a queue read. It consumed no message: the next read takes the message.
    pub(super) fn cancel_read(&mut self, id: u64) {
        self.remove(id);
    }

    fn remove(&mut self, id: u64) -> Option<(usize, &mut NamedSubscriptions)> {
        let named = self.by_name.get_mut(&self.name_of.remove(&id)?)?;
        // Ids ascend, unless the history is damaged.
        let found = named.ids.binary_search(&id).ok();
        let position = found.or_else(|| named.ids.iter().position(|other| *other == id))?;
        named.ids.remove(position);
        Some((position, named))
    }

    /// Subscriptions that were not cancelled, with or without what they wait for.
    pub(super) fn uncancelled(&self) -> impl Iterator<Item = u64> {
        self.by_name.values().flat_map(|named| &named.ids).copied()
    }

    /// Subscriptions without what they wait for, as far as counting tells.
    ///
    /// Counting cannot tell which wait took a signal if the code dropped another wait in the same turn: only the code
    /// knows when it dropped it.
    pub(super) fn open(&self) -> impl Iterator<Item = u64> {
        self.by_name.values().flat_map(|named| named.ids.iter().skip(named.delivered)).copied()
    }
}
