//! Judging and renewing locks.

use std::time::Duration;

use super::store::{Lock, Store, after};
use crate::error::ProviderError;
use crate::locks::{LockKind, LockRenewal};

impl Store {
    /// The instance that this token holds.
    pub(super) fn instance_locked_by(
        &self,
        operation: &str,
        token: &str,
        now_ms: u64,
    ) -> Result<String, ProviderError> {
        let held = self.instance_locks.iter().find(|(_, lock)| lock.token == token);
        let (instance, lock) = held.ok_or_else(|| unknown_token(operation))?;
        check_held(operation, instance, lock, now_ms)?;
        Ok(instance.clone())
    }

    /// The row of the worker queue that this token holds.
    pub(super) fn activity_locked_by(
        &self,
        operation: &str,
        token: &str,
        now_ms: u64,
    ) -> Result<u64, ProviderError> {
        for (row_id, activity) in &self.worker_queue {
            if let Some(lock) = activity.lock.as_ref().filter(|lock| lock.token == token) {
                let what = activity.identity.as_ref().map_or_else(String::new, |identity| {
                    format!("activity {} of {}", identity.activity_id, identity.instance)
                });
                check_held(operation, &what, lock, now_ms)?;
                return Ok(*row_id);
            }
        }
        Err(unknown_token(operation))
    }

    pub(super) fn renew_orchestration_item_lock(
        &mut self,
        now_ms: u64,
        token: &str,
        extend_for: Duration,
    ) -> Result<(), ProviderError> {
        let instance = self.instance_locked_by("renew_orchestration_item_lock", token, now_ms)?;
        if let Some(lock) = self.instance_locks.get_mut(&instance) {
            lock.locked_until_ms = after(now_ms, extend_for);
        }
        Ok(())
    }

    pub(super) fn renew_work_item_lock(
        &mut self,
        now_ms: u64,
        token: &str,
        extend_for: Duration,
    ) -> Result<(), ProviderError> {
        let row_id = self.activity_locked_by("renew_work_item_lock", token, now_ms)?;
        if let Some(lock) = self.worker_queue.get_mut(&row_id).and_then(|activity| activity.lock.as_mut()) {
            lock.locked_until_ms = after(now_ms, extend_for);
        }
        self.touch_session(row_id, now_ms);
        Ok(())
    }

    /// Renews each lock by itself: one that is lost does not keep the others from being renewed.
    pub(super) fn renew_locks(
        &mut self,
        now_ms: u64,
        renewals: &[LockRenewal],
    ) -> Vec<Result<(), ProviderError>> {
        renewals
            .iter()
            .map(|LockRenewal { kind, token, extend_for }| match kind {
                LockKind::Orchestration => self.renew_orchestration_item_lock(now_ms, token, *extend_for),
                LockKind::WorkItem => self.renew_work_item_lock(now_ms, token, *extend_for),
            })
            .collect()
    }
}

fn unknown_token(operation: &str) -> ProviderError {
    ProviderError::lock_lost(operation, "Invalid lock token")
}

fn check_held(operation: &str, what: &str, lock: &Lock, now_ms: u64) -> Result<(), ProviderError> {
    if lock.is_held(now_ms) {
        return Ok(());
    }
    let late_ms = now_ms.saturating_sub(lock.locked_until_ms);
    Err(ProviderError::lock_lost(operation, format!("{what}: lock expired {late_ms} ms ago")))
}
