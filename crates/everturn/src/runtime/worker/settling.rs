//! Settling a fetched activity: its outcome is stored, or its lock is abandoned.

use std::time::Duration;

use everturn_core::WorkItem;
use everturn_provider::ProviderError;
use everturn_provider::store::{HandlerKey, Settlement};

use super::super::retrying::{retry_while_locked, retrying};
use super::super::uncounted_attempts::AttemptKey;
use super::WorkerSlot;
use super::activity::{ActivityItem, LockedWork};

/// Whether the attempt that a fetch counted still counts after the activity was abandoned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attempt {
    /// It counts: the activity, or what is registered for it, was the reason.
    Counts,
    /// It does not: the store or the runtime was the reason.
    TakenBack,
}

/// What log lines say of a fetched work item.
#[derive(Debug, Clone, Copy)]
pub(super) struct WorkLabel<'a> {
    pub(super) lock_token: &'a str,
    pub(super) instance_id: &'a str,
    /// Empty for an item that is not an activity.
    pub(super) activity_name: &'a str,
}

impl<'a> WorkLabel<'a> {
    pub(super) fn of(lock_token: &'a str, item: &'a WorkItem) -> Self {
        let activity_name = match item {
            WorkItem::ActivityExecute { name, .. } => name,
            _ => "",
        };
        Self { lock_token, instance_id: item.instance(), activity_name }
    }
}

impl WorkerSlot {
    /// Ends an activity. If the store fails, it is asked again for as long as the lock is held: the activity has run, and
    /// must not run again because of an outage. Returns the last error if the lock is lost, the store refuses, or it fails
    /// for this activity alone and too long.
    pub(super) async fn settle_while_locked(
        &self,
        settlement: &Settlement,
        work: &LockedWork,
    ) -> Result<(), ProviderError> {
        let mut is_first = true;
        let warn = |error: &ProviderError, _| {
            if std::mem::take(&mut is_first) {
                tracing::warn!(target: "everturn::runtime::worker", worker_id = %self.worker_id,
                    lock_token = %settlement.lock_token, instance_id = %work.item.instance,
                    activity_name = %work.item.name, %error,
                    "storing the outcome of an activity failed; retrying while its lock is held");
            }
        };
        // Damage may be repaired, and is no fault of the activity.
        let may_pass = |error: &ProviderError| error.is_retryable() || error.is_damaged();
        retry_while_locked(&work.lock, may_pass, warn, || self.node.store.settle_work(settlement)).await
    }

    /// Removes a work item from the queue without a completion. If that fails, the item returns when its lock expires.
    pub(super) async fn acknowledge(&self, label: WorkLabel<'_>) {
        let WorkLabel { lock_token, instance_id, activity_name } = label;
        if let Err(error) = self.node.store.settle_work(&Settlement::end(lock_token, None)).await {
            tracing::debug!(target: "everturn::runtime::worker", worker_id = %self.worker_id,
                %lock_token, %instance_id, %activity_name, %error,
                "acknowledging an activity failed; it returns when its lock expires");
        }
    }

    /// Abandons the lock of an activity, which returns to the queue. If that fails, the lock expires instead.
    pub(super) async fn abandon(
        &self,
        label: WorkLabel<'_>,
        delay: Option<Duration>,
        attempt: Attempt,
    ) -> Result<(), ProviderError> {
        let taken_back = attempt == Attempt::TakenBack;
        self.send_abandon(label, &Settlement::abandon(label.lock_token, delay, taken_back)).await
    }

    /// Abandons the lock of an activity that an outage kept from ending.
    pub(super) async fn abandon_after_outage(&self, item: &ActivityItem, delay: Duration) {
        self.abandon_uncounted(item.label(), Some(delay), item.attempt_key()).await;
    }

    /// Abandons the lock of an activity and takes its attempt back. If the store cannot, the runtime remembers that it does
    /// not count.
    pub(super) async fn abandon_uncounted(
        &self,
        label: WorkLabel<'_>,
        delay: Option<Duration>,
        key: AttemptKey,
    ) {
        if self.abandon(label, delay, Attempt::TakenBack).await.is_err() {
            self.node.uncounted.note(key);
        }
    }

    /// Abandons the lock because this runtime lacks the handler. Runtimes that lack it too are offered the activity again
    /// after `delay`, others at once if the store can tell them.
    pub(super) async fn leave_to_others(&self, item: &ActivityItem, delay: Duration) {
        let settlement = match &self.node.handlers {
            Some(_) => {
                Settlement::lacking_handler(&item.token, Some(delay), HandlerKey::activity(&item.name))
            }
            None => Settlement::abandon(&item.token, Some(delay), false),
        };
        // The failure is logged, and costs one attempt.
        self.send_abandon(item.label(), &settlement).await.ok();
    }

    async fn send_abandon(&self, label: WorkLabel<'_>, settlement: &Settlement) -> Result<(), ProviderError> {
        let WorkLabel { lock_token, instance_id, activity_name } = label;
        let abandoned =
            retrying(self.node.options.worker_lock_timeout, || self.node.store.settle_work(settlement));
        abandoned.await.inspect_err(|error| {
            tracing::warn!(target: "everturn::runtime::worker", worker_id = %self.worker_id,
                %lock_token, %instance_id, %activity_name, %error,
                "abandoning the lock of an activity failed; the activity waits until the lock expires");
        })
    }
}
