//! Lock tokens: how they are made, judged and renewed.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use everturn_core::{Bug, planted};
use everturn_provider::{Clock, LockKind, ProviderError};
use rusqlite::{OptionalExtension, Row, params};

use crate::columns;
use crate::moment::{Moment, length_ms, stored_ms};
use crate::operation::{Failure, Order, Scope, Verb};
use crate::sessions;

/// How many locks that have ended are remembered: their holders may still call, and a wall clock that was set back would
/// let them.
const ENDED_MAX: usize = 4_096;
/// Wall and monotonic clock are rounded differently; below this a lock has ended by both.
const ROUNDING: Duration = Duration::from_millis(2);

/// A fresh token: where the row is, and a number nobody can guess. Only the number makes it valid; a row id may be
/// given out again.
pub(crate) fn new_token(clock: &dyn Clock, row: i64) -> String {
    format!("{row}-{:032x}", clock.random_u128())
}

/// The row a token speaks of; `None` if it is none of ours.
pub(crate) fn row_of(token: &str) -> Option<i64> {
    token.rsplit_once('-')?.0.parse().ok()
}

/// The lock that a row bears.
pub(crate) struct StoredLock {
    pub(crate) token: Option<String>,
    pub(crate) until_ms: Option<i64>,
}

impl StoredLock {
    /// A lock from two columns; one that is damaged is nobody's.
    pub(crate) fn of(row: &Row<'_>, column: usize) -> rusqlite::Result<Self> {
        Ok(Self { token: columns::text(row, column)?, until_ms: columns::integer(row, column + 1)? })
    }
}

/// A token that fits no row.
pub(crate) fn unknown_token(token: &str) -> Failure {
    ProviderError::lock_lost("", format!("Invalid lock token {token}")).into()
}

/// Whether whoever called at that moment with that token held the lock.
///
/// The moment of the call counts, not that of its turn in the queue: a writer that waits for the disk takes nobody's
/// lock, and whoever takes a lock over changes the token.
pub(crate) fn check(
    scope: &Scope<'_>,
    stored: &StoredLock,
    token: &str,
    called: Moment,
) -> Result<(), Failure> {
    if stored.token.as_deref() != Some(token) && !planted(Bug::NoTokenCheck) {
        return Err(unknown_token(token));
    }
    let alive = match scope.own_locks.deadline(token).filter(|_| !planted(Bug::WallClockLocks)) {
        Some(deadline) => called.monotonic < deadline,
        None => stored.until_ms.is_some_and(|until_ms| called.wall_ms < until_ms),
    };
    if alive || planted(Bug::NoExpiryCheck) {
        Ok(())
    } else {
        Err(ProviderError::lock_lost("", format!("lock expired (lock_token {token})")).into())
    }
}

/// The locks this process holds, judged by its monotonic clock: a wall clock that jumps frees none and keeps none.
#[derive(Debug, Default)]
pub(crate) struct OwnLocks {
    deadlines: HashMap<String, Duration>,
    by_deadline: BTreeSet<(Duration, String)>,
    /// Those that have ended and were not given back, the oldest first.
    ended: VecDeque<String>,
}

impl OwnLocks {
    /// The lock lasts `length_ms` from `at` on.
    pub(crate) fn hold(&mut self, token: String, at: Moment, length_ms: u64) {
        self.release(&token);
        let deadline = at.monotonic.saturating_add(Duration::from_millis(length_ms));
        self.by_deadline.insert((deadline, token.clone()));
        self.deadlines.insert(token, deadline);
    }

    pub(crate) fn release(&mut self, token: &str) {
        if let Some(deadline) = self.deadlines.remove(token) {
            self.by_deadline.remove(&(deadline, token.to_owned()));
        }
    }

    /// The lock has ended, and its holder may not know it.
    pub(crate) fn end(&mut self, token: &str) {
        let Some(deadline) = self.deadline(token) else { return };
        self.by_deadline.remove(&(deadline, token.to_owned()));
        self.ended.push_back(token.to_owned());
        if self.ended.len() > ENDED_MAX
            && let Some(oldest) = self.ended.pop_front()
        {
            self.forget(&oldest);
        }
    }

    /// Forgets a lock that has ended, unless it was renewed in time after all.
    fn forget(&mut self, token: &str) {
        if self.deadline(token).is_some_and(|at| !self.by_deadline.contains(&(at, token.to_owned()))) {
            self.deadlines.remove(token);
        }
    }

    /// When the lock ends, or ended; `None` if it is not ours.
    pub(crate) fn deadline(&self, token: &str) -> Option<Duration> {
        self.deadlines.get(token).copied()
    }

    /// How much of the lock is left; `None` if it is not ours or has ended.
    pub(crate) fn left(&self, token: &str, now: Moment) -> Option<Duration> {
        self.deadline(token)?.checked_sub(now.monotonic).filter(|left| *left > ROUNDING)
    }

    /// The next lock to end.
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        self.by_deadline.first().map(|(deadline, _)| *deadline)
    }

    /// The locks that have ended and were not given back.
    pub(crate) fn ended(&self, now: Moment) -> impl Iterator<Item = &str> {
        self.by_deadline
            .iter()
            .take_while(move |(deadline, _)| *deadline <= now.monotonic)
            .map(|(_, token)| token.as_str())
    }
}

/// One lock to be renewed.
pub(crate) struct Renewal {
    pub(crate) kind: LockKind,
    pub(crate) token: String,
    pub(crate) extend_for: Duration,
}

/// Renews locks; each has its own answer.
pub(crate) struct RenewLocks {
    pub(crate) renewals: Vec<Renewal>,
    pub(crate) called: Moment,
}

const SELECT_INSTANCE_LOCK: &str =
    "SELECT lock_token, locked_until_ms FROM instances WHERE instance_key = ?1";
const RENEW_INSTANCE_LOCK: &str =
    "UPDATE instances SET locked_until_ms = ?2, lock_ms = ?3, ready_seq = NULL WHERE instance_key = ?1";
const SELECT_WORK_LOCK: &str =
    "SELECT lock_token, locked_until_ms, session_id FROM worker_queue WHERE seq = ?1";
const RENEW_WORK_LOCK: &str =
    "UPDATE worker_queue SET locked_until_ms = ?2, lock_ms = ?3, ready = 0 WHERE seq = ?1";

impl Verb for RenewLocks {
    type Answer = Vec<Result<(), ProviderError>>;
    const NAME: &'static str = "renew_locks";
    const ORDER: Order = Order::Renewal;

    fn run(&self, scope: &mut Scope<'_>) -> Result<Self::Answer, Failure> {
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
                Err(Failure::Refused(mut error)) => {
                    error.operation = name.to_owned();
                    Err(error)
                }
                Err(storage) => return Err(storage),
            });
        }
        Ok(answers)
    }
}

fn renew_instance(scope: &mut Scope<'_>, renewal: &Renewal, called: Moment) -> Result<(), Failure> {
    let token = &renewal.token;
    let key = row_of(token).ok_or_else(|| unknown_token(token))?;
    let stored = instance_lock(scope, key)?.ok_or_else(|| unknown_token(token))?;
    if !planted(Bug::RenewalResurrects) || stored.token.as_deref() != Some(token) {
        check(scope, &stored, token, called)?;
    }
    let lock_ms = length_ms(renewal.extend_for);
    scope.conn.prepare_cached(RENEW_INSTANCE_LOCK)?.execute(params![
        key,
        scope.now.wall_after(renewal.extend_for),
        stored_ms(lock_ms)
    ])?;
    scope.effects.held.push((token.clone(), scope.now, lock_ms));
    Ok(())
}

fn renew_work_item(scope: &mut Scope<'_>, renewal: &Renewal, called: Moment) -> Result<(), Failure> {
    let token = &renewal.token;
    let seq = row_of(token).ok_or_else(|| unknown_token(token))?;
    let (stored, session) = work_lock(scope, seq)?.ok_or_else(|| unknown_token(token))?;
    check(scope, &stored, token, called)?;
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

/// The lock of an instance.
pub(crate) fn instance_lock(scope: &Scope<'_>, key: i64) -> Result<Option<StoredLock>, Failure> {
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
) -> Result<Option<(StoredLock, Option<String>)>, Failure> {
    Ok(scope
        .conn
        .prepare_cached(SELECT_WORK_LOCK)?
        .query_row([seq], |row| Ok((StoredLock::of(row, 0)?, columns::text(row, 2)?)))
        .optional()?)
}

/// Whoever gets an answer counts the lock from then on, and renews it at the latest this long before its end.
const UNNOTICED: Duration = Duration::from_millis(100);

/// Whether so much of the lock is gone since `at` that its holder, who does not know of it, might renew it too late.
pub(crate) fn has_aged(at: Moment, now: Moment, lock_ms: u64) -> bool {
    let spent = now.monotonic.saturating_sub(at.monotonic);
    spent > UNNOTICED.min(Duration::from_millis(lock_ms) / 10)
}

/// Whether half of the lock is gone since `at`.
pub(crate) fn half_spent(at: Moment, now: Moment, lock_ms: u64) -> bool {
    let spent = now.monotonic.saturating_sub(at.monotonic);
    spent.saturating_mul(2) > Duration::from_millis(lock_ms)
}
