//! Extending locks and session leases.

use std::time::Duration;

use super::parked::LOOK_AT_LEAST_EVERY;
use super::tables::{Moment, Tables};
use crate::error::ProviderError;
use crate::store::{LockKind, LockRenewal, Renewal, Renewed, SessionRenewal};

const OPERATION: &str = "renew";

impl Tables {
    /// Extends each lock by itself: a lost lock does not keep the others from being extended.
    pub fn renew(&mut self, now: Moment, renewal: &Renewal) -> Renewed {
        let locks = renewal.locks.iter().map(|LockRenewal { kind, token, extend_for }| match kind {
            LockKind::Orchestration => self.renew_instance_lock(now, token, *extend_for),
            LockKind::WorkItem => self.renew_activity_lock(now, token, *extend_for),
        });
        let locks = locks.collect();
        let sessions = renewal.sessions.as_ref().map_or(0, |sessions| self.renew_sessions(now, sessions));
        self.note_short_ends(renewal);
        Renewed::new(locks, sessions)
    }

    /// Parked fetches do not know of a lock or lease that ends before they look again: a renewal may also shorten it.
    fn note_short_ends(&mut self, renewal: &Renewal) {
        for LockRenewal { kind, extend_for, .. } in &renewal.locks {
            let is_short = *extend_for < LOOK_AT_LEAST_EVERY;
            match kind {
                LockKind::Orchestration => self.changes.orchestrator_queue |= is_short,
                LockKind::WorkItem => self.changes.worker_queue |= is_short,
            }
        }
        let lease = renewal.sessions.as_ref().map(|sessions| sessions.extend_for);
        self.changes.worker_queue |= lease.is_some_and(|lease| lease < LOOK_AT_LEAST_EVERY);
    }

    fn renew_instance_lock(
        &mut self,
        now: Moment,
        token: &str,
        extend_for: Duration,
    ) -> Result<(), ProviderError> {
        let instance = self.instance_locked_by(OPERATION, token, now)?;
        if let Some(lock) = self.instance_locks.get_mut(&instance) {
            lock.held_until = now.monotonic.saturating_add(extend_for);
        }
        Ok(())
    }

    fn renew_activity_lock(
        &mut self,
        now: Moment,
        token: &str,
        extend_for: Duration,
    ) -> Result<(), ProviderError> {
        let row_id = self.activity_locked_by(OPERATION, token, now)?;
        if let Some(lock) = self.worker_queue.get_mut(&row_id).and_then(|activity| activity.lock.as_mut()) {
            lock.held_until = now.monotonic.saturating_add(extend_for);
        }
        self.touch_session(row_id, now);
        Ok(())
    }

    /// Extends the live leases of these owners that were active within the idle timeout; returns how many.
    fn renew_sessions(&mut self, now: Moment, renewal: &SessionRenewal) -> usize {
        let SessionRenewal { owner_ids, extend_for, idle_timeout } = renewal;
        let mut renewed = 0;
        for session in self.sessions.values_mut() {
            let is_active = now.monotonic < session.last_activity_at.saturating_add(*idle_timeout);
            if session.is_leased(now) && is_active && owner_ids.contains(&session.owner_id) {
                session.leased_until = now.monotonic.saturating_add(*extend_for);
                renewed += 1;
            }
        }
        renewed
    }

    /// Records activity of the session of this row, if its lease is live.
    pub(super) fn touch_session(&mut self, row_id: u64, now: Moment) {
        let session_id = self.worker_queue.get(&row_id).and_then(|activity| activity.session_id.as_ref());
        if let Some(session) = session_id.and_then(|session_id| self.sessions.get_mut(session_id))
            && session.is_leased(now)
        {
            session.last_activity_at = now.monotonic;
        }
    }
}
