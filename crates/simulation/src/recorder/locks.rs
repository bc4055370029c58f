//! The locks that workers hold, as far as answers of the store show, and what must not be done with them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use everturn::providers::store::{LockKind, LockRenewal};

use super::WorldTime;
use crate::process::Process;
use crate::sim_clock::SimClock;
use crate::world_store::LockState;

/// A lock, as it was fetched and renewed.
#[derive(Debug)]
pub(super) struct RecordedLock {
    /// The instance or activity.
    pub(super) what: String,
    pub(super) until: Duration,
    /// When others take it for ended by the wall clock, if they go by that.
    until_ms: Option<u64>,
    /// When the holder got it.
    pub(super) since: WorldTime,
    /// The earliest moment in which the store can have given it, if its holder was frozen meanwhile.
    pub(super) given_at: Duration,
    /// The process that got it, if the store releases the locks of processes that no longer run.
    holder: Option<Arc<Process>>,
}

impl RecordedLock {
    /// Whether no other worker may have it yet.
    fn excludes_others(&self, at: WorldTime, clock: &SimClock) -> bool {
        if has_ended(self.holder.as_ref()) {
            return false;
        }
        let by_the_wall =
            self.until_ms.is_none_or(|until_ms| clock.latest_ms_since(self.since.monotonic) < until_ms);
        at.monotonic < self.until && by_the_wall
    }
}

/// Whether the holder of a lock no longer runs, so that the store may have released the lock.
pub(crate) fn has_ended(holder: Option<&Arc<Process>>) -> bool {
    holder.is_some_and(|process| process.is_killed())
}

/// A lock that a fetch just returned.
#[derive(Debug)]
pub(crate) struct NewLock<'a> {
    pub(crate) token: &'a str,
    /// The process that got it, if the store releases the locks of processes that no longer run.
    pub(crate) holder: Option<Arc<Process>>,
    /// How long it was asked to last.
    pub(crate) lasts: Duration,
    pub(crate) state: LockState,
    /// How often it was tried, with this one, as the store has it.
    pub(crate) attempt_count: u32,
    /// How many processes have died so far.
    pub(crate) deaths: u32,
}

/// All locks of a world. Its methods return what must not be.
#[derive(Debug, Default)]
pub(super) struct LockRecord {
    /// By token.
    locks: BTreeMap<String, RecordedLock>,
    /// The token that was fetched last, by instance or activity.
    holders: BTreeMap<String, String>,
    /// Renewals that were called and not answered, and when: they can still take effect, also when their caller has
    /// stopped waiting.
    renewals_sent: BTreeMap<String, Duration>,
    /// Locks that were released, and when.
    released: BTreeMap<String, Duration>,
    /// How often an instance or activity was taken over: its holder had died, stalled or lost its lock to a clock.
    takeovers: BTreeMap<String, u32>,
    /// Locks whose holders asked to abandon them, and why they must not, if so.
    abandons_sent: BTreeMap<String, Option<String>>,
}

impl LockRecord {
    pub(super) fn get(&self, token: &str) -> Option<&RecordedLock> {
        self.locks.get(token)
    }

    pub(super) fn get_mut(&mut self, token: &str) -> Option<&mut RecordedLock> {
        self.locks.get_mut(token)
    }

    /// All processes have ended: the first one that opens the store frees their locks.
    pub(super) fn clear(&mut self) {
        self.locks.clear();
        for what in std::mem::take(&mut self.holders).into_keys() {
            *self.takeovers.entry(what).or_default() += 1;
        }
    }

    /// How often this instance or activity was taken over.
    pub(super) fn takeovers(&self, what: &str) -> u32 {
        self.takeovers.get(what).copied().unwrap_or(0)
    }

    /// A worker got a lock.
    pub(super) fn fetched(
        &mut self,
        what: String,
        lock: &NewLock<'_>,
        at: WorldTime,
        clock: &SimClock,
    ) -> Vec<String> {
        let (lasts, until_ms) = match lock.state {
            // Less than was asked for, if its holder was frozen while the answer came.
            LockState::HeldFor { left } => (left, None),
            LockState::HeldUntil { until_ms } => (lock.lasts, Some(until_ms)),
            // Everything that is done with it must be refused.
            LockState::Void => return Vec::new(),
        };
        let mut violations = Vec::new();
        if let Some(before) = self.holders.insert(what.clone(), lock.token.to_owned())
            && !self.abandons_sent.contains_key(&before)
            && let Some(held) = self.locks.get(&before)
        {
            *self.takeovers.entry(what.clone()).or_default() += 1;
            if held.excludes_others(at, clock) {
                let left = held.until - at.monotonic;
                violations.push(format!("G4: {what} was fetched though locked for another {left:?}"));
            }
        }
        let until = at.monotonic + lasts;
        let holder = lock.holder.clone();
        let recorded = RecordedLock { what, until, until_ms, since: at, given_at: at.monotonic, holder };
        if self.locks.insert(lock.token.to_owned(), recorded).is_some() {
            violations.push(format!("G4: token {} was fetched twice", lock.token));
        }
        violations
    }

    /// A step of `what` was committed: no worker may do that while another one has its lock.
    pub(super) fn used_without_lock(&self, what: &str, at: WorldTime, clock: &SimClock) -> Option<String> {
        let token = self.holders.get(what).filter(|token| !self.abandons_sent.contains_key(*token))?;
        let held = self.locks.get(token).filter(|held| held.excludes_others(at, clock))?;
        let left = held.until - at.monotonic;
        Some(format!("G4: a step of {what} was committed though {what} was locked for another {left:?}"))
    }

    /// A call with this token succeeded that ends the lock.
    pub(super) fn unlock(
        &mut self,
        token: &str,
        verb: &str,
        called: WorldTime,
        at: WorldTime,
    ) -> (Option<RecordedLock>, Option<String>) {
        let violation = self.check(token, verb, called);
        (self.release(token, at), violation)
    }

    fn release(&mut self, token: &str, at: WorldTime) -> Option<RecordedLock> {
        let held = self.locks.remove(token)?;
        self.released.insert(token.to_owned(), at.monotonic);
        if self.holders.get(&held.what).is_some_and(|holder| holder == token) {
            self.holders.remove(&held.what);
        }
        Some(held)
    }

    /// These locks were given in batches that were lost.
    pub(super) fn voided(&mut self, tokens: Vec<String>) {
        for token in tokens {
            if let Some(held) = self.locks.remove(&token)
                && self.holders.get(&held.what) == Some(&token)
            {
                self.holders.remove(&held.what);
            }
        }
    }

    /// The holder is about to abandon a lock; another worker may have it before the answer comes, if it comes.
    pub(super) fn abandon_sent(&mut self, token: &str, called: WorldTime) {
        self.abandons_sent.insert(token.to_owned(), self.why_not(token, called));
    }

    /// A lock was abandoned.
    pub(super) fn abandoned(&mut self, token: &str, at: WorldTime) -> Option<String> {
        let refused = self.abandons_sent.get(token).and_then(Option::as_ref);
        let violation = refused.map(|refused| format!("G4: abandon succeeded {refused}"));
        self.release(token, at);
        violation
    }

    /// Locks are to be renewed.
    pub(super) fn renewals_sent(&mut self, renewals: &[LockRenewal], called: WorldTime) {
        self.renewals_sent.extend(renewals.iter().map(|renewal| (renewal.token.clone(), called.monotonic)));
    }

    /// Renewals were answered: those with `true` succeeded.
    pub(super) fn renewed(
        &mut self,
        renewals: &[LockRenewal],
        renewed: &[bool],
        called: WorldTime,
        at: WorldTime,
    ) -> Vec<String> {
        for LockRenewal { token, .. } in renewals {
            self.renewals_sent.remove(token);
        }
        let mut violations = Vec::new();
        for (LockRenewal { kind, token, extend_for }, _) in
            renewals.iter().zip(renewed).filter(|(_, renewed)| **renewed)
        {
            let verb = match kind {
                LockKind::Orchestration => "renew of an instance",
                LockKind::WorkItem => "renew of an activity",
            };
            if self.released.get(token).is_some_and(|released| *released >= called.monotonic) {
                // It was renewed and then released before the answer came.
                continue;
            }
            violations.extend(self.check(token, verb, called));
            if let Some(held) = self.locks.get_mut(token) {
                held.until = at.monotonic + *extend_for;
                held.until_ms = held.until_ms.map(|_| at.now_ms + extend_for.as_millis() as u64);
            }
        }
        violations
    }

    fn check(&self, token: &str, verb: &str, called: WorldTime) -> Option<String> {
        self.why_not(token, called).map(|refused| format!("G4: {verb} succeeded {refused}"))
    }

    /// Why a call with this token must be refused: only the worker that got the lock last may use it, and only if the lock
    /// had not ended when the worker called.
    fn why_not(&self, token: &str, called: WorldTime) -> Option<String> {
        match self.locks.get(token) {
            None => Some("with an unknown lock".to_owned()),
            Some(held) if held.until <= called.monotonic => {
                if self.renewals_sent.get(token).is_some_and(|sent| *sent < held.until) {
                    return None;
                }
                let ended = called.monotonic - held.until;
                Some(format!("on {} with a lock that ended {ended:?} before", held.what))
            }
            Some(held) if self.holders.get(&held.what).is_none_or(|holder| holder != token) => {
                Some(format!("on {} with a lock that another worker had by then", held.what))
            }
            Some(_) => None,
        }
    }
}
