//! Removing what has expired.

use super::tables::{Moment, Tables};
use crate::store::Swept;

impl Tables {
    /// Removes sessions whose lease has ended and that no queued activity belongs to.
    pub fn sweep(&mut self, now: Moment) -> Swept {
        let before = self.sessions.len();
        let queue = &self.worker_queue;
        self.sessions.retain(|session_id, session| {
            session.is_leased(now)
                || queue.values().any(|activity| activity.session_id.as_ref() == Some(session_id))
        });
        Swept::new(before - self.sessions.len())
    }
}
