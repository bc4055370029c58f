//! Putting what clients send into the orchestrator queue.

use everturn_core::{WorkItem, kind_of};

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
