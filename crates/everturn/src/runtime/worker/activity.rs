//! One fetched activity, from its lock to its outcome.

use std::sync::Arc;

use everturn_core::limits::payload_too_large;
use everturn_core::{Bug, ErrorDetails, PoisonMessageType, WorkItem, planted};
use everturn_provider::LockKind;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::super::activity_context::{ActivityContext, ActivityInvocation};
use super::super::activity_handler::ActivityHandler;
use super::super::lock_keeper::LockTerms;
use super::invocation::{Ended, Withdrawal, invoke};
use super::{SHORT_DELAY, Slot, report};
use crate::client::Client;

/// What an activity's orchestration is called when nobody knows.
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
}

impl ActivityItem {
    /// The message that answers the orchestration.
    fn completion(&self, result: Result<String, ErrorDetails>) -> WorkItem {
        let (instance, execution_id, id) = (self.instance.clone(), self.execution_id, self.id);
        match result {
            Ok(result) => WorkItem::ActivityCompleted { instance, execution_id, id, result },
            Err(details) => WorkItem::ActivityFailed { instance, execution_id, id, details },
        }
    }

    /// The work item this was.
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

impl Slot {
    /// Runs an activity and stores its outcome.
    pub(super) async fn process_activity(&self, item: ActivityItem) {
        let options = &self.node.options;
        if item.attempt_count > options.max_attempts {
            return self.poison(item).await;
        }
        let Some((_, handler)) = self.node.activities.resolve_handler(&item.name) else {
            let backoff = options.unregistered_backoff.delay(item.attempt_count);
            report::unregistered(self, &item, backoff);
            return self.abandon(&item.token, Some(backoff), false).await;
        };
        self.run(item, handler).await;
    }

    async fn run(&self, mut item: ActivityItem, handler: Arc<dyn ActivityHandler>) {
        let node = &self.node;
        let terms = LockTerms {
            kind: LockKind::WorkItem,
            timeout: node.options.worker_lock_timeout,
            buffer: node.options.worker_lock_renewal_buffer,
        };
        // Signalled by the turn that no longer wants the activity, and by a lock that is lost.
        let withdrawn = CancellationToken::new();
        let lock = node.locks.keep(item.token.clone(), terms, withdrawn.clone());
        let running = node.running.register(&item.instance, item.execution_id, item.id, withdrawn.clone());
        if running.is_doubtful {
            lock.check_now();
        }
        let context = self.context(&item, &withdrawn).await;
        report::started(self, &item);
        let began = Instant::now();
        let input = std::mem::take(&mut item.input);
        let grace = node.options.activity_cancellation_grace_period;
        let tell = || report::grace_begins(self, &item, grace);
        let withdrawal = Withdrawal { signal: &withdrawn, grace, tell: &tell };
        let ended = if withdrawn.is_cancelled() {
            Ended::Withdrawn
        } else {
            invoke(&self.alive, handler, context, input, withdrawal).await
        };
        drop(running);
        match ended {
            Ended::With(result) => self.store_outcome(&item, result, began).await,
            Ended::Withdrawn if lock.is_given_up() && !planted(Bug::RunOutAcked) => {
                // Nobody said that the activity is unwanted. If the lock holds after all, its row must not go.
                report::cancelled(self, &item, began.elapsed());
                self.abandon(&item.token, Some(SHORT_DELAY), false).await;
            }
            Ended::Withdrawn => {
                // Its row is gone, or another worker's by now: a refusal here is what is to be expected.
                self.acknowledge(&item.token, None).await;
                report::cancelled(self, &item, began.elapsed());
            }
            Ended::Dropped => {}
        }
        drop(lock);
    }

    /// What the activity may know. Its token hangs on `withdrawn` but cannot signal it.
    async fn context(&self, item: &ActivityItem, withdrawn: &CancellationToken) -> ActivityContext {
        let (orchestration_name, orchestration_version) = self.orchestration_of(item).await;
        ActivityContext::new(ActivityInvocation {
            instance: item.instance.clone(),
            execution_id: item.execution_id,
            orchestration_name,
            orchestration_version,
            activity_name: item.name.clone(),
            activity_id: item.id,
            worker_id: self.worker_id.clone(),
            session_id: item.session_id.clone(),
            tag: item.tag.clone(),
            cancellation: withdrawn.child_token(),
            client: Client::new(Arc::clone(&self.node.store)),
        })
    }

    /// Name and version of the instance's orchestration: from memory if it is warm, else from the store.
    async fn orchestration_of(&self, item: &ActivityItem) -> (String, String) {
        if let Some(facts) = self.node.warm.facts_of(&item.instance, item.execution_id, item.id) {
            return (facts.name.clone(), facts.version.clone());
        }
        match self.node.store.read_orchestration_name(&item.instance).await {
            Ok(Some(found)) => found,
            Ok(None) => (UNKNOWN.to_owned(), UNKNOWN.to_owned()),
            Err(error) => {
                tracing::debug!(target: "everturn::runtime::worker", instance_id = %item.instance, %error,
                    "the orchestration of an activity could not be read");
                (UNKNOWN.to_owned(), UNKNOWN.to_owned())
            }
        }
    }

    async fn store_outcome(&self, item: &ActivityItem, result: Result<String, String>, began: Instant) {
        let result = within_limit(result, self.node.store.payload_bytes_max());
        let told = result.as_ref().map(String::len).map_err(String::clone);
        let completion = item.completion(result.map_err(ErrorDetails::activity_failed));
        match self.node.store.ack_work_item(&item.token, Some(completion)).await {
            Ok(()) => {
                report::ended(self, item, told.as_ref().copied().map_err(String::as_str), began.elapsed());
            }
            Err(error) => {
                report::not_stored(self, item, &error, began.elapsed());
                self.abandon(&item.token, Some(SHORT_DELAY), false).await;
            }
        }
    }

    /// Answers an activity that was tried too often with its failure.
    async fn poison(&self, item: ActivityItem) {
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
        .cut_to(self.node.store.payload_bytes_max());
        let completion = item.completion(Err(details.clone()));
        match self.node.store.ack_work_item(&item.token, Some(completion)).await {
            Ok(()) => report::poisoned(self, &item, &details),
            Err(error) => {
                tracing::warn!(target: "everturn::runtime::worker", worker_id = %self.worker_id,
                    lock_token = %item.token, %error, "the failure of an activity could not be stored");
                self.abandon(&item.token, Some(SHORT_DELAY), false).await;
            }
        }
    }
}

/// A result or error text above the limit is recorded as a failure that says so.
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
