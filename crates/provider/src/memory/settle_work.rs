//! Ending the lock of an activity: with its completion, or by returning it to the queue.

use everturn_core::{WorkItem, kind_of};

use super::tables::{Delay, Moment, Tables};
use crate::error::ProviderError;
use crate::store::{NewMessage, Settlement, SettlementKind};

const OPERATION: &str = "settle_work";

impl Tables {
    /// Settles an activity, or refuses and changes nothing.
    pub fn settle_work(&mut self, now: Moment, settlement: &Settlement) -> Result<(), ProviderError> {
        let row_id = self.activity_locked_by(OPERATION, &settlement.lock_token, now)?;
        match &settlement.kind {
            SettlementKind::End { completion } => self.end_activity(now, row_id, completion.as_ref()),
            SettlementKind::Abandon { delay, ignore_attempt, missing_handler } => {
                let delay = now.delay(*delay, missing_handler.as_ref());
                self.release_activity(row_id, delay, *ignore_attempt);
                Ok(())
            }
        }
    }

    /// Removes the activity and enqueues its completion.
    fn end_activity(
        &mut self,
        now: Moment,
        row_id: u64,
        completion: Option<&NewMessage>,
    ) -> Result<(), ProviderError> {
        if let Some(NewMessage { item, .. }) = completion
            && !matches!(item, WorkItem::ActivityCompleted { .. } | WorkItem::ActivityFailed { .. })
        {
            let message = format!("{} for {} does not complete an activity", kind_of(item), item.instance());
            return Err(ProviderError::permanent(OPERATION, message));
        }
        self.touch_session(row_id, now);
        self.worker_queue.remove(&row_id);
        if let Some(NewMessage { item, delay, notes }) = completion {
            self.push_message(now, item.clone(), notes.clone(), now.visible_after(*delay));
        }
        Ok(())
    }

    /// Clears the lock, whether or not it has expired. The row keeps its tag and session.
    pub(crate) fn release_activity(&mut self, row_id: u64, delay: Option<Delay>, ignore_attempt: bool) {
        if let Some(activity) = self.worker_queue.get_mut(&row_id) {
            activity.lock = None;
            activity.delay = delay;
            if ignore_attempt {
                activity.attempt_count = activity.attempt_count.saturating_sub(1);
            }
        }
        self.changes.worker_queue = true;
    }
}
