//! Judging locks.

use super::tables::{Held, Lock, Moment, Tables};
use crate::error::ProviderError;

impl Tables {
    /// The instance that this token holds.
    pub(super) fn instance_locked_by(
        &self,
        operation: &str,
        token: &str,
        now: Moment,
    ) -> Result<String, ProviderError> {
        let held = self.instance_locks.iter().find(|(_, lock)| lock.token == token);
        let (instance, lock) = held.ok_or_else(|| unknown_token(operation))?;
        check_held(operation, instance, lock, now)?;
        Ok(instance.clone())
    }

    /// The row of the worker queue that this token holds.
    pub(super) fn activity_locked_by(
        &self,
        operation: &str,
        token: &str,
        now: Moment,
    ) -> Result<u64, ProviderError> {
        for (row_id, activity) in &self.worker_queue {
            if let Some(lock) = activity.lock.as_ref().filter(|lock| lock.token == token) {
                let what = activity.identity.as_ref().map_or_else(String::new, |identity| {
                    format!("activity {} of {}", identity.activity_id, identity.instance)
                });
                check_held(operation, &what, lock, now)?;
                return Ok(*row_id);
            }
        }
        Err(unknown_token(operation))
    }
}

impl Tables {
    /// Has these locks and leases count from now on: their holders are told only now that they have them.
    pub(super) fn count_from(&mut self, now: Moment, held: &[Held]) {
        for held in held {
            match held {
                Held::Lock { token, lasts } => {
                    let of_activities = self.worker_queue.values_mut().filter_map(|row| row.lock.as_mut());
                    let mut locks = self.instance_locks.values_mut().chain(of_activities);
                    if let Some(lock) = locks.find(|lock| lock.token == *token) {
                        lock.held_until = now.monotonic.saturating_add(*lasts);
                    }
                }
                Held::Lease { session_id, owner_id, lasts } => {
                    let session = self.sessions.get_mut(session_id);
                    if let Some(session) = session.filter(|session| session.owner_id == *owner_id) {
                        session.leased_until = now.monotonic.saturating_add(*lasts);
                    }
                }
            }
        }
    }

    /// The lock with this token, if it still stands in a row.
    pub(super) fn lock(&self, token: &str) -> Option<&Lock> {
        let of_activities = self.worker_queue.values().filter_map(|row| row.lock.as_ref());
        self.instance_locks.values().chain(of_activities).find(|lock| lock.token == token)
    }
}

fn unknown_token(operation: &str) -> ProviderError {
    ProviderError::lock_lost(operation, "Invalid lock token")
}

fn check_held(operation: &str, what: &str, lock: &Lock, now: Moment) -> Result<(), ProviderError> {
    if lock.is_held(now) {
        return Ok(());
    }
    let late_ms = now.monotonic.saturating_sub(lock.held_until).as_millis();
    Err(ProviderError::lock_lost(operation, format!("{what}: lock expired {late_ms} ms ago")))
}
