//! Telling the store what became of a fetched activity.

use std::time::Duration;

use everturn_provider::ProviderError;
use everturn_provider::store::{HandlerKey, Settlement};

use super::super::lock_keeper::LockGuard;
use super::super::retrying::{retry_while_locked, retrying};
use super::super::uncounted_attempts::AttemptKey;
use super::WorkerSlot;
use super::activity::ActivityItem;

/// Whether the attempt that a fetch counted still counts after the activity was abandoned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attempt {
    /// It counts: the activity, or what is registered for it, was the reason.
    Counts,
    /// It does not: the store or the runtime was the reason.
    TakenBack,
}

impl WorkerSlot {
    /// Ends an activity. If the store fails, it is asked again for as long as the lock is held: the activity has run, and
    /// must not run again because of an outage. Returns the last error if the lock is lost, the store refuses, or it fails
    /// for this activity alone and too long.
    pub(super) async fn settle_while_locked(
        &self,
        settlement: &Settlement,
        lock: &LockGuard,
    ) -> Result<(), ProviderError> {
        let mut is_first = true;
        let warn = |error: &ProviderError, _| {
            if std::mem::take(&mut is_first) {
                tracing::warn!(target: "everturn::runtime::worker", worker_id = %self.worker_id,
                    lock_token = %settlement.lock_token, %error,
                    "storing the outcome of an activity failed; retrying while its lock is held");
            }
        };
        // Damage may be repaired, and is no fault of the activity.
        let may_pass = |error: &ProviderError| error.is_retryable() || error.is_damaged();
        retry_while_locked(lock, may_pass, warn, || self.node.store.settle_work(settlement)).await
    }

    /// Removes a work item from the queue without a completion. If that fails, the item returns when its lock expires.
    pub(super) async fn acknowledge(&self, token: &str) {
        if let Err(error) = self.node.store.settle_work(&Settlement::end(token, None)).await {
            tracing::debug!(target: "everturn::runtime::worker", worker_id = %self.worker_id,
                lock_token = %token, %error, "acknowledging an activity failed; it returns when its lock expires");
        }
    }

    /// Abandons the lock of an activity, which returns to the queue. If that fails, the lock expires instead.
    pub(super) async fn abandon(
        &self,
        token: &str,
        delay: Option<Duration>,
        attempt: Attempt,
    ) -> Result<(), ProviderError> {
        self.send_abandon(&Settlement::abandon(token, delay, attempt == Attempt::TakenBack)).await
    }

    /// Abandons the lock of an activity that an outage kept from ending.
    pub(super) async fn abandon_after_outage(&self, item: &ActivityItem, delay: Duration) {
        self.abandon_uncounted(&item.token, Some(delay), item.attempt_key()).await;
    }

    /// Abandons the lock of an activity and takes its attempt back. If the store cannot, the runtime remembers that it does
    /// not count.
    pub(super) async fn abandon_uncounted(&self, token: &str, delay: Option<Duration>, key: AttemptKey) {
        if self.abandon(token, delay, Attempt::TakenBack).await.is_err() {
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
        self.send_abandon(&settlement).await.ok();
    }

    async fn send_abandon(&self, settlement: &Settlement) -> Result<(), ProviderError> {
        let abandoned =
            retrying(self.node.options.worker_lock_timeout, || self.node.store.settle_work(settlement));
        abandoned.await.inspect_err(|error| {
            tracing::warn!(target: "everturn::runtime::worker", worker_id = %self.worker_id,
                lock_token = %settlement.lock_token, %error,
                "abandoning the lock of an activity failed; the activity waits until the lock expires");
        })
    }
}
