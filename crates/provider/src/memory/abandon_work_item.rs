//! Giving an activity back.

use std::time::Duration;

use super::store::{Moment, Store};
use crate::error::ProviderError;

impl Store {
    /// Clears the lock; the row comes again, now or later, with its tag and session.
    pub(super) fn abandon_work_item(
        &mut self,
        now: Moment,
        token: &str,
        delay: Option<Duration>,
        ignore_attempt: bool,
    ) -> Result<(), ProviderError> {
        let row_id = self.activity_locked_by("abandon_work_item", token, now)?;
        if let Some(activity) = self.worker_queue.get_mut(&row_id) {
            activity.lock = None;
            activity.visible_at_ms = now.visible_after(delay);
            if ignore_attempt {
                activity.attempt_count = activity.attempt_count.saturating_sub(1);
            }
        }
        self.changes.worker_queue = true;
        Ok(())
    }
}
