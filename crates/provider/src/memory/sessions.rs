//! Leases of sessions.

use std::time::Duration;

use super::store::{Held, Moment, Store};

impl Store {
    /// Extends the living leases of these owners that were active within the idle timeout; returns how many.
    pub(super) fn renew_session_lock(
        &mut self,
        now: Moment,
        owner_ids: &[&str],
        extend_for: Duration,
        idle_timeout: Duration,
    ) -> usize {
        let mut renewed = 0;
        for (session_id, session) in &mut self.sessions {
            let is_active = now.monotonic < session.last_activity_at.saturating_add(idle_timeout);
            if session.is_leased(now) && is_active && owner_ids.contains(&session.owner_id.as_str()) {
                session.leased_until = now.monotonic.saturating_add(extend_for);
                self.changes.held.push(Held::Lease {
                    session_id: session_id.clone(),
                    owner_id: session.owner_id.clone(),
                    lasts: extend_for,
                });
                renewed += 1;
            }
        }
        renewed
    }

    /// Removes sessions whose lease is over and that no queued activity belongs to; returns how many.
    pub(super) fn cleanup_orphaned_sessions(&mut self, now: Moment) -> usize {
        let before = self.sessions.len();
        let queue = &self.worker_queue;
        self.sessions.retain(|session_id, session| {
            session.is_leased(now)
                || queue.values().any(|activity| activity.session_id.as_ref() == Some(session_id))
        });
        before - self.sessions.len()
    }

    /// Notes that the session of this activity is in use, if its lease is alive.
    pub(super) fn touch_session(&mut self, row_id: u64, now: Moment) {
        let session_id = self.worker_queue.get(&row_id).and_then(|activity| activity.session_id.as_ref());
        if let Some(session) = session_id.and_then(|session_id| self.sessions.get_mut(session_id))
            && session.is_leased(now)
        {
            session.last_activity_at = now.monotonic;
        }
    }
}
