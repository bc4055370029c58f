//! Running one activity and storing its outcome.

use std::sync::Arc;

use everturn_core::limits::payload_too_large;
use everturn_core::{ErrorDetails, PoisonMessageType, WorkItem};
use everturn_provider::store::{LockKind, OrchestrationName, Settlement};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::super::activity_context::{ActivityContext, ActivityInvocation};
use super::super::activity_handler::ActivityHandler;
use super::super::lock_keeper::LockTerms;
use super::invocation::{InvocationEnd, InvocationLimits, invoke};
use super::{SHORT_DELAY, WorkerSlot, report};
use crate::client::Client;

/// Name and version of an orchestration that is not known.
const UNKNOWN: &str = "unknown";

/// A fetched activity.
pub(crate) struct ActivityItem {
    pub(crate) instance: String,
    pub(crate) execution_id: u64,
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) input: String,
    pub(crate) session_id: Option<String>,
    pub(crate) tag: Option<String>,
    pub(crate) token: String,
    pub(crate) attempt_count: u32,
    /// The orchestration that scheduled it, if the store sent it along.
    pub(crate) orchestration: Option<OrchestrationName>,
}

impl ActivityItem {
    /// The message that brings the outcome to the orchestration.
    fn completion(&self, result: Result<String, ErrorDetails>) -> WorkItem {
        let (instance, execution_id, id) = (self.instance.clone(), self.execution_id, self.id);
        match result {
            Ok(result) => WorkItem::ActivityCompleted { instance, execution_id, id, result },
            Err(details) => WorkItem::ActivityFailed { instance, execution_id, id, details },
        }
    }

    /// The work item that was fetched.
    fn as_work_item(&self) -> WorkItem {
        WorkItem::ActivityExecute {
            instance: self.instance.clone(),
            execution_id: self.execution_id,
            id: self.id,
            name: self.name.clone(),
            input: self.input.clone(),
            session_id: self.session_id.clone(),
            tag: self.tag.clone(),
        }
    }
}

impl WorkerSlot {
    /// Runs an activity under its lock and stores its outcome.
    pub(super) async fn run_activity(&self, mut item: ActivityItem, handler: Arc<dyn ActivityHandler>) {
        let node = &self.node;
        let terms = LockTerms {
            kind: LockKind::WorkItem,
            timeout: node.options.worker_lock_timeout,
            buffer: node.options.worker_lock_renewal_buffer,
        };
        // Cancelled by a committed turn that no longer wants the activity, and by a lost lock.
        let cancelled = CancellationToken::new();
        let lock = node.locks.keep(item.token.clone(), terms, cancelled.clone());
        let running = node.running.register(&item.instance, item.execution_id, item.id, cancelled.clone());
        if running.is_doubtful {
            lock.check_now();
        }
        let OrchestrationName { name: orchestration_name, version: orchestration_version } =
            self.orchestration_of(&item).await;
        let context = ActivityContext::new(ActivityInvocation {
            instance: item.instance.clone(),
            execution_id: item.execution_id,
            orchestration_name,
            orchestration_version,
            activity_name: item.name.clone(),
            activity_id: item.id,
            worker_id: self.worker_id.clone(),
            session_id: item.session_id.clone(),
            tag: item.tag.clone(),
            // A child token: the activity must not be able to cancel the worker's own.
            cancellation: cancelled.child_token(),
            client: Client::of_store(Arc::clone(&node.store)),
        });
        report::started(self, &item);
        let began = Instant::now();
        let input = std::mem::take(&mut item.input);
        let grace = node.options.activity_cancellation_grace_period;
        let on_cancel = || report::grace_begins(self, &item, grace);
        let limits = InvocationLimits { cancelled: &cancelled, grace, on_cancel: &on_cancel };
        let end = if cancelled.is_cancelled() {
            InvocationEnd::Cancelled
        } else {
            invoke(&self.alive, handler, context, input, limits).await
        };
        drop(running);
        match end {
            InvocationEnd::Returned(result) => self.store_outcome(&item, result, began).await,
            InvocationEnd::Cancelled if lock.is_given_up() => {
                // No turn cancelled the activity. If the store still counts the lock as held, the item must stay.
                report::cancelled(self, &item, began.elapsed());
                self.abandon(&item.token, Some(SHORT_DELAY), false).await;
            }
            InvocationEnd::Cancelled => {
                // The item is deleted, or locked by another worker: the store is expected to answer with an error.
                self.acknowledge(&item.token).await;
                report::cancelled(self, &item, began.elapsed());
            }
            InvocationEnd::Aborted => {}
        }
        drop(lock);
    }

    /// The orchestration that scheduled the activity: as fetched, from memory if it is warm, else from the store.
    async fn orchestration_of(&self, item: &ActivityItem) -> OrchestrationName {
        if let Some(orchestration) = &item.orchestration {
            return orchestration.clone();
        }
        if let Some(start) = self.node.warm.start_of(&item.instance, item.execution_id, item.id) {
            return OrchestrationName { name: start.name.clone(), version: start.version_text().to_owned() };
        }
        let read = self.node.store.read_orchestration_name(&item.instance).await;
        let found = read.unwrap_or_else(|error| {
            tracing::debug!(target: "everturn::runtime::worker", instance_id = %item.instance, %error,
                "reading the orchestration of an activity failed; the activity sees it as unknown");
            None
        });
        found.unwrap_or_else(|| OrchestrationName { name: UNKNOWN.to_owned(), version: UNKNOWN.to_owned() })
    }

    async fn store_outcome(&self, item: &ActivityItem, result: Result<String, String>, began: Instant) {
        let result = within_limit(result, self.node.store.limits().payload_bytes_max);
        let reported = result.as_ref().map(String::len).map_err(String::clone);
        let completion = item.completion(result.map_err(ErrorDetails::activity_failed));
        let settlement = Settlement::end(&item.token, Some(completion.into()));
        match self.node.store.settle_work(&settlement).await {
            Ok(()) => {
                report::ended(
                    self,
                    item,
                    reported.as_ref().copied().map_err(String::as_str),
                    began.elapsed(),
                );
            }
            Err(error) => {
                report::not_stored(self, item, &error, began.elapsed());
                self.abandon(&item.token, Some(SHORT_DELAY), false).await;
            }
        }
    }

    /// Stores the failure of an activity that was tried too often.
    pub(super) async fn fail_poisoned(&self, item: ActivityItem) {
        let details = ErrorDetails::Poison {
            attempt_count: item.attempt_count,
            max_attempts: self.node.options.max_attempts,
            message_type: PoisonMessageType::Activity {
                instance: item.instance.clone(),
                execution_id: item.execution_id,
                activity_name: item.name.clone(),
                activity_id: item.id,
            },
            // Work items always have a JSON form; an empty text would only make the record poorer.
            message: serde_json::to_string(&item.as_work_item()).unwrap_or_default(),
        }
        .cut_to(self.node.store.limits().payload_bytes_max);
        let completion = item.completion(Err(details.clone()));
        let settlement = Settlement::end(&item.token, Some(completion.into()));
        match self.node.store.settle_work(&settlement).await {
            Ok(()) => report::poisoned(self, &item, &details),
            Err(error) => {
                tracing::warn!(target: "everturn::runtime::worker", worker_id = %self.worker_id,
                    lock_token = %item.token, %error, "storing the failure of an activity failed; abandoning its lock");
                self.abandon(&item.token, Some(SHORT_DELAY), false).await;
            }
        }
    }
}

/// Replaces a result or error above the limit by an error that says so.
fn within_limit(result: Result<String, String>, bytes_max: usize) -> Result<String, String> {
    let bytes = match &result {
        Ok(text) | Err(text) => text.len(),
    };
    if bytes > bytes_max { Err(payload_too_large(bytes, bytes_max)) } else { result }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_of_exactly_the_limit_passes() {
        assert_eq!(within_limit(Ok("12345678".into()), 8), Ok("12345678".into()));
        assert_eq!(within_limit(Err("12345678".into()), 8), Err("12345678".into()));
    }

    #[test]
    fn a_larger_result_or_error_becomes_a_failure_that_says_so() {
        let refused = Err("Payload size (9 bytes) exceeds limit (8 bytes)".to_owned());
        assert_eq!(within_limit(Ok("123456789".into()), 8), refused);
        assert_eq!(within_limit(Err("123456789".into()), 8), refused);
    }
}
