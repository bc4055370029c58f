//! `renew`: locks and session leases are extended.

use everturn_provider::encoded::{length_ms, stored_ms};
use std::collections::BTreeSet;

use everturn_provider::ProviderError;
use everturn_provider::store::{LockKind, LockRenewal, Renewal, Renewed, SessionRenewal};
use rusqlite::params;

use crate::clock_reading::ClockReading;
use crate::locks::{self, row_of, unknown_token};
use crate::operation::{BatchOrder, Scope, Verb, VerbFailure};
use crate::sessions;
use crate::unreadable::RowPlace;

const RENEW_INSTANCE_LOCK: &str = "UPDATE everturn_instances SET locked_until_ms = ?2, lock_ms = ?3, ready_seq = NULL WHERE instance_key = ?1";
const RENEW_WORK_LOCK: &str =
    "UPDATE everturn_worker_queue SET locked_until_ms = ?2, lock_ms = ?3, ready = 0 WHERE seq = ?1";
const RENEW_LEASE: &str = "UPDATE everturn_sessions SET lease_until_ms = ?2, lease_ms = ?5, lock_owner = ?6 \
     WHERE owner_id = ?1 AND lease_until_ms > ?3 AND active_at_ms > ?4";

/// Extends locks, with one answer for each, and live session leases.
pub(crate) struct Renew {
    pub(crate) renewal: Renewal,
    pub(crate) called: ClockReading,
}

impl Verb for Renew {
    type Answer = Renewed;
    const NAME: &'static str = "renew";
    const ORDER: BatchOrder = BatchOrder::Renewal;

    fn run(&self, scope: &mut Scope<'_>) -> Result<Renewed, VerbFailure> {
        let mut locks = Vec::with_capacity(self.renewal.locks.len());
        for lock in &self.renewal.locks {
            let place = row_of(&lock.token).map(|row| match lock.kind {
                LockKind::Orchestration => RowPlace::Instance(row),
                LockKind::WorkItem => RowPlace::Activity(row),
            });
            if place.is_some_and(|place| scope.rows.passes_over(place)) {
                locks.push(Err(ProviderError::retryable(
                    Self::NAME,
                    "the row of the lock cannot be read now",
                )));
                continue;
            }
            // One row that cannot be read must not cost the other locks of the call.
            place.iter().for_each(|place| scope.rows.at(*place));
            let renewed = match lock.kind {
                LockKind::Orchestration => renew_instance(scope, lock, self.called),
                LockKind::WorkItem => renew_work(scope, lock, self.called),
            };
            locks.push(match renewed {
                Ok(()) => Ok(()),
                Err(VerbFailure::Refused(mut error)) => {
                    error.operation = Self::NAME.to_owned();
                    Err(error)
                }
                Err(storage) => return Err(storage),
            });
        }
        scope.rows.done();
        let sessions = match &self.renewal.sessions {
            Some(sessions) => renew_sessions(scope, sessions, self.called)?,
            None => 0,
        };
        Ok(Renewed::new(locks, sessions))
    }
}

fn renew_instance(
    scope: &mut Scope<'_>,
    lock: &LockRenewal,
    called: ClockReading,
) -> Result<(), VerbFailure> {
    let token = &lock.token;
    let key = row_of(token).ok_or_else(|| unknown_token(token))?;
    let stored = locks::instance_lock(scope, key)?.ok_or_else(|| unknown_token(token))?;
    locks::check(scope, &stored, token, called)?;
    let lock_ms = length_ms(lock.extend_for);
    scope.conn.prepare_cached(RENEW_INSTANCE_LOCK)?.execute(params![
        key,
        scope.now.wall_after(lock.extend_for),
        stored_ms(lock_ms)
    ])?;
    scope.renewed.renew(token, scope.now, lock_ms);
    scope.effects.held.push((token.clone(), scope.now, lock_ms));
    Ok(())
}

fn renew_work(scope: &mut Scope<'_>, lock: &LockRenewal, called: ClockReading) -> Result<(), VerbFailure> {
    let token = &lock.token;
    let seq = row_of(token).ok_or_else(|| unknown_token(token))?;
    let (stored, session) = locks::work_lock(scope, seq)?.ok_or_else(|| unknown_token(token))?;
    locks::check(scope, &stored, token, called)?;
    let lock_ms = length_ms(lock.extend_for);
    scope.conn.prepare_cached(RENEW_WORK_LOCK)?.execute(params![
        seq,
        scope.now.wall_after(lock.extend_for),
        stored_ms(lock_ms)
    ])?;
    sessions::note_activity(scope, session.as_deref())?;
    scope.renewed.renew(token, scope.now, lock_ms);
    scope.effects.held.push((token.clone(), scope.now, lock_ms));
    Ok(())
}

/// Extends the live leases of these owners. Returns how many.
fn renew_sessions(
    scope: &Scope<'_>,
    sessions: &SessionRenewal,
    called: ClockReading,
) -> Result<usize, VerbFailure> {
    let mut renew = scope.conn.prepare_cached(RENEW_LEASE)?;
    let until_ms = scope.now.wall_after(sessions.extend_for);
    let active_since_ms = called.wall_ms.saturating_sub(stored_ms(length_ms(sessions.idle_timeout)));
    let lease_ms = stored_ms(length_ms(sessions.extend_for));
    let mut renewed = 0;
    // An owner that is named twice counts once.
    for owner_id in BTreeSet::from_iter(&sessions.owner_ids) {
        let extend = params![owner_id, until_ms, called.wall_ms, active_since_ms, lease_ms, scope.owner];
        renewed += renew.execute(extend)?;
    }
    Ok(renewed)
}
