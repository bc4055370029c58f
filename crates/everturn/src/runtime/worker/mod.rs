//! Worker slots: fetch an activity, run it to its end, repeat.

mod activity;
mod invocation;
mod report;
pub(crate) mod running;

use std::sync::Arc;
use std::time::Duration;

use everturn_core::{WorkItem, kind_of};
use everturn_provider::{ProviderError, SessionFetchConfig};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::node::Node;
use super::pacing::Pace;
use super::retrying::retrying;
use super::session_budget::SessionPlace;
use super::shutdown::SlotAlive;
use activity::ActivityItem;

/// How long an activity waits whose session would be one too many, or whose outcome could not be stored.
const SHORT_DELAY: Duration = Duration::from_millis(100);

/// One worker slot.
pub(crate) struct Slot {
    pub(crate) node: Arc<Node>,
    pub(crate) worker_id: String,
    /// What activities are spawned with.
    pub(crate) alive: SlotAlive,
    session: SessionFetchConfig,
}

/// A fetched activity: the item, its lock token and how often it was fetched.
type Fetched = Result<Option<(WorkItem, String, u32)>, ProviderError>;

/// Runs one slot until told to stop.
pub(crate) async fn run_slot(node: Arc<Node>, index: usize, alive: SlotAlive, stop: CancellationToken) {
    let session = SessionFetchConfig {
        owner_id: node.session_owner(index),
        lock_timeout: node.options.session_lock_timeout,
    };
    let slot = Slot { worker_id: node.worker_id(index), alive, session, node };
    let mut budget_full = slot.node.sessions.watch_full();
    let mut pace = Pace::new(slot.node.options.dispatcher_min_poll_interval);
    while !stop.is_cancelled() {
        let fetched_at = Instant::now();
        let fetched = tokio::select! {
            biased;
            fetched = slot.fetch(&mut budget_full) => fetched,
            () = stop.cancelled() => return,
        };
        match fetched {
            Some(Ok(Some((_, token, _)))) if stop.is_cancelled() => {
                // Nothing of it has run: as if it had not been fetched.
                slot.abandon(&token, None, true).await;
            }
            Some(Ok(Some((item, token, attempt_count)))) => {
                pace.found();
                slot.process(item, token, attempt_count).await;
            }
            Some(Ok(None)) => pace.found_nothing(fetched_at, &stop).await,
            Some(Err(error)) => {
                tracing::warn!(target: "everturn::runtime::worker", worker_id = %slot.worker_id, %error,
                    "fetching an activity failed");
                pace.failed(&error, &stop).await;
            }
            None => {}
        }
    }
}

impl Slot {
    /// Waits for an activity. `None` if the session budget changed meanwhile: a fetch that waits asks for what was
    /// right when it began, so it must be made anew.
    async fn fetch(&self, budget_full: &mut watch::Receiver<bool>) -> Option<Fetched> {
        let full = *budget_full.borrow_and_update();
        let options = &self.node.options;
        tokio::select! {
            biased;
            fetched = self.node.store.fetch_work_item(
                options.worker_lock_timeout,
                options.dispatcher_long_poll_timeout,
                (!full).then_some(&self.session),
                &options.worker_tag_filter,
            ) => Some(fetched),
            () = changed_from(full, budget_full) => None,
        }
    }

    /// Takes a fetched activity to its end.
    async fn process(&self, item: WorkItem, token: String, attempt_count: u32) {
        let WorkItem::ActivityExecute { instance, execution_id, id, name, input, session_id, tag } = item
        else {
            tracing::error!(target: "everturn::runtime::worker", worker_id = %self.worker_id,
                kind = kind_of(&item), "the worker queue held something that is not an activity; it is removed");
            self.acknowledge(&token, None).await;
            return;
        };
        let place = match self.enter_session(session_id.as_deref()) {
            Ok(place) => place,
            Err(OverBudget) => {
                self.abandon(&token, Some(SHORT_DELAY), true).await;
                return;
            }
        };
        let item =
            ActivityItem { instance, execution_id, id, name, input, session_id, tag, token, attempt_count };
        self.process_activity(item).await;
        drop(place);
    }

    fn enter_session(&self, session: Option<&str>) -> Result<Option<SessionPlace>, OverBudget> {
        match session {
            Some(session) => self.node.sessions.enter(session).map(Some).ok_or(OverBudget),
            None => Ok(None),
        }
    }

    /// Removes an activity from the queue; if that fails its lock runs out and it comes again.
    async fn acknowledge(&self, token: &str, completion: Option<WorkItem>) {
        if let Err(error) = self.node.store.ack_work_item(token, completion).await {
            tracing::debug!(target: "everturn::runtime::worker", worker_id = %self.worker_id,
                lock_token = %token, %error, "an activity could not be acknowledged");
        }
    }

    /// Gives an activity back; if that fails its lock runs out instead.
    async fn abandon(&self, token: &str, delay: Option<Duration>, ignore_attempt: bool) {
        let abandoned = retrying(self.node.options.worker_lock_timeout, || {
            self.node.store.abandon_work_item(token, delay, ignore_attempt)
        });
        if let Err(error) = abandoned.await {
            tracing::warn!(target: "everturn::runtime::worker", worker_id = %self.worker_id,
                lock_token = %token, %error, "giving an activity back failed, its lock will run out");
        }
    }
}

/// Ends when the budget is full and was not, or the other way round.
async fn changed_from(full: bool, budget_full: &mut watch::Receiver<bool>) {
    if budget_full.wait_for(|now_full| *now_full != full).await.is_err() {
        // The budget is gone, so it never changes.
        std::future::pending::<()>().await;
    }
}

/// A session that would be one too many.
struct OverBudget;
