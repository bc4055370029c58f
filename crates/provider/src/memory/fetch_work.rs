//! Locking activities for a worker.

use std::ops::Bound;
use std::time::Duration;

use everturn_core::{ErrorDetails, WorkItem};

use super::parked::LOOK_AT_LEAST_EVERY;
use super::tables::{Activity, Instance, Lock, Moment, Session, Stored, Tables, VISIBLE};
use crate::store::{FetchedWork, HandlerView, MessageNotes, SessionPlace, WorkFetch};
use crate::types::{ScheduledActivityIdentifier, SessionFetchConfig};

/// An activity that a worker may take, and the place for its session.
struct PickedActivity {
    row_id: u64,
    item: WorkItem,
    session_place: Option<SessionPlace>,
}

impl Tables {
    /// Locks up to `work_max` activities that this worker may take, the oldest first, and claims their sessions.
    pub fn fetch_work(
        &mut self,
        now: Moment,
        fetch: &WorkFetch,
        fresh_token: impl Fn() -> String,
    ) -> Vec<FetchedWork> {
        self.show_due_activities(now);
        let mut work = Vec::new();
        let mut last_row_id = 0;
        while work.len() < fetch.work_max
            && let Some(picked) = self.pick_activity(now, fetch, last_row_id)
        {
            last_row_id = picked.row_id;
            work.extend(self.lock_activity(now, picked, fetch, fresh_token()));
        }
        // Parked fetches do not know of a lock or lease that ends before they look again.
        let lease = fetch.session.as_ref().map_or(fetch.lock_timeout, |session| session.lock_timeout);
        self.changes.worker_queue |= !work.is_empty() && fetch.lock_timeout.min(lease) < LOOK_AT_LEAST_EVERY;
        work
    }

    /// Locks one activity and claims its session.
    fn lock_activity(
        &mut self,
        now: Moment,
        picked: PickedActivity,
        fetch: &WorkFetch,
        token: String,
    ) -> Option<FetchedWork> {
        let PickedActivity { row_id, item, session_place } = picked;
        let activity = self.worker_queue.get_mut(&row_id)?;
        activity.lock = Some(Lock::new(token.clone(), now, fetch.lock_timeout));
        activity.delay = None;
        activity.attempt_count = activity.attempt_count.saturating_add(1);
        let attempt_count = activity.attempt_count;
        if let (Some(session_id), Some(config)) = (activity.session_id.clone(), &fetch.session) {
            let claimed = Session {
                owner_id: config.owner_id.clone(),
                leased_until: now.monotonic.saturating_add(config.lock_timeout),
                last_activity_at: now.monotonic,
            };
            self.sessions.insert(session_id, claimed);
        }
        let orchestration = self.instances.get(item.instance()).map(Instance::orchestration);
        let mut work = FetchedWork::new(item, token, fetch.lock_timeout, attempt_count);
        work.orchestration = orchestration;
        work.session_place = session_place;
        Some(work)
    }

    /// The oldest activity behind `last_row_id` that this worker may take. Damaged rows on the way are answered with a
    /// failure.
    fn pick_activity(
        &mut self,
        now: Moment,
        fetch: &WorkFetch,
        mut last_row_id: u64,
    ) -> Option<PickedActivity> {
        loop {
            let behind = (Bound::Excluded(last_row_id), Bound::Unbounded);
            let (row_id, activity) = self.worker_queue.range(behind).find(|(_, activity)| {
                activity.is_free(now, fetch.handlers.as_deref())
                    && fetch.tags.matches(activity.tag.as_deref())
                    && self.may_take_session(activity.session_id.as_deref(), fetch.session.as_ref(), now)
            })?;
            let row_id = *row_id;
            last_row_id = row_id;
            let damage = match &activity.item {
                Stored::Good(item) => {
                    let session_place = match (&activity.session_id, &fetch.session_places) {
                        (Some(session_id), Some(places)) => match places.reserve(session_id) {
                            Some(place) => Some(place),
                            None => continue,
                        },
                        _ => None,
                    };
                    return Some(PickedActivity { row_id, item: item.clone(), session_place });
                }
                Stored::Damaged(damage) => damage.clone(),
            };
            let activity = self.worker_queue.remove(&row_id)?;
            self.answer_damaged(now, row_id, activity, &damage);
        }
    }

    /// Sends the instance a failure of its activity. A row that does not even say which instance it belongs to becomes a
    /// dead letter.
    fn answer_damaged(&mut self, now: Moment, row_id: u64, activity: Activity, damage: &str) {
        let Some(ScheduledActivityIdentifier { instance, execution_id, activity_id }) = activity.identity
        else {
            tracing::error!(
                target: "everturn::providers::memory",
                row_id,
                damage,
                "dead-lettered an activity: neither it nor the instance that scheduled it can be read"
            );
            self.dead_letters.push(activity.item);
            return;
        };
        let details = ErrorDetails::Infrastructure {
            operation: "fetch_work".to_owned(),
            message: format!("activity {activity_id} cannot be read: {damage}"),
            retryable: false,
        };
        let failed = WorkItem::ActivityFailed { instance, execution_id, id: activity_id, details };
        self.push_message(now, failed, MessageNotes::default(), VISIBLE);
    }

    /// Whether a worker may take activities of this session: it owns the session, or the session has no owner.
    fn may_take_session(
        &self,
        session_id: Option<&str>,
        config: Option<&SessionFetchConfig>,
        now: Moment,
    ) -> bool {
        let Some(session_id) = session_id else { return true };
        let Some(config) = config else { return false };
        self.sessions
            .get(session_id)
            .is_none_or(|session| !session.is_leased(now) || session.owner_id == config.owner_id)
    }

    /// How long until a fetch of work may find something that it does not find now.
    pub fn next_work_wake(&self, now: Moment) -> Option<Duration> {
        let delays = self.worker_queue.values().filter_map(|activity| activity.delay.as_ref());
        let delays = delays.map(|delay| now.until_wall(delay.until_ms));
        let locks = self.worker_queue.values().filter_map(|activity| activity.lock.as_ref());
        let locks = locks.map(|lock| now.until(lock.held_until));
        let leases = self.sessions.values().map(|session| now.until(session.leased_until));
        delays.chain(locks).chain(leases).filter(|wait| !wait.is_zero()).min()
    }
}

impl Activity {
    /// Neither locked nor delayed for a fetch with these handlers.
    pub(crate) fn is_free(&self, now: Moment, handlers: Option<&dyn HandlerView>) -> bool {
        let is_delayed = self.delay.as_ref().is_some_and(|delay| delay.holds(now, handlers));
        !is_delayed && !self.lock.as_ref().is_some_and(|lock| lock.is_held(now))
    }
}
