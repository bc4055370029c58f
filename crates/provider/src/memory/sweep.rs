//! Removing what has expired.

use std::time::Duration;

use everturn_core::kind_of;
use everturn_core::limits::{MAX_DEAD_LETTERS, MAX_DEAD_LETTERS_PER_SWEEP};

use super::tables::{Message, Moment, Stored, Tables};
use crate::store::{DeadLetter, Sweep, Swept};

impl Tables {
    /// Removes sessions whose lease has ended and that no queued activity belongs to, and dead-letters messages that have
    /// waited too long for a start. Sessions end with their leases here, however long they were idle.
    pub fn sweep(&mut self, now: Moment, sweep: &Sweep) -> Swept {
        let before = self.sessions.len();
        let queue = &self.worker_queue;
        self.sessions.retain(|session_id, session| {
            session.is_leased(now)
                || queue.values().any(|activity| activity.session_id.as_ref() == Some(session_id))
        });
        let swept = Swept::new(before - self.sessions.len());
        match sweep.dead_letter_after {
            Some(waited) => swept.with_dead_letters(self.dead_letter_unstarted(now, waited)),
            None => swept,
        }
    }

    /// Takes the messages out of the queue that have waited so long, and whose instance neither exists nor is about to
    /// start.
    fn dead_letter_unstarted(&mut self, now: Moment, waited: Duration) -> Vec<DeadLetter> {
        let waited_ms = u64::try_from(waited.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        let Some(since_ms) = now.wall_ms.checked_sub(waited_ms) else { return Vec::new() };
        let is_old = |message: &Message| message.is_visible(now) && message.arrived_at_ms <= since_ms;
        let rows = self.orchestrator_queue.iter();
        let rows = rows.filter(|(_, message)| is_old(message) && !self.is_taken(&message.instance));
        let row_ids: Vec<u64> = rows.map(|(row_id, _)| *row_id).take(MAX_DEAD_LETTERS_PER_SWEEP).collect();
        let removed: Vec<Message> =
            row_ids.iter().filter_map(|row_id| self.orchestrator_queue.remove(row_id)).collect();
        let told = removed.iter().map(|message| DeadLetter::new(&message.instance, message.kind())).collect();
        self.dead_letters.extend(removed.into_iter().map(|message| message.item));
        let surplus = self.dead_letters.len().saturating_sub(MAX_DEAD_LETTERS);
        self.dead_letters.drain(..surplus);
        told
    }
}

impl Message {
    fn kind(&self) -> &'static str {
        match &self.item {
            Stored::Good(item) => kind_of(item),
            Stored::Damaged(_) => "unknown",
        }
    }
}
