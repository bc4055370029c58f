//! Putting messages into the two queues.

use std::time::Duration;

use everturn_core::WorkItem;

use super::ack_orchestration_item::{check_orchestrator_item, check_worker_item};
use super::store::{Moment, Store};
use crate::error::ProviderError;

impl Store {
    pub(super) fn enqueue_for_orchestrator(
        &mut self,
        now: Moment,
        item: WorkItem,
        delay: Option<Duration>,
    ) -> Result<(), ProviderError> {
        check_orchestrator_item("enqueue_for_orchestrator", &item)?;
        self.push_message(item, now.visible_after(delay));
        Ok(())
    }

    pub(super) fn enqueue_for_worker(&mut self, item: WorkItem) -> Result<(), ProviderError> {
        check_worker_item("enqueue_for_worker", &item)?;
        self.push_activity(item);
        Ok(())
    }
}
