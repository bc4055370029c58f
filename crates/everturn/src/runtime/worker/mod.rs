//! Worker slots: fetch an activity, run it, store its outcome, repeat.

mod activity;
mod invocation;
mod record_poison;
mod report;
pub(crate) mod running;
mod settling;
mod stepping;

use std::sync::Arc;
use std::time::Duration;

use everturn_core::{WorkItem, kind_of};
use everturn_provider::store::{Feature, FetchedWork, LockKind, SessionPlaces as _, WorkFetch};
use everturn_provider::{ProviderError, SessionFetchConfig};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::lock_keeper::LockTerms;
use super::node::Node;
use super::pacing::FetchPace;
use super::poison::is_poison;
use super::session_budget::Fullness;
use super::shutdown::SlotAlive;
use super::steps::TakenWork;
use super::uncounted_attempts::AttemptKey;
use activity::{ActivityItem, LockedWork};
use settling::{Attempt, WorkLabel};

/// Delay before an activity is offered again whose session exceeds the limit, or whose outcome could not be stored.
const SHORT_DELAY: Duration = Duration::from_millis(100);

/// One worker slot.
pub(crate) struct WorkerSlot {
    pub(crate) node: Arc<Node>,
    pub(crate) worker_id: String,
    /// What activities are spawned with.
    pub(crate) alive: SlotAlive,
    /// Cancelled when nothing may be fetched any more.
    stop: CancellationToken,
    /// Asks for activities of sessions, too.
    fetch: Arc<WorkFetch>,
    /// Asks for activities without a session only: for stores that do not ask the session budget themselves.
    fetch_without_sessions: Arc<WorkFetch>,
}

/// Runs one slot until `stop` is cancelled. An activity under way is finished first.
pub(crate) async fn run_slot(node: Arc<Node>, index: usize, alive: SlotAlive, stop: CancellationToken) {
    let session = SessionFetchConfig {
        owner_id: node.session_owner(index),
        lock_timeout: node.options.session_lock_timeout,
    };
    let options = &node.options;
    let mut fetch_without_sessions =
        WorkFetch::new(options.worker_lock_timeout, options.dispatcher_long_poll_timeout)
            .with_tags(options.worker_tag_filter.clone());
    fetch_without_sessions.handlers.clone_from(&node.handlers);
    let mut fetch = fetch_without_sessions.clone().with_session(Some(session));
    if node.store.supports(Feature::SessionPlaces) {
        fetch = fetch.with_session_places(Arc::new(node.sessions.clone()));
    }
    let slot = WorkerSlot {
        worker_id: node.worker_id(index),
        alive,
        stop: stop.clone(),
        fetch: Arc::new(fetch),
        fetch_without_sessions: Arc::new(fetch_without_sessions),
        node,
    };
    let mut pace = FetchPace::new(slot.node.options.dispatcher_min_poll_interval);
    while !stop.is_cancelled() {
        let fetched_at = Instant::now();
        let fetched = tokio::select! {
            biased;
            fetched = slot.fetch_work() => fetched,
            () = stop.cancelled() => return,
        };
        match fetched {
            Some(Ok(work)) if work.is_empty() => pace.found_nothing(fetched_at, &stop).await,
            Some(Ok(work)) if stop.is_cancelled() => {
                for work in work {
                    slot.give_back(slot.node.taken(work)).await;
                }
            }
            Some(Ok(work)) => {
                pace.found();
                for work in work {
                    let mut next = Some(slot.node.taken(work));
                    while let Some(taken) = next {
                        let TakenWork { work, under_way } = taken;
                        next = slot.process_work(work).await;
                        under_way.finished();
                        if let Some(taken) = next.take_if(|_| stop.is_cancelled()) {
                            slot.give_back(taken).await;
                        }
                    }
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
    /// Gives an activity back of which nothing has run: the runtime stops. A failure is logged.
    async fn give_back(&self, taken: TakenWork) {
        let TakenWork { work, under_way } = taken;
        let label = WorkLabel::of(&work.lock_token, &work.item);
        self.abandon(label, None, Attempt::TakenBack).await.ok();
        under_way.finished();
    }

    /// Waits for an activity. Returns `None` if the session budget changed meanwhile, so that the fetch must be repeated.
    async fn fetch_work(&self) -> Option<Result<Vec<FetchedWork>, ProviderError>> {
        let sessions = &self.node.sessions;
        let before = sessions.fullness();
        let store_asks = self.fetch.session_places.is_some();
        let fetch = self.fetch_for(before);
        let budget_changed = async {
            let mut seen = before;
            loop {
                seen = sessions.changed_since(seen).await;
                // A store that asks for itself need not be told that the budget is full, only that there is room again. Any
                // other uses the budget from when the fetch began.
                let must_repeat = if store_asks { !seen.is_full } else { seen.is_full != before.is_full };
                if must_repeat {
                    return;
                }
            }
        };
        tokio::select! {
            biased;
            fetched = self.node.store.fetch_work(fetch) => Some(fetched),
            () = budget_changed => None,
        }
    }

    /// What this slot may take as long as the session budget is as it was seen.
    fn fetch_for(&self, seen: Fullness) -> &Arc<WorkFetch> {
        let store_asks = self.fetch.session_places.is_some();
        if seen.is_full && !store_asks { &self.fetch_without_sessions } else { &self.fetch }
    }

    /// Decides what to do with a fetched activity, and carries that out. Returns the activity that the slot goes on with, if
    /// it was given one already.
    async fn process_work(&self, work: FetchedWork) -> Option<TakenWork> {
        if let Some(metrics) = &self.node.metrics {
            metrics.record_worker_item_fetched();
        }
        let FetchedWork {
            item,
            lock_token: token,
            lock_left,
            attempt_count,
            orchestration,
            session_place,
            ..
        } = work;
        let WorkItem::ActivityExecute { instance, execution_id, id, name, input, session_id, tag } = item
        else {
            tracing::error!(target: "everturn::runtime::worker", worker_id = %self.worker_id,
                kind = kind_of(&item), "the worker queue held an item that is not an activity; removing it");
            self.acknowledge(WorkLabel::of(&token, &item)).await;
            return None;
        };
        let reserve = |session: &String| self.node.sessions.reserve(session);
        let session_place = session_place.or_else(|| session_id.as_ref().and_then(reserve));
        if session_id.is_some() && session_place.is_none() {
            let key = AttemptKey::Activity { instance: instance.clone(), execution_id, activity_id: id };
            let label = WorkLabel { lock_token: &token, instance_id: &instance, activity_name: &name };
            self.abandon_uncounted(label, Some(SHORT_DELAY), key).await;
            return None;
        }
        let options = &self.node.options;
        let terms = LockTerms {
            kind: LockKind::WorkItem,
            timeout: options.worker_lock_timeout,
            buffer: options.worker_lock_renewal_buffer,
        };
        // Cancelled by a committed turn that no longer wants the activity, and by a lost lock.
        let cancelled = CancellationToken::new();
        let lock = self.node.locks.keep(token.clone(), terms, lock_left, cancelled.clone());
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
        let attempt_count = self.node.uncounted.subtract_from(attempt_count, || item.attempt_key());
        let work = LockedWork { item: ActivityItem { attempt_count, ..item }, lock, cancelled };
        let mut next = None;
        if is_poison(attempt_count, options.max_attempts) {
            self.fail_poisoned(work).await;
        } else if let Some((_, handler)) = self.node.activities.resolve_handler(&work.item.name) {
            next = self.run_activity(work, handler).await;
        } else {
            let backoff = options.unregistered_backoff.delay(attempt_count);
            report::unregistered(self, &work.item, backoff);
            self.leave_to_others(&work.item, backoff).await;
        }
        drop(session_place);
        next
    }
}
