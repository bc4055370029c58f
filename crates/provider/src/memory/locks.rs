//! Judging and renewing locks.

use std::time::Duration;

use super::store::{Held, Lock, Moment, Store};
use crate::error::ProviderError;
use crate::locks::{LockKind, LockRenewal};

impl Store {
    /// The instance that this token holds.
    pub(super) fn instance_locked_by(
        &self,
        operation: &str,
        token: &str,
        now: Moment,
    ) -> Result<String, ProviderError> {
        let held = self.instance_locks.iter().find(|(_, lock)| lock.token == token);
        let (instance, lock) = held.ok_or_else(|| unknown_token(operation))?;
        check_held(operation, instance, lock, now)?;
        Ok(instance.clone())
    }

    /// The row of the worker queue that this token holds.
    pub(super) fn activity_locked_by(
        &self,
        operation: &str,
        token: &str,
        now: Moment,
    ) -> Result<u64, ProviderError> {
        for (row_id, activity) in &self.worker_queue {
            if let Some(lock) = activity.lock.as_ref().filter(|lock| lock.token == token) {
                let what = activity.identity.as_ref().map_or_else(String::new, |identity| {
                    format!("activity {} of {}", identity.activity_id, identity.instance)
                });
                check_held(operation, &what, lock, now)?;
                return Ok(*row_id);
            }
        }
        Err(unknown_token(operation))
    }

    pub(super) fn renew_orchestration_item_lock(
        &mut self,
        now: Moment,
        token: &str,
        extend_for: Duration,
    ) -> Result<(), ProviderError> {
        let instance = self.instance_locked_by("renew_orchestration_item_lock", token, now)?;
        if let Some(lock) = self.instance_locks.get_mut(&instance) {
            lock.held_until = now.monotonic.saturating_add(extend_for);
        }
        self.changes.held.push(Held::Lock { token: token.to_owned(), lasts: extend_for });
        Ok(())
    }

    pub(super) fn renew_work_item_lock(
        &mut self,
        now: Moment,
        token: &str,
        extend_for: Duration,
    ) -> Result<(), ProviderError> {
        let row_id = self.activity_locked_by("renew_work_item_lock", token, now)?;
        if let Some(lock) = self.worker_queue.get_mut(&row_id).and_then(|activity| activity.lock.as_mut()) {
            lock.held_until = now.monotonic.saturating_add(extend_for);
        }
        self.changes.held.push(Held::Lock { token: token.to_owned(), lasts: extend_for });
        self.touch_session(row_id, now);
        Ok(())
    }

    /// Renews each lock by itself: one that is lost does not keep the others from being renewed.
    pub(super) fn renew_locks(
        &mut self,
        now: Moment,
        renewals: &[LockRenewal],
    ) -> Vec<Result<(), ProviderError>> {
        renewals
            .iter()
            .map(|LockRenewal { kind, token, extend_for }| match kind {
                LockKind::Orchestration => self.renew_orchestration_item_lock(now, token, *extend_for),
                LockKind::WorkItem => self.renew_work_item_lock(now, token, *extend_for),
            })
            .collect()
    }
}

impl Store {
    /// Has these locks and leases count from now on: their holders are told only now that they have them.
    pub(super) fn count_from(&mut self, now: Moment, held: &[Held]) {
        for held in held {
            match held {
                Held::Lock { token, lasts } => {
                    let of_activities = self.worker_queue.values_mut().filter_map(|row| row.lock.as_mut());
                    let mut locks = self.instance_locks.values_mut().chain(of_activities);
                    if let Some(lock) = locks.find(|lock| lock.token == *token) {
                        lock.held_until = now.monotonic.saturating_add(*lasts);
                    }
                }
                Held::Lease { session_id, owner_id, lasts } => {
                    let session = self.sessions.get_mut(session_id);
                    if let Some(session) = session.filter(|session| session.owner_id == *owner_id) {
                        session.leased_until = now.monotonic.saturating_add(*lasts);
                    }
                }
            }
        }
    }

    /// The lock with this token, if it still stands in a row.
    pub(super) fn lock(&self, token: &str) -> Option<&Lock> {
        let of_activities = self.worker_queue.values().filter_map(|row| row.lock.as_ref());
        self.instance_locks.values().chain(of_activities).find(|lock| lock.token == token)
    }
}

fn unknown_token(operation: &str) -> ProviderError {
    ProviderError::lock_lost(operation, "Invalid lock token")
}

fn check_held(operation: &str, what: &str, lock: &Lock, now: Moment) -> Result<(), ProviderError> {
    if lock.is_held(now) {
        return Ok(());
    }
    let late_ms = now.monotonic.saturating_sub(lock.held_until).as_millis();
    Err(ProviderError::lock_lost(operation, format!("{what}: lock expired {late_ms} ms ago")))
}
