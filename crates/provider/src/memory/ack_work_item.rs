//! Ending an activity.

use everturn_core::{WorkItem, kind_of};

use super::store::Store;
use crate::error::ProviderError;

const OPERATION: &str = "ack_work_item";

impl Store {
    /// Removes the activity and enqueues its completion, or refuses and changes nothing.
    pub(super) fn ack_work_item(
        &mut self,
        now_ms: u64,
        token: &str,
        completion: Option<WorkItem>,
    ) -> Result<(), ProviderError> {
        let row_id = self.activity_locked_by(OPERATION, token, now_ms)?;
        if let Some(item) = &completion
            && !matches!(item, WorkItem::ActivityCompleted { .. } | WorkItem::ActivityFailed { .. })
        {
            let message = format!("{} for {} does not complete an activity", kind_of(item), item.instance());
            return Err(ProviderError::permanent(OPERATION, message));
        }
        self.touch_session(row_id, now_ms);
        self.worker_queue.remove(&row_id);
        if let Some(item) = completion {
            self.push_message(item, now_ms);
        }
        Ok(())
    }
}
