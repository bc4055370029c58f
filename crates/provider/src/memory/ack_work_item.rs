//! Ending an activity.

use everturn_core::{WorkItem, kind_of};

use super::store::{Moment, Store, VISIBLE};
use crate::error::ProviderError;

const OPERATION: &str = "ack_work_item";

impl Store {
    /// Removes the activity and enqueues its completion, or refuses and changes nothing.
    pub(super) fn ack_work_item(
        &mut self,
        now: Moment,
        token: &str,
        completion: Option<WorkItem>,
    ) -> Result<(), ProviderError> {
        let row_id = self.activity_locked_by(OPERATION, token, now)?;
        if let Some(item) = &completion
            && !matches!(item, WorkItem::ActivityCompleted { .. } | WorkItem::ActivityFailed { .. })
        {
            let message = format!("{} for {} does not complete an activity", kind_of(item), item.instance());
            return Err(ProviderError::permanent(OPERATION, message));
        }
        self.touch_session(row_id, now);
        self.worker_queue.remove(&row_id);
        if let Some(item) = completion {
            self.push_message(item, VISIBLE);
        }
        Ok(())
    }
}
