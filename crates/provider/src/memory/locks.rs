//! Judging locks.

use super::tables::{Lock, Moment, Tables};
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
