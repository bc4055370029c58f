//! `renew_locks` and `renew_session_lock`: locks and session leases are extended.

use std::collections::BTreeSet;
use std::time::Duration;

use everturn_provider::{LockKind, LockRenewal, ProviderError};
use rusqlite::params;

use crate::clock_reading::{ClockReading, length_ms, stored_ms};
use crate::locks::{self, row_of, unknown_token};
use crate::operation::{BatchOrder, Scope, Verb, VerbFailure};
use crate::sessions;

const RENEW_INSTANCE_LOCK: &str =
    "UPDATE instances SET locked_until_ms = ?2, lock_ms = ?3, ready_seq = NULL WHERE instance_key = ?1";
const RENEW_WORK_LOCK: &str =
    "UPDATE worker_queue SET locked_until_ms = ?2, lock_ms = ?3, ready = 0 WHERE seq = ?1";
const RENEW_LEASE: &str = "UPDATE sessions SET lease_until_ms = ?2, lease_ms = ?5 \
     WHERE owner_id = ?1 AND lease_until_ms > ?3 AND active_at_ms > ?4";

/// Extends locks, with one answer for each.
pub(crate) struct RenewLocks {
    pub(crate) renewals: Vec<LockRenewal>,
    pub(crate) called: ClockReading,
}

impl Verb for RenewLocks {
    type Answer = Vec<Result<(), ProviderError>>;
    const NAME: &'static str = "renew_locks";
    const ORDER: BatchOrder = BatchOrder::Renewal;

    fn run(&self, scope: &mut Scope<'_>) -> Result<Self::Answer, VerbFailure> {
        let mut answers = Vec::with_capacity(self.renewals.len());
        for renewal in &self.renewals {
            let (name, renewed) = match renewal.kind {
                LockKind::Orchestration => {
                    ("renew_orchestration_item_lock", renew_instance(scope, renewal, self.called))
                }
                LockKind::WorkItem => ("renew_work_item_lock", renew_work_item(scope, renewal, self.called)),
            };
            answers.push(match renewed {
                Ok(()) => Ok(()),
                Err(VerbFailure::Refused(mut error)) => {
                    error.operation = name.to_owned();
                    Err(error)
                }
                Err(storage) => return Err(storage),
            });
        }
        Ok(answers)
    }
}

fn renew_instance(
    scope: &mut Scope<'_>,
    renewal: &LockRenewal,
    called: ClockReading,
) -> Result<(), VerbFailure> {
    let token = &renewal.token;
    let key = row_of(token).ok_or_else(|| unknown_token(token))?;
    let stored = locks::instance_lock(scope, key)?.ok_or_else(|| unknown_token(token))?;
    locks::check(scope, &stored, token, called)?;
    let lock_ms = length_ms(renewal.extend_for);
    scope.conn.prepare_cached(RENEW_INSTANCE_LOCK)?.execute(params![
        key,
        scope.now.wall_after(renewal.extend_for),
        stored_ms(lock_ms)
    ])?;
    scope.effects.held.push((token.clone(), scope.now, lock_ms));
    Ok(())
}

fn renew_work_item(
    scope: &mut Scope<'_>,
    renewal: &LockRenewal,
    called: ClockReading,
) -> Result<(), VerbFailure> {
    let token = &renewal.token;
    let seq = row_of(token).ok_or_else(|| unknown_token(token))?;
    let (stored, session) = locks::work_lock(scope, seq)?.ok_or_else(|| unknown_token(token))?;
    locks::check(scope, &stored, token, called)?;
    let lock_ms = length_ms(renewal.extend_for);
    scope.conn.prepare_cached(RENEW_WORK_LOCK)?.execute(params![
        seq,
        scope.now.wall_after(renewal.extend_for),
        stored_ms(lock_ms)
    ])?;
    sessions::note_activity(scope, session.as_deref())?;
    scope.effects.held.push((token.clone(), scope.now, lock_ms));
    Ok(())
}

/// Extends live session leases. The answer is how many.
pub(crate) struct RenewSessions {
    pub(crate) owner_ids: BTreeSet<String>,
    pub(crate) extend_for: Duration,
    pub(crate) idle_timeout: Duration,
    pub(crate) called: ClockReading,
}

impl Verb for RenewSessions {
    type Answer = usize;
    const NAME: &'static str = "renew_session_lock";
    const ORDER: BatchOrder = BatchOrder::Renewal;

    fn run(&self, scope: &mut Scope<'_>) -> Result<usize, VerbFailure> {
        let mut renew = scope.conn.prepare_cached(RENEW_LEASE)?;
        let until_ms = scope.now.wall_after(self.extend_for);
        let active_since_ms = self.called.wall_ms.saturating_sub(stored_ms(length_ms(self.idle_timeout)));
        let lease_ms = stored_ms(length_ms(self.extend_for));
        let mut renewed = 0;
        for owner_id in &self.owner_ids {
            renewed +=
                renew.execute(params![owner_id, until_ms, self.called.wall_ms, active_since_ms, lease_ms])?;
        }
        Ok(renewed)
    }
}
