//! Putting what clients send into the orchestrator queue.

use everturn_core::{INITIAL_EXECUTION_ID, WorkItem, kind_of};

use super::tables::{Moment, Tables};
use crate::error::ProviderError;
use crate::store::{NewMessage, Receipt, Submission};

impl Tables {
    /// Enqueues all messages, or none.
    pub fn submit(&mut self, now: Moment, submission: &Submission) -> Result<Vec<Receipt>, ProviderError> {
        for NewMessage { item, .. } in &submission.messages {
            check_orchestrator_item("submit", item)?;
        }
        let receipts = submission.messages.iter().map(|NewMessage { item, delay, notes }| {
            self.push_message(now, item.clone(), notes.clone(), now.visible_after(*delay))
        });
        Ok(receipts.collect())
    }

    /// What becomes of a message that is about to be enqueued.
    pub(super) fn receipt_of(&self, item: &WorkItem) -> Receipt {
        let is_cancel = matches!(item, WorkItem::CancelInstance { .. });
        if !item.is_start() && !is_cancel {
            return Receipt::Queued;
        }
        match (item.is_start(), self.is_taken(item.instance())) {
            (true, true) => Receipt::Existing,
            (true, false) => Receipt::Created,
            (false, true) => Receipt::Queued,
            (false, false) => Receipt::Dropped,
        }
    }

    /// Returns true if an instance has this id, or a start of it is queued.
    pub(super) fn is_taken(&self, instance: &str) -> bool {
        let first = self.execution(instance, INITIAL_EXECUTION_ID);
        self.instances.contains_key(instance)
            || first.is_some_and(|execution| execution.started_as().is_some())
            || self.orchestrator_queue.values().any(|row| row.is_start && row.instance == instance)
    }
}

/// Everything but activities belongs into the orchestrator queue.
pub(super) fn check_orchestrator_item(operation: &str, item: &WorkItem) -> Result<(), ProviderError> {
    if !matches!(item, WorkItem::ActivityExecute { .. }) {
        return Ok(());
    }
    let message =
        format!("{} for {} does not belong into the orchestrator queue", kind_of(item), item.instance());
    Err(ProviderError::permanent(operation, message))
}
