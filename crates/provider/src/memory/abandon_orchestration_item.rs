//! Giving an instance back without having changed it.

use std::time::Duration;

use super::store::{Moment, Store};
use crate::error::ProviderError;

impl Store {
    /// Releases the lock; exactly the rows that the fetch took come again, now or later.
    pub(super) fn abandon_orchestration_item(
        &mut self,
        now: Moment,
        lock_token: &str,
        delay: Option<Duration>,
        ignore_attempt: bool,
    ) -> Result<(), ProviderError> {
        let instance = self.instance_locked_by("abandon_orchestration_item", lock_token, now)?;
        self.let_instance_go(instance, lock_token, now.visible_after(delay), ignore_attempt);
        Ok(())
    }

    /// The same for whoever need not ask whether the lock lasts.
    pub(super) fn let_instance_go(
        &mut self,
        instance: String,
        lock_token: &str,
        visible_at_ms: u64,
        ignore_attempt: bool,
    ) {
        self.instance_locks.remove(&instance);
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
        self.changed_hands.instances.insert(instance);
        self.changes.orchestrator_queue = true;
    }
}
