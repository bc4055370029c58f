//! Removing what has expired.

use super::tables::{Moment, Tables};
use crate::store::{Sweep, Swept};

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
}
