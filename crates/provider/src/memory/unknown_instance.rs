//! What becomes of messages whose instance does not exist.
//!
//! A cancellation is dropped when it is sent. Queue messages without a queued start are orphans, and the next fetch deletes
//! them. Any other message waits for a start; a sweep dead-letters it after a time. What still reaches the runtime without
//! naming an orchestration is dropped there (`dispatcher/decision.rs`).

use std::time::Duration;

use everturn_core::limits::{MAX_DEAD_LETTERS, MAX_DEAD_LETTERS_PER_SWEEP};
use everturn_core::{INITIAL_EXECUTION_ID, WorkItem, kind_of};

use super::fetch_turns::Deliverability;
use super::tables::{Message, Moment, Stored, Tables};
use crate::store::{DeadLetter, Receipt};

impl Tables {
    /// What becomes of a message that is about to be enqueued.
    pub(super) fn receipt_of(&self, item: &WorkItem) -> Receipt {
        let is_cancel = matches!(item, WorkItem::CancelInstance { .. });
        if !item.is_start() && !is_cancel {
            return Receipt::Queued;
        }
        match (item.is_start(), self.is_taken(item.instance())) {
            (true, true) => Receipt::Existing,
            (true, false) => Receipt::Created,
            (false, true) => Receipt::Queued,
            (false, false) => Receipt::Dropped,
        }
    }

    /// Returns true if an instance has this id, or a start of it is queued.
    pub(super) fn is_taken(&self, instance: &str) -> bool {
        let first = self.execution(instance, INITIAL_EXECUTION_ID);
        self.instances.contains_key(instance)
            || first.is_some_and(|execution| execution.started_as().is_some())
            || self.orchestrator_queue.values().any(|row| row.is_start && row.instance == instance)
    }

    /// Deletes the messages of instances that have only queue messages and no queued start.
    pub(super) fn delete_orphans(&mut self, now: Moment) {
        for row_id in self.orphans(now) {
            self.orchestrator_queue.remove(&row_id);
        }
    }

    /// The rows of queue messages that no instance will ever take.
    fn orphans(&self, now: Moment) -> Vec<u64> {
        let rows = self.instances_with_messages(now).into_iter().map(|instance| {
            match self.deliverability(instance, now) {
                Deliverability::Orphans(row_ids) => row_ids,
                Deliverability::Deliverable(_) | Deliverability::TooEarly => Vec::new(),
            }
        });
        rows.flatten().collect()
    }

    /// Takes the messages out of the queue that have waited so long, and whose instance neither exists nor is about to
    /// start.
    pub(super) fn dead_letter_unstarted(&mut self, now: Moment, waited: Duration) -> Vec<DeadLetter> {
        let waited_ms = u64::try_from(waited.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        let Some(since_ms) = now.wall_ms.checked_sub(waited_ms) else { return Vec::new() };
        let is_old = |message: &Message| message.is_visible(now) && message.arrived_at_ms <= since_ms;
        let rows = self.orchestrator_queue.iter();
        let rows = rows.filter(|(_, message)| is_old(message) && !self.is_taken(&message.instance));
        let row_ids: Vec<u64> = rows.map(|(row_id, _)| *row_id).take(MAX_DEAD_LETTERS_PER_SWEEP).collect();
        let removed: Vec<Message> =
            row_ids.iter().filter_map(|row_id| self.orchestrator_queue.remove(row_id)).collect();
        let letters =
            removed.iter().map(|message| DeadLetter::new(&message.instance, message.kind())).collect();
        self.dead_letters.extend(removed.into_iter().map(|message| message.item));
        let surplus = self.dead_letters.len().saturating_sub(MAX_DEAD_LETTERS);
        self.dead_letters.drain(..surplus);
        letters
    }
}

/// The visible rows of an instance that does not exist, if all of them are queue messages and no start is queued.
pub(super) fn orphans_of(queued: &[(u64, &Message)], now: Moment) -> Option<Vec<u64>> {
    let visible = || queued.iter().filter(|(_, message)| message.is_visible(now));
    let has_start = queued.iter().any(|(_, message)| message.is_start);
    let is_orphaned = !has_start && visible().all(|(_, message)| message.is_queue_message);
    is_orphaned.then(|| visible().map(|(row_id, _)| *row_id).collect())
}

impl Message {
    fn kind(&self) -> &'static str {
        match &self.item {
            Stored::Good(item) => kind_of(item),
            Stored::Damaged(_) => "unknown",
        }
    }
}
