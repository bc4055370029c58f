//! Message queues of an instance: first in, first out, by name.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// Unread messages and the reads that have not returned.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    by_name: BTreeMap<String, Queue>,
    /// All unread messages in order of arrival: (queue, data).
    unread: BTreeMap<u64, (String, String)>,
    next_arrival: u64,
    /// The queue of each read that has not returned, by token.
    queue_of: HashMap<u64, String>,
    /// Schedule events of the reads that returned a message.
    returned: BTreeSet<u64>,
}

#[derive(Debug, Default)]
struct Queue {
    /// Reads that have not returned, in the order they were bound; each reserves one message.
    readers: Vec<QueueReader>,
    /// Unread messages, oldest first.
    arrivals: VecDeque<u64>,
}

#[derive(Debug)]
struct QueueReader {
    event_id: u64,
    token: u64,
}

impl Queues {
    pub(super) fn subscribe(&mut self, name: &str, event_id: u64, token: u64) {
        self.by_name.entry(name.to_owned()).or_default().readers.push(QueueReader { event_id, token });
        self.queue_of.insert(token, name.to_owned());
    }

    pub(crate) fn arrive(&mut self, name: &str, data: &str) {
        let arrival = self.next_arrival;
        self.next_arrival += 1;
        self.unread.insert(arrival, (name.to_owned(), data.to_owned()));
        self.by_name.entry(name.to_owned()).or_default().arrivals.push_back(arrival);
    }

    /// Takes the message of a read. Earlier reads of the queue reserve the older messages.
    pub(super) fn read(&mut self, token: u64) -> Option<String> {
        let queue = self.by_name.get_mut(self.queue_of.get(&token)?)?;
        let position = queue.readers.iter().position(|reader| reader.token == token)?;
        let arrival = queue.arrivals.remove(position)?;
        self.returned.insert(queue.readers.remove(position).event_id);
        self.queue_of.remove(&token);
        self.unread.remove(&arrival).map(|(_, data)| data)
    }

    /// Removes a read. It consumes no message, and later reads move up.
    pub(super) fn cancel(&mut self, event_id: u64) {
        let queue_of = &mut self.queue_of;
        for queue in self.by_name.values_mut() {
            queue.readers.retain(|reader| {
                let keep = reader.event_id != event_id;
                if !keep {
                    queue_of.remove(&reader.token);
                }
                keep
            });
        }
    }

    /// Whether a read returned a message, or a message is reserved for it.
    pub(super) fn was_answered(&self, event_id: u64) -> bool {
        let mut reserved =
            self.by_name.values().flat_map(|queue| queue.readers.iter().take(queue.arrivals.len()));
        self.returned.contains(&event_id) || reserved.any(|reader| reader.event_id == event_id)
    }

    /// Whether a read has no message to return.
    pub(super) fn has_unsatisfied_reader(&self) -> bool {
        self.by_name.values().any(|queue| queue.readers.len() > queue.arrivals.len())
    }

    /// Every message that no read returned, in order of arrival.
    pub(crate) fn unread(&self) -> impl Iterator<Item = &(String, String)> {
        self.unread.values()
    }
}
