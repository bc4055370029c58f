//! Message queues of an instance: first in, first out, by name.
//!
//! The reads of a queue are ordered by their tokens, because tokens are bound in the order in which they were given out.
//! So a read is found among thousands without looking at each of them.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

/// Unread messages and the reads that have not returned.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    /// Queues with an unread message or a read that has not returned.
    by_name: BTreeMap<Arc<str>, Queue>,
    /// All unread messages in order of arrival: (queue, data).
    unread: BTreeMap<u64, (String, String)>,
    unread_bytes: usize,
    next_arrival: u64,
    /// The reads that have not returned, by token.
    reads: HashMap<u64, QueueRead>,
    /// The tokens of the reads that have not returned, by schedule event.
    tokens: HashMap<u64, u64>,
    /// Schedule events of the reads that returned a message.
    returned: BTreeSet<u64>,
}

#[derive(Debug, Default)]
struct Queue {
    /// Tokens of the reads that have not returned, ascending; each reserves one message.
    readers: VecDeque<u64>,
    /// Unread messages, oldest first.
    arrivals: VecDeque<u64>,
}

#[derive(Debug)]
struct QueueRead {
    queue: Arc<str>,
    event_id: u64,
}

impl Queue {
    /// How many reads are before this one.
    fn position(&self, token: u64) -> Option<usize> {
        self.readers.binary_search_by(|reader| count_step(reader.cmp(&token))).ok()
    }

    /// The read that has a message since one was added, or since an earlier read was removed.
    fn last_satisfied(&self) -> Option<u64> {
        self.readers.get(self.arrivals.len().checked_sub(1)?).copied()
    }
}

impl Queues {
    /// Adds a read; returns whether a message waits for it.
    pub(super) fn subscribe(&mut self, name: &str, event_id: u64, token: u64) -> bool {
        let name = self.shared_name(name);
        let queue = self.by_name.entry(Arc::clone(&name)).or_default();
        queue.readers.push_back(token);
        let satisfied = queue.readers.len() <= queue.arrivals.len();
        self.reads.insert(token, QueueRead { queue: name, event_id });
        self.tokens.insert(event_id, token);
        satisfied
    }

    /// Adds a message; returns the read that can take it.
    pub(crate) fn arrive(&mut self, name: &str, data: &str) -> Option<u64> {
        let arrival = self.next_arrival;
        self.next_arrival += 1;
        self.unread_bytes += name.len() + data.len();
        self.unread.insert(arrival, (name.to_owned(), data.to_owned()));
        let queue = self.by_name.entry(self.shared_name(name)).or_default();
        queue.arrivals.push_back(arrival);
        queue.last_satisfied()
    }

    /// Takes the message of a read. Earlier reads of the queue reserve the older messages.
    pub(super) fn read(&mut self, token: u64) -> Option<String> {
        let read = self.reads.get(&token)?;
        let queue = self.by_name.get_mut(&read.queue)?;
        let position = queue.position(token)?;
        let arrival = queue.arrivals.remove(position)?;
        queue.readers.remove(position);
        self.returned.insert(read.event_id);
        self.forget(token);
        let (name, data) = self.unread.remove(&arrival)?;
        self.unread_bytes -= name.len() + data.len();
        Some(data)
    }

    /// Removes a read. It consumes no message, and later reads move up: returns the read that so gets a message.
    pub(super) fn cancel(&mut self, token: u64) -> Option<u64> {
        let read = self.reads.get(&token)?;
        let queue = self.by_name.get_mut(&read.queue)?;
        let position = queue.position(token)?;
        queue.readers.remove(position);
        let moved_up = (position < queue.arrivals.len()).then(|| queue.last_satisfied()).flatten();
        self.forget(token);
        moved_up
    }

    /// The token of a read that has not returned.
    pub(super) fn token_of(&self, event_id: u64) -> Option<u64> {
        self.tokens.get(&event_id).copied()
    }

    /// Whether a read returned a message, or a message is reserved for it.
    pub(super) fn was_answered(&self, event_id: u64) -> bool {
        let is_reserved = || {
            let token = self.token_of(event_id)?;
            let queue = self.by_name.get(&self.reads.get(&token)?.queue)?;
            Some(queue.position(token)? < queue.arrivals.len())
        };
        self.returned.contains(&event_id) || is_reserved().unwrap_or(false)
    }

    /// Every message that no read returned, in order of arrival.
    pub(crate) fn unread(&self) -> impl Iterator<Item = &(String, String)> {
        self.unread.values()
    }

    /// Bytes of the messages that no read returned.
    pub(super) fn unread_bytes(&self) -> usize {
        self.unread_bytes
    }

    /// Removes what is known of a read that has left its queue, and the queue if nothing is left of it.
    fn forget(&mut self, token: u64) {
        let Some(QueueRead { queue, event_id }) = self.reads.remove(&token) else { return };
        self.tokens.remove(&event_id);
        if self.by_name.get(&queue).is_some_and(|queue| queue.readers.is_empty() && queue.arrivals.is_empty())
        {
            self.by_name.remove(&queue);
        }
    }

    /// The name of a queue, in memory once.
    fn shared_name(&self, name: &str) -> Arc<str> {
        self.by_name.get_key_value(name).map_or_else(|| Arc::from(name), |(name, _)| Arc::clone(name))
    }
}

/// Counts a comparison with a read, so that tests can see how much work a call does.
#[inline]
fn count_step(order: std::cmp::Ordering) -> std::cmp::Ordering {
    #[cfg(test)]
    tests::STEPS.with(|steps| steps.set(steps.get() + 1));
    order
}

#[cfg(test)]
mod tests;
