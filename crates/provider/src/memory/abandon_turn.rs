//! Releasing the lock of an instance without a commit.

use super::tables::{Moment, Tables};
use crate::error::ProviderError;
use crate::store::TurnAbandon;

impl Tables {
    /// Releases the lock; exactly the rows that the fetch took become visible again, now or later.
    pub fn abandon_turn(&mut self, now: Moment, abandon: &TurnAbandon) -> Result<(), ProviderError> {
        let TurnAbandon { lock_token, delay, ignore_attempt } = abandon;
        let instance = self.instance_locked_by("abandon_turn", lock_token, now)?;
        self.release_instance(&instance, lock_token, now.visible_after(*delay), *ignore_attempt);
        Ok(())
    }

    /// Releases the lock of an instance, whether or not it has expired.
    pub(crate) fn release_instance(
        &mut self,
        instance: &str,
        lock_token: &str,
        visible_at_ms: u64,
        ignore_attempt: bool,
    ) {
        self.instance_locks.remove(instance);
        for message in self.orchestrator_queue.values_mut() {
            if message.tagged_by.as_deref() != Some(lock_token) {
                continue;
            }
            message.tagged_by = None;
            message.visible_at_ms = visible_at_ms;
            if ignore_attempt {
                message.attempt_count = message.attempt_count.saturating_sub(1);
            }
        }
        self.changes.orchestrator_queue = true;
    }
}
