//! Access to the tables of a [`MemoryProvider`], for the test crates of this workspace. No part of the public API.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::memory::MemoryProvider;
use crate::memory::tables::{Activity, Lock, Message, Session, Stored, VISIBLE};
use crate::store::Stamp;

pub use crate::memory::tables::{Changes, Moment, Tables};

/// What is left of a damaged record.
const DAMAGE: &str = "expected value at line 1 column 1";

/// Access to the tables of a memory provider: verbs that are not announced, damaged records, and what no verb returns.
pub trait TableAccess {
    /// Runs a verb on the tables at the present time. Nothing is announced before [`announce`](Self::announce).
    fn run_silently<T>(&self, verb: impl FnOnce(&mut Tables, Moment) -> T) -> (T, Changes);

    /// Calls the check-ins, and wakes the watches and parked fetches that a change concerns.
    fn announce(&self, changes: Changes);

    /// A lock token that was never used.
    fn fresh_token(&self) -> String;

    /// A stamp that was never used.
    fn fresh_stamp(&self) -> Stamp;

    /// Runs a verb on the tables and announces nothing.
    fn inspect<T>(&self, verb: impl FnOnce(&mut Tables, Moment) -> T) -> T {
        self.run_silently(verb).0
    }

    /// Makes one stored event unreadable. Returns whether there was such an event.
    ///
    /// Nothing else changes, so an instance that a runtime keeps in memory does not notice before its history is read
    /// again.
    fn damage_event(&self, instance: &str, execution_id: u64, event_id: u64) -> bool {
        self.inspect(|tables, _| {
            let execution = tables.executions.get_mut(instance).and_then(|all| all.get_mut(&execution_id));
            let event = execution.and_then(|execution| execution.events.get_mut(&event_id));
            event.map(|event| *event = Stored::Damaged(DAMAGE.to_owned())).is_some()
        })
    }

    /// Makes every queued message of this instance unreadable. Returns how many there were.
    fn damage_messages(&self, instance: &str) -> usize {
        self.inspect(|tables, _| {
            let rows = tables.orchestrator_queue.values_mut().filter(|message| message.instance == instance);
            rows.map(|message| message.item = Stored::Damaged(DAMAGE.to_owned())).count()
        })
    }

    /// Makes every queued activity of this instance unreadable; on request also the columns that say which instance it
    /// belongs to. Returns how many there were.
    fn damage_work_items(&self, instance: &str, also_identity: bool) -> usize {
        self.inspect(|tables, _| {
            let rows = tables.worker_queue.values_mut().filter(|activity| activity.is_of(instance));
            rows.map(|activity| {
                activity.item = Stored::Damaged(DAMAGE.to_owned());
                activity.identity = activity.identity.take().filter(|_| !also_identity);
            })
            .count()
        })
    }

    /// How many activities were dead-lettered because their instance cannot be read.
    fn dead_letters(&self) -> usize {
        self.inspect(|tables, _| tables.dead_letters.len())
    }

    /// How often each queued message of this instance was fetched, oldest first.
    fn message_attempts(&self, instance: &str) -> Vec<u32> {
        self.inspect(|tables, _| {
            let rows = tables.orchestrator_queue.values().filter(|message| message.instance == instance);
            rows.map(|message| message.attempt_count).collect()
        })
    }

    /// How often each queued activity of this instance was fetched, oldest first.
    fn work_item_attempts(&self, instance: &str) -> Vec<u32> {
        self.inspect(|tables, _| {
            let rows = tables.worker_queue.values().filter(|activity| activity.is_of(instance));
            rows.map(|activity| activity.attempt_count).collect()
        })
    }

    /// How long the lock with this token still lasts; `None` if no row has it.
    fn lock_left(&self, token: &str) -> Option<Duration> {
        self.inspect(|tables, now| tables.lock_left(now, token))
    }

    /// The instances that have a lock, expired or not.
    fn locked_instances(&self) -> Vec<String> {
        self.inspect(|tables, _| tables.instance_locks.keys().cloned().collect())
    }
}

impl TableAccess for MemoryProvider {
    fn run_silently<T>(&self, verb: impl FnOnce(&mut Tables, Moment) -> T) -> (T, Changes) {
        self.run_silently(verb)
    }

    fn announce(&self, changes: Changes) {
        self.announce(changes);
    }

    fn fresh_token(&self) -> String {
        self.fresh_token()
    }

    fn fresh_stamp(&self) -> Stamp {
        self.fresh_stamp()
    }
}

/// The sessions before a fetch of this owner.
#[derive(Debug, Clone)]
pub struct SessionsBefore {
    at: Moment,
    owner_id: String,
    sessions: BTreeMap<String, Session>,
}

impl Tables {
    /// Returns to an earlier state. Row numbers that were used since are never used again.
    pub fn restore(&mut self, before: Self) {
        let last_row_id = self.last_row_id;
        *self = before;
        self.last_row_id = last_row_id;
    }

    /// Runs a fetch that does not see the queued rows of these instances and these activities. Also returns whether it
    /// would have found one of them.
    pub fn fetch_without<T>(
        &mut self,
        now: Moment,
        instances: &BTreeSet<String>,
        activities: &BTreeSet<u64>,
        fetch: impl FnOnce(&mut Self) -> T,
    ) -> (T, bool) {
        let of_instances =
            self.orchestrator_queue.iter_mut().filter(|(_, row)| instances.contains(&row.instance));
        let of_instances: Vec<u64> = of_instances
            .map(|(row_id, row)| {
                // A message that has become visible stays visible, whether or not a fetch sees it.
                if row.is_visible(now) {
                    row.visible_at_ms = VISIBLE;
                }
                *row_id
            })
            .collect();
        let mut hidden_messages: BTreeMap<u64, Message> = BTreeMap::new();
        for row_id in of_instances {
            hidden_messages.extend(self.orchestrator_queue.remove(&row_id).map(|row| (row_id, row)));
        }
        let mut hidden_activities: BTreeMap<u64, Activity> = BTreeMap::new();
        for row_id in activities {
            hidden_activities.extend(self.worker_queue.remove(row_id).map(|row| (*row_id, row)));
        }
        let found = fetch(self);
        let would_find = hidden_activities.values().any(|row| row.is_free(now, None))
            || hidden_messages.values().any(|row| {
                row.is_visible(now)
                    && !self.is_instance_locked(&row.instance, now)
                    && !self.is_delayed(&row.instance, now, None)
            });
        self.orchestrator_queue.append(&mut hidden_messages);
        self.worker_queue.append(&mut hidden_activities);
        (found, would_find)
    }

    /// The instance whose lock has this token, expired or not.
    pub fn instance_of(&self, token: &str) -> Option<String> {
        let mut locks = self.instance_locks.iter();
        locks.find(|(_, lock)| lock.token == token).map(|(instance, _)| instance.clone())
    }

    /// The row of the worker queue whose lock has this token, expired or not.
    pub fn activity_of(&self, token: &str) -> Option<u64> {
        let is_locked = |row: &Activity| row.lock.as_ref().is_some_and(|lock| lock.token == token);
        self.worker_queue.iter().find(|(_, row)| is_locked(row)).map(|(row_id, _)| *row_id)
    }

    /// How long the lock with this token still lasts; `None` if no row has it.
    pub fn lock_left(&self, now: Moment, token: &str) -> Option<Duration> {
        let of_activities = self.worker_queue.values().filter_map(|row| row.lock.as_ref());
        let mut locks = self.instance_locks.values().chain(of_activities);
        locks.find(|lock| lock.token == token).map(|lock| now.until(lock.held_until))
    }

    /// Lets a lock count from now on.
    pub fn restart_lock(&mut self, now: Moment, token: &str, lasts: Duration) {
        let of_activities = self.worker_queue.values_mut().filter_map(|row| row.lock.as_mut());
        let mut locks = self.instance_locks.values_mut().chain(of_activities);
        if let Some(lock) = locks.find(|lock| lock.token == *token) {
            *lock = Lock::new(token.to_owned(), now, lasts);
        }
    }

    /// Lets the lease of a session count from now on, if this owner has it.
    pub fn restart_lease(&mut self, now: Moment, session_id: &str, owner_id: &str, lasts: Duration) {
        let session = self.sessions.get_mut(session_id);
        if let Some(session) = session.filter(|session| session.owner_id == *owner_id) {
            session.leased_until = now.monotonic.saturating_add(lasts);
        }
    }

    /// The sessions whose lease by this owner lasts exactly so long.
    pub fn sessions_leased_for(&self, now: Moment, owner_id: &str, lasts: Duration) -> Vec<String> {
        let until = now.monotonic.saturating_add(lasts);
        let leased = self
            .sessions
            .iter()
            .filter(|(_, session)| session.owner_id == owner_id && session.leased_until == until);
        leased.map(|(session_id, _)| session_id.clone()).collect()
    }

    /// The sessions before a fetch of this owner, for [`undo_fetch`](Self::undo_fetch).
    pub fn sessions_before(&self, now: Moment, owner_id: &str) -> SessionsBefore {
        SessionsBefore { at: now, owner_id: owner_id.to_owned(), sessions: self.sessions.clone() }
    }

    /// Undoes a fetch whose answer was never given: releases the lock, takes the attempt back, and undoes the claim of a
    /// session that had no owner before. Does nothing if the row has another lock by now.
    pub fn undo_fetch(&mut self, token: &str, before: Option<&SessionsBefore>) {
        if let Some(instance) = self.instance_of(token) {
            self.release_instance(&instance, token, None, true);
        }
        let Some(row_id) = self.activity_of(token) else { return };
        self.release_activity(row_id, None, true);
        let session_id = self.worker_queue.get(&row_id).and_then(|row| row.session_id.clone());
        if let (Some(session_id), Some(before)) = (session_id, before) {
            self.undo_claim(&session_id, before);
        }
    }

    /// Unless the owner works on another activity of the session.
    fn undo_claim(&mut self, session_id: &str, fetch: &SessionsBefore) {
        let before = fetch.sessions.get(session_id);
        let had_an_owner = before.is_some_and(|session| session.is_leased(fetch.at));
        let is_used = self
            .worker_queue
            .values()
            .any(|row| row.lock.is_some() && row.session_id.as_deref() == Some(session_id));
        let is_claimed =
            self.sessions.get(session_id).is_some_and(|session| session.owner_id == fetch.owner_id);
        if had_an_owner || is_used || !is_claimed {
            return;
        }
        match before {
            Some(before) => self.sessions.insert(session_id.to_owned(), before.clone()),
            None => self.sessions.remove(session_id),
        };
    }
}
