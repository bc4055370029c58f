//! Releasing the lock of an instance without a commit.

use super::tables::{Delay, Moment, Tables};
use crate::error::ProviderError;
use crate::store::TurnAbandon;

impl Tables {
    /// Releases the lock; the instance can be fetched again now, or after a delay with everything that came meanwhile.
    pub fn abandon_turn(&mut self, now: Moment, abandon: &TurnAbandon) -> Result<(), ProviderError> {
        let TurnAbandon { lock_token, delay, ignore_attempt, missing_handler } = abandon;
        let instance = self.instance_locked_by("abandon_turn", lock_token, now)?;
        let delay = now.delay(*delay, missing_handler.as_ref());
        self.release_instance(&instance, lock_token, delay, *ignore_attempt);
        Ok(())
    }

    /// Releases the lock of an instance, whether or not it has expired.
    pub(crate) fn release_instance(
        &mut self,
        instance: &str,
        lock_token: &str,
        delay: Option<Delay>,
        ignore_attempt: bool,
    ) {
        self.instance_locks.remove(instance);
        self.instance_delays.extend(delay.map(|delay| (instance.to_owned(), delay)));
        for message in self.orchestrator_queue.values_mut() {
            if message.tagged_by.as_deref() != Some(lock_token) {
                continue;
            }
            message.tagged_by = None;
            if ignore_attempt {
                message.attempt_count = message.attempt_count.saturating_sub(1);
            }
        }
        self.changes.orchestrator_queue = true;
    }
}
