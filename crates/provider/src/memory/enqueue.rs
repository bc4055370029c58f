//! Putting messages into the two queues.

use std::time::Duration;

use everturn_core::WorkItem;

use super::ack_orchestration_item::{check_orchestrator_item, check_worker_item};
use super::store::{Store, after};
use crate::error::ProviderError;

impl Store {
    pub(super) fn enqueue_for_orchestrator(
        &mut self,
        now_ms: u64,
        item: WorkItem,
        delay: Option<Duration>,
    ) -> Result<(), ProviderError> {
        check_orchestrator_item("enqueue_for_orchestrator", &item)?;
        self.push_message(item, after(now_ms, delay.unwrap_or_default()));
        Ok(())
    }

    pub(super) fn enqueue_for_worker(&mut self, now_ms: u64, item: WorkItem) -> Result<(), ProviderError> {
        check_worker_item("enqueue_for_worker", &item)?;
        self.push_activity(item, now_ms);
        Ok(())
    }
}
