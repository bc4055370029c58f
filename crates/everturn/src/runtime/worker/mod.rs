//! Worker slots: fetch an activity, run it, store its outcome, repeat.

mod activity;
mod invocation;
mod report;
pub(crate) mod running;

use std::sync::Arc;
use std::time::Duration;

use everturn_core::{WorkItem, kind_of};
use everturn_provider::store::{FetchedWork, Settlement, WorkFetch};
use everturn_provider::{ProviderError, SessionFetchConfig};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::node::Node;
use super::pacing::FetchPace;
use super::retrying::retrying;
use super::shutdown::SlotAlive;
use activity::ActivityItem;

/// Delay before an activity is offered again whose session exceeds the limit, or whose outcome could not be stored.
const SHORT_DELAY: Duration = Duration::from_millis(100);

/// One worker slot.
pub(crate) struct WorkerSlot {
    pub(crate) node: Arc<Node>,
    pub(crate) worker_id: String,
    /// What activities are spawned with.
    pub(crate) alive: SlotAlive,
    /// Asks for activities of sessions, too.
    fetch: WorkFetch,
    /// Asks for activities without a session only, while the session budget is full.
    fetch_without_sessions: WorkFetch,
}

/// Runs one slot until `stop` is cancelled. An activity under way is finished first.
pub(crate) async fn run_slot(node: Arc<Node>, index: usize, alive: SlotAlive, stop: CancellationToken) {
    let session = SessionFetchConfig {
        owner_id: node.session_owner(index),
        lock_timeout: node.options.session_lock_timeout,
    };
    let options = &node.options;
    let fetch_without_sessions =
        WorkFetch::new(options.worker_lock_timeout, options.dispatcher_long_poll_timeout)
            .with_tags(options.worker_tag_filter.clone());
    let fetch = fetch_without_sessions.clone().with_session(Some(session));
    let slot = WorkerSlot { worker_id: node.worker_id(index), alive, fetch, fetch_without_sessions, node };
    let mut budget_full = slot.node.sessions.watch_full();
    let mut pace = FetchPace::new(slot.node.options.dispatcher_min_poll_interval);
    while !stop.is_cancelled() {
        let fetched_at = Instant::now();
        let fetched = tokio::select! {
            biased;
            fetched = slot.fetch_work(&mut budget_full) => fetched,
            () = stop.cancelled() => return,
        };
        match fetched {
            Some(Ok(work)) if work.is_empty() => pace.found_nothing(fetched_at, &stop).await,
            Some(Ok(work)) if stop.is_cancelled() => {
                for work in work {
                    // Nothing of it has run, so the attempt does not count.
                    slot.abandon(&work.lock_token, None, true).await;
                }
            }
            Some(Ok(work)) => {
                pace.found();
                for work in work {
                    slot.process_work(work).await;
                }
            }
            Some(Err(error)) => {
                tracing::warn!(target: "everturn::runtime::worker", worker_id = %slot.worker_id, %error,
                    "fetching an activity failed; trying again after a pause");
                pace.failed(&error, &stop).await;
            }
            None => {}
        }
    }
}

impl WorkerSlot {
    /// Waits for an activity. Returns `None` if the session budget changed meanwhile: a fetch that waits uses the budget
    /// from when it began, so it must be repeated.
    async fn fetch_work(
        &self,
        budget_full: &mut watch::Receiver<bool>,
    ) -> Option<Result<Vec<FetchedWork>, ProviderError>> {
        let full = *budget_full.borrow_and_update();
        let fetch = if full { &self.fetch_without_sessions } else { &self.fetch };
        tokio::select! {
            biased;
            fetched = self.node.store.fetch_work(fetch) => Some(fetched),
            // The budget outlives the slot, so its sender is never gone.
            Ok(_) = budget_full.wait_for(|now_full| *now_full != full) => None,
        }
    }

    /// Decides what to do with a fetched activity, and carries that out.
    async fn process_work(&self, work: FetchedWork) {
        let FetchedWork { item, lock_token: token, attempt_count, orchestration, .. } = work;
        let WorkItem::ActivityExecute { instance, execution_id, id, name, input, session_id, tag } = item
        else {
            tracing::error!(target: "everturn::runtime::worker", worker_id = %self.worker_id,
                kind = kind_of(&item), "the worker queue held an item that is not an activity; removing it");
            return self.acknowledge(&token).await;
        };
        let place = session_id.as_deref().map(|session| self.node.sessions.enter(session));
        if matches!(place, Some(None)) {
            return self.abandon(&token, Some(SHORT_DELAY), true).await;
        }
        let item = ActivityItem {
            instance,
            execution_id,
            id,
            name,
            input,
            session_id,
            tag,
            token,
            attempt_count,
            orchestration,
        };
        let options = &self.node.options;
        if item.attempt_count > options.max_attempts {
            self.fail_poisoned(item).await;
        } else if let Some((_, handler)) = self.node.activities.resolve_handler(&item.name) {
            self.run_activity(item, handler).await;
        } else {
            let backoff = options.unregistered_backoff.delay(item.attempt_count);
            report::unregistered(self, &item, backoff);
            self.abandon(&item.token, Some(backoff), false).await;
        }
        drop(place);
    }

    /// Removes a work item from the queue without a completion. If that fails, the item returns when its lock expires.
    async fn acknowledge(&self, token: &str) {
        if let Err(error) = self.node.store.settle_work(&Settlement::end(token, None)).await {
            tracing::debug!(target: "everturn::runtime::worker", worker_id = %self.worker_id,
                lock_token = %token, %error, "acknowledging an activity failed; it returns when its lock expires");
        }
    }

    /// Abandons the lock of an activity, which returns to the queue. If that fails, the lock expires instead.
    async fn abandon(&self, token: &str, delay: Option<Duration>, ignore_attempt: bool) {
        let settlement = Settlement::abandon(token, delay, ignore_attempt);
        let abandoned =
            retrying(self.node.options.worker_lock_timeout, || self.node.store.settle_work(&settlement));
        if let Err(error) = abandoned.await {
            tracing::warn!(target: "everturn::runtime::worker", worker_id = %self.worker_id,
                lock_token = %token, %error,
                "abandoning the lock of an activity failed; the activity waits until the lock expires");
        }
    }
}
