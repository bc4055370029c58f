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
        self.let_activity_go(row_id, now.visible_after(delay), ignore_attempt);
        Ok(())
    }

    /// The same for whoever need not ask whether the lock lasts.
    pub(super) fn let_activity_go(&mut self, row_id: u64, visible_at_ms: u64, ignore_attempt: bool) {
        if let Some(activity) = self.worker_queue.get_mut(&row_id) {
            activity.lock = None;
            activity.visible_at_ms = visible_at_ms;
            if ignore_attempt {
                activity.attempt_count = activity.attempt_count.saturating_sub(1);
            }
        }
        self.changed_hands.activities.insert(row_id);
        self.changes.worker_queue = true;
    }
}
