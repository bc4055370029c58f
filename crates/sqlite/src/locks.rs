//! Lock tokens: how they are made and checked, and which of them this process holds.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use everturn_provider::{Clock, ProviderError};
use rusqlite::{OptionalExtension, Row};

use crate::clock_reading::ClockReading;
use crate::columns;
use crate::operation::{Scope, VerbFailure};

/// How many expired locks are remembered: their holders may still call, and a wall clock that was set back would let
/// them.
const ENDED_MAX: usize = 4_096;
/// Wall and monotonic clock are rounded differently; below this a lock has expired by both.
const ROUNDING: Duration = Duration::from_millis(2);

/// A fresh token: the row, and a random number that cannot be guessed. Only the number makes it valid; a row id may be
/// reused.
pub(crate) fn new_token(clock: &dyn Clock, row: i64) -> String {
    format!("{row}-{:032x}", clock.random_u128())
}

/// The row of a token; `None` if the token is not from this provider.
pub(crate) fn row_of(token: &str) -> Option<i64> {
    token.rsplit_once('-')?.0.parse().ok()
}

/// The lock in a row.
pub(crate) struct StoredLock {
    pub(crate) token: Option<String>,
    pub(crate) until_ms: Option<i64>,
}

impl StoredLock {
    /// A lock from two columns; a damaged lock has no holder.
    #[inline]
    pub(crate) fn of(row: &Row<'_>, column: usize) -> rusqlite::Result<Self> {
        Ok(Self { token: columns::text(row, column)?, until_ms: columns::integer(row, column + 1)? })
    }
}

/// The error for a token that fits no row.
pub(crate) fn unknown_token(token: &str) -> VerbFailure {
    ProviderError::lock_lost("", format!("Invalid lock token {token}")).into()
}

/// Fails unless `token` held the lock when the caller called.
///
/// The time of the call counts, not the time at which the writer runs it: a slow disk costs no holder its lock, and a new
/// holder changes the token.
pub(crate) fn check(
    scope: &Scope<'_>,
    stored: &StoredLock,
    token: &str,
    called: ClockReading,
) -> Result<(), VerbFailure> {
    if stored.token.as_deref() != Some(token) {
        return Err(unknown_token(token));
    }
    let is_alive = own_clock_says(scope, token, called)
        .unwrap_or_else(|| stored.until_ms.is_some_and(|until_ms| called.wall_ms < until_ms));
    if is_alive {
        Ok(())
    } else {
        Err(ProviderError::lock_lost("", format!("lock expired (lock_token {token})")).into())
    }
}

/// Whether the lock had not ended when the caller called, by the clock of this process; `None` if it took no such lock.
#[inline(always)]
pub(crate) fn own_clock_says(scope: &Scope<'_>, token: &str, called: ClockReading) -> Option<bool> {
    let deadline = scope.renewed.deadline(token).or_else(|| scope.own_locks.deadline(token))?;
    Some(called.monotonic < deadline)
}

/// The locks that were renewed in the open transaction, with their new ends. A holder may use its lock in the batch that
/// renews it: both calls may have waited for the same slow operation, and the old end may have passed between them.
#[derive(Debug, Default)]
pub(crate) struct RenewedLocks(RefCell<HashMap<String, Duration>>);

impl RenewedLocks {
    /// The lock lasts `length_ms` from `at` on.
    pub(crate) fn renew(&self, token: &str, at: ClockReading, length_ms: u64) {
        let deadline = at.monotonic.saturating_add(Duration::from_millis(length_ms));
        self.0.borrow_mut().insert(token.to_owned(), deadline);
    }

    /// When the lock ends; `None` if it was not renewed in this transaction.
    #[inline]
    pub(crate) fn deadline(&self, token: &str) -> Option<Duration> {
        self.0.borrow().get(token).copied()
    }

    /// Another transaction begins.
    pub(crate) fn clear(&self) {
        self.0.borrow_mut().clear();
    }
}

/// The locks that this process holds, judged by its monotonic clock: a jump of the wall clock neither ends nor extends one.
#[derive(Debug, Default)]
pub(crate) struct OwnLocks {
    deadlines: HashMap<Arc<str>, Duration>,
    by_deadline: BTreeSet<(Duration, Arc<str>)>,
    /// Locks that have expired and were not released, the oldest first.
    ended: VecDeque<Arc<str>>,
}

impl OwnLocks {
    /// The lock lasts `length_ms` from `at` on.
    pub(crate) fn hold(&mut self, token: &str, at: ClockReading, length_ms: u64) {
        self.release(token);
        let deadline = at.monotonic.saturating_add(Duration::from_millis(length_ms));
        let token: Arc<str> = token.into();
        self.by_deadline.insert((deadline, Arc::clone(&token)));
        self.deadlines.insert(token, deadline);
    }

    pub(crate) fn release(&mut self, token: &str) {
        if let Some((token, deadline)) = self.deadlines.remove_entry(token) {
            self.by_deadline.remove(&(deadline, token));
        }
    }

    /// The lock has expired, and its holder may not know it.
    pub(crate) fn end(&mut self, token: &str) {
        let Some((token, deadline)) = self.deadlines.get_key_value(token) else { return };
        let token = Arc::clone(token);
        self.by_deadline.remove(&(*deadline, Arc::clone(&token)));
        self.ended.push_back(token);
        if self.ended.len() > ENDED_MAX
            && let Some(oldest) = self.ended.pop_front()
        {
            self.forget(oldest);
        }
    }

    /// Forgets an expired lock, unless it was renewed in time after all.
    fn forget(&mut self, token: Arc<str>) {
        if let Some(deadline) = self.deadline(&token)
            && !self.by_deadline.contains(&(deadline, Arc::clone(&token)))
        {
            self.deadlines.remove(&token);
        }
    }

    /// When the lock ends, or ended; `None` if this process does not hold it.
    #[inline]
    pub(crate) fn deadline(&self, token: &str) -> Option<Duration> {
        self.deadlines.get(token).copied()
    }

    /// How much of the lock is left; `None` if this process does not hold it or it has expired.
    pub(crate) fn left(&self, token: &str, now: ClockReading) -> Option<Duration> {
        self.deadline(token)?.checked_sub(now.monotonic).filter(|left| *left > ROUNDING)
    }

    /// The next lock to end.
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        self.by_deadline.first().map(|(deadline, _)| *deadline)
    }

    /// The locks that have expired and were not released.
    pub(crate) fn ended(&self, now: ClockReading) -> impl Iterator<Item = &str> {
        self.by_deadline
            .iter()
            .take_while(move |(deadline, _)| *deadline <= now.monotonic)
            .map(|(_, token)| token.as_ref())
    }
}

const SELECT_INSTANCE_LOCK: &str =
    "SELECT lock_token, locked_until_ms FROM everturn_instances WHERE instance_key = ?1";
const SELECT_WORK_LOCK: &str =
    "SELECT lock_token, locked_until_ms, session_id FROM everturn_worker_queue WHERE seq = ?1";

/// The lock of an instance.
pub(crate) fn instance_lock(scope: &Scope<'_>, key: i64) -> Result<Option<StoredLock>, VerbFailure> {
    Ok(scope
        .conn
        .prepare_cached(SELECT_INSTANCE_LOCK)?
        .query_row([key], |row| StoredLock::of(row, 0))
        .optional()?)
}

/// The lock of an activity, and its session.
pub(crate) fn work_lock(
    scope: &Scope<'_>,
    seq: i64,
) -> Result<Option<(StoredLock, Option<String>)>, VerbFailure> {
    Ok(scope
        .conn
        .prepare_cached(SELECT_WORK_LOCK)?
        .query_row([seq], |row| Ok((StoredLock::of(row, 0)?, columns::text(row, 2)?)))
        .optional()?)
}

/// The caller of a fetch counts the lock from the answer on, and renews it this long before its end at the latest.
const UNNOTICED: Duration = Duration::from_millis(100);

/// Whether so much of the lock is spent since `at` that its holder, who counts from later on, might renew it too late.
pub(crate) fn has_aged(at: ClockReading, now: ClockReading, lock_ms: u64) -> bool {
    let spent = now.monotonic.saturating_sub(at.monotonic);
    spent > UNNOTICED.min(Duration::from_millis(lock_ms) / 10)
}

/// Whether half of the lock is spent since `at`.
pub(crate) fn half_spent(at: ClockReading, now: ClockReading, lock_ms: u64) -> bool {
    let spent = now.monotonic.saturating_sub(at.monotonic);
    spent.saturating_mul(2) > Duration::from_millis(lock_ms)
}

/// How much is left of a lock that counts from `at` on.
pub(crate) fn left(at: ClockReading, now: ClockReading, lock_timeout: Duration) -> Duration {
    lock_timeout.saturating_sub(now.monotonic.saturating_sub(at.monotonic))
}

#[cfg(test)]
mod tests;
