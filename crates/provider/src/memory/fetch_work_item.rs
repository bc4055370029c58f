//! Handing an activity to a worker.

use std::time::Duration;

use everturn_core::{ErrorDetails, WorkItem};

use super::hand_back::Claim;
use super::store::{Activity, Held, Lock, Moment, Session, Store, Stored, VISIBLE};
use crate::tags::TagFilter;
use crate::types::{ScheduledActivityIdentifier, SessionFetchConfig};

impl Store {
    /// Locks the oldest activity that this worker may take, if there is one, and claims its session.
    pub(super) fn fetch_work_item(
        &mut self,
        now: Moment,
        fresh_token: &str,
        lock_timeout: Duration,
        session: Option<&SessionFetchConfig>,
        tag_filter: &TagFilter,
    ) -> Option<(WorkItem, String, u32)> {
        // What has come due stays due, even if the clock is set back.
        for activity in
            self.worker_queue.values_mut().filter(|activity| activity.visible_at_ms <= now.wall_ms)
        {
            activity.visible_at_ms = VISIBLE;
        }
        let Some(row_id) = self.pick_activity(now, session, tag_filter) else {
            self.changes.passed_over |= self.passes_activities_over(now);
            return None;
        };
        let activity = self.worker_queue.get_mut(&row_id)?;
        let Stored::Good(item) = &activity.item else { return None };
        let item = item.clone();
        activity.lock = Some(Lock::new(fresh_token.to_owned(), now, lock_timeout));
        activity.attempt_count = activity.attempt_count.saturating_add(1);
        let attempt_count = activity.attempt_count;
        self.changed_hands.activities.insert(row_id);
        self.changes.held.push(Held::Lock { token: fresh_token.to_owned(), lasts: lock_timeout });
        if let (Some(session_id), Some(config)) = (&activity.session_id, session) {
            let claim = Session {
                owner_id: config.owner_id.clone(),
                leased_until: now.monotonic.saturating_add(config.lock_timeout),
                last_activity_at: now.monotonic,
            };
            self.changes.held.push(Held::Lease {
                session_id: session_id.clone(),
                owner_id: claim.owner_id.clone(),
                lasts: config.lock_timeout,
            });
            self.changes.claim = Claim::of(session_id, &claim, self.sessions.get(session_id), now);
            self.sessions.insert(session_id.clone(), claim);
        }
        Some((item, fresh_token.to_owned(), attempt_count))
    }

    /// Whether there are activities that were let go in this batch.
    fn passes_activities_over(&self, now: Moment) -> bool {
        let changed = self.changed_hands.activities.iter().filter_map(|row_id| self.worker_queue.get(row_id));
        changed.into_iter().any(|activity| activity.is_free(now))
    }

    /// The oldest row that this worker may take. Damaged rows on the way are answered with a failure.
    fn pick_activity(
        &mut self,
        now: Moment,
        session: Option<&SessionFetchConfig>,
        tag_filter: &TagFilter,
    ) -> Option<u64> {
        loop {
            let (row_id, activity) = self.worker_queue.iter().find(|(row_id, activity)| {
                activity.is_free(now)
                    && !self.changed_hands.activities.contains(row_id)
                    && tag_filter.matches(activity.tag.as_deref())
                    && self.may_take_session(activity.session_id.as_deref(), session, now)
            })?;
            let row_id = *row_id;
            let Stored::Damaged(damage) = &activity.item else { return Some(row_id) };
            let damage = damage.clone();
            let activity = self.worker_queue.remove(&row_id)?;
            self.answer_damaged(row_id, activity, &damage);
        }
    }

    /// Tells the instance that its activity was lost; if nobody knows whose it is, keeps the row out of the way.
    fn answer_damaged(&mut self, row_id: u64, activity: Activity, damage: &str) {
        let Some(ScheduledActivityIdentifier { instance, execution_id, activity_id }) = activity.identity
        else {
            tracing::error!(row_id, damage, "activity set aside: neither it nor whose it is can be read");
            self.set_aside.push(activity);
            return;
        };
        let details = ErrorDetails::Infrastructure {
            operation: "fetch_work_item".to_owned(),
            message: format!("activity {activity_id} cannot be read: {damage}"),
            retryable: false,
        };
        self.push_message(
            WorkItem::ActivityFailed { instance, execution_id, id: activity_id, details },
            VISIBLE,
        );
    }

    /// Whether a worker may take activities of this session: it owns it, or nobody does.
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

    /// How long until a worker may find something it does not find now.
    pub(super) fn next_work_item_wake(&self, now: Moment) -> Option<Duration> {
        let delays = self.worker_queue.values().map(|activity| now.until_wall(activity.visible_at_ms));
        let locks = self.worker_queue.values().filter_map(|activity| activity.lock.as_ref());
        let locks = locks.map(|lock| now.until(lock.held_until));
        let leases = self.sessions.values().map(|session| now.until(session.leased_until));
        delays.chain(locks).chain(leases).filter(|wait| !wait.is_zero()).min()
    }
}

impl Activity {
    /// Visible, and not in anybody's hands.
    fn is_free(&self, now: Moment) -> bool {
        self.visible_at_ms <= now.wall_ms && !self.lock.as_ref().is_some_and(|lock| lock.is_held(now))
    }
}
