//! Running one activity and storing its outcome.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;

use everturn_core::limits::payload_too_large;
use everturn_core::{ErrorDetails, WorkItem};
use everturn_provider::ProviderError;
use everturn_provider::store::{OrchestrationName, Settlement};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::super::activity_context::{ActivityContext, ActivityInvocation};
use super::super::activity_handler::ActivityHandler;
use super::super::lock_keeper::LockGuard;
use super::super::retrying::AFTER_LONG_FAILURE;
use super::super::steps::TakenWork;
use super::super::uncounted_attempts::AttemptKey;
use super::invocation::{InvocationEnd, InvocationLimits, invoke};
use super::settling::{Attempt, WorkLabel};
use super::stepping::StepEnd;
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
    /// What its attempts are counted under.
    pub(super) fn attempt_key(&self) -> AttemptKey {
        AttemptKey::Activity {
            instance: self.instance.clone(),
            execution_id: self.execution_id,
            activity_id: self.id,
        }
    }

    /// What log lines say of it.
    pub(super) fn label(&self) -> WorkLabel<'_> {
        WorkLabel { lock_token: &self.token, instance_id: &self.instance, activity_name: &self.name }
    }

    /// The message that brings the outcome to the orchestration.
    pub(super) fn completion(&self, result: Result<String, ErrorDetails>) -> WorkItem {
        let (instance, execution_id, id) = (self.instance.clone(), self.execution_id, self.id);
        match result {
            Ok(result) => WorkItem::ActivityCompleted { instance, execution_id, id, result },
            Err(details) => WorkItem::ActivityFailed { instance, execution_id, id, details },
        }
    }

    /// The work item that was fetched.
    pub(super) fn as_work_item(&self) -> WorkItem {
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

/// A fetched activity and its lock, which is renewed until this is dropped.
pub(super) struct LockedWork {
    pub(super) item: ActivityItem,
    pub(super) lock: LockGuard,
    /// Cancelled by a committed turn that no longer wants the activity, and by a lost lock.
    pub(super) cancelled: CancellationToken,
}

impl WorkerSlot {
    /// Runs an activity under its lock and stores its outcome. Returns the activity that the slot goes on with, if it was given
    /// one already.
    pub(super) async fn run_activity(
        &self,
        mut work: LockedWork,
        handler: Arc<dyn ActivityHandler>,
    ) -> Option<TakenWork> {
        let node = &self.node;
        let input = std::mem::take(&mut work.item.input);
        let LockedWork { item, lock, cancelled } = &work;
        let running = node.running.register(&item.instance, item.execution_id, item.id, cancelled.clone());
        if running.may_be_cancelled {
            lock.check_now();
        }
        let context = self.context_of(item, cancelled).await;
        report::started(self, item);
        let began = Instant::now();
        let grace = node.options.activity_cancellation_grace_period;
        let on_cancel = || report::grace_begins(self, item, grace);
        let limits =
            InvocationLimits { instance_id: &item.instance, cancelled, grace, on_cancel: &on_cancel };
        let invocation = async {
            if cancelled.is_cancelled() {
                return InvocationEnd::Cancelled;
            }
            invoke(&self.alive, handler, context, input, limits).await
        };
        let end = self.until_end_or_given_up(&work, invocation).await;
        drop(running);
        match end {
            InvocationEnd::Returned(result) => return self.store_outcome(&work, result, began).await,
            InvocationEnd::Cancelled if lock.is_given_up() => {
                report::cancelled(self, item, began.elapsed());
            }
            InvocationEnd::Cancelled => {
                // The item is deleted, or locked by another worker: the store is expected to answer with an error.
                self.acknowledge(item.label()).await;
                report::cancelled(self, item, began.elapsed());
            }
            InvocationEnd::Aborted => {}
        }
        None
    }

    /// Waits for the end of an invocation. If its lock cannot be renewed, the lock is abandoned at once, while the store
    /// still counts it as held: no turn cancelled the activity, so its item must stay, and its attempt does not count.
    async fn until_end_or_given_up(
        &self,
        work: &LockedWork,
        invocation: impl Future<Output = InvocationEnd>,
    ) -> InvocationEnd {
        let give_back = || self.abandon_after_outage(&work.item, SHORT_DELAY);
        let mut invocation = pin!(invocation);
        let end = tokio::select! {
            biased;
            () = work.lock.given_up() => return tokio::join!(invocation, give_back()).0,
            end = &mut invocation => end,
        };
        if end == InvocationEnd::Cancelled && work.lock.is_given_up() {
            give_back().await;
        }
        end
    }

    async fn context_of(&self, item: &ActivityItem, cancelled: &CancellationToken) -> ActivityContext {
        let OrchestrationName { name: orchestration_name, version: orchestration_version } =
            self.orchestration_of(item).await;
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
            // A child token: the activity must not be able to cancel the worker's own.
            cancellation: cancelled.child_token(),
            client: Client::of_store(Arc::clone(&self.node.store)),
        })
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

    /// Stores the outcome of an activity: in a fused step with the turn that it causes, or as a message to its instance.
    async fn store_outcome(
        &self,
        work: &LockedWork,
        result: Result<String, String>,
        began: Instant,
    ) -> Option<TakenWork> {
        let item = &work.item;
        let result = within_limit(&item.name, result, self.node.store.limits().payload_bytes_max);
        let reported = result.as_ref().map(String::len).map_err(String::clone);
        let completion = item.completion(result.map_err(ErrorDetails::activity_failed));
        let (stored, next, has_waited) = match self.end_in_step(work, completion).await {
            StepEnd::Committed(next) => (Ok(()), next.map(|next| *next), false),
            StepEnd::NotFused { completion, has_waited } => {
                let settlement = Settlement::end(&item.token, Some(completion.into()));
                (self.settle_while_locked(&settlement, work).await, None, has_waited)
            }
        };
        match stored {
            Ok(()) => {
                self.node.uncounted.forget(|| item.attempt_key());
                report::ended(
                    self,
                    item,
                    reported.as_ref().copied().map_err(String::as_str),
                    began.elapsed(),
                );
            }
            // The step that it waited for no longer wanted it.
            Err(error) if has_waited && error.is_lock_lost() && !work.lock.is_given_up() => {
                report::cancelled(self, item, began.elapsed());
            }
            Err(error) => {
                report::not_stored(self, item, &error, began.elapsed());
                self.abandon_unsettled(work, &error).await;
            }
        }
        next
    }

    /// Abandons the lock of an activity whose outcome was not stored, if the store may still count it as held.
    pub(super) async fn abandon_unsettled(&self, work: &LockedWork, error: &ProviderError) {
        if work.lock.is_given_up() {
            self.abandon_after_outage(&work.item, SHORT_DELAY).await;
        } else if error.is_lock_lost() || work.lock.is_lost() {
            // Another worker has it, or its item is gone.
        } else if error.is_retryable() || error.is_damaged() {
            self.abandon_after_outage(&work.item, AFTER_LONG_FAILURE).await;
        } else {
            // What the store refuses for good would run for ever if it did not count. A failure is logged.
            self.abandon(work.item.label(), Some(SHORT_DELAY), Attempt::Counts).await.ok();
        }
    }
}

/// Replaces a result or error above the limit by an error that says so.
fn within_limit(activity: &str, result: Result<String, String>, bytes_max: usize) -> Result<String, String> {
    let (part, bytes) = match &result {
        Ok(text) => ("result", text.len()),
        Err(text) => ("error", text.len()),
    };
    if bytes <= bytes_max {
        return result;
    }
    Err(payload_too_large(format_args!("{part} of activity {activity}"), bytes, bytes_max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_of_exactly_the_limit_passes() {
        assert_eq!(within_limit("Pack", Ok("12345678".into()), 8), Ok("12345678".into()));
        assert_eq!(within_limit("Pack", Err("12345678".into()), 8), Err("12345678".into()));
    }

    #[test]
    fn a_larger_result_or_error_becomes_a_failure_that_says_so() {
        let refused = |part| Err(payload_too_large(format!("{part} of activity Pack"), 9, 8));
        assert_eq!(within_limit("Pack", Ok("123456789".into()), 8), refused("result"));
        assert_eq!(within_limit("Pack", Err("123456789".into()), 8), refused("error"));
    }
}
