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
        self.instance_locks.remove(&instance);
        for message in self.orchestrator_queue.values_mut() {
            if message.tagged_by.as_deref() != Some(lock_token) {
                continue;
            }
            message.tagged_by = None;
            message.visible_at_ms = now.visible_after(delay);
            if ignore_attempt {
                message.attempt_count = message.attempt_count.saturating_sub(1);
            }
        }
        self.changes.orchestrator_queue = true;
        Ok(())
    }
}
