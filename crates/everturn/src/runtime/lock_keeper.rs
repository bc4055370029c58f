//! One background task that renews every lock of this runtime.
//!
//! The owner of a lock keeps a [`LockGuard`]; dropping it ends the renewals. Renewals that are due at the same time are
//! one call to the provider. Later renewals do not wait for its answer.
//!
//! When a lock is lost:
//!
//! - The store answers that it is lost: at once.
//! - The store answers with an error that says nothing about the lock: the renewal is retried until shortly before the lock
//!   would expire by this process' own clock. Then the lock is given up, while its holder can still abandon it and take
//!   back the attempt.
//! - The store does not answer. If it judges a renewal by the moment at which it was called ([`Feature::LateRenewals`]), the
//!   renewal was made in time and is only late: the lock is still held, and giving it up would repeat the work. The answer
//!   decides. A store that has not answered one more length of the lock after its end is taken for hanging, and the lock is
//!   given up. Any other store would refuse what it receives too late: there the lock is given up as after an error, because
//!   another call may still get through.
//!
//! In all cases the guard signals that the lock is lost. A lock that is given up before its work has begun is abandoned by the
//! keeper itself, and its attempt taken back: the holder may wait behind code that does not return.

use std::collections::{BTreeSet, HashMap};
use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use everturn_provider::ProviderError;
use everturn_provider::store::{Feature, LockKind, LockRenewal, Store};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::deadline::after;
use super::uncounted_attempts::{AttemptKey, UncountedAttempts};

mod abandoned_locks;
mod renewal_calls;

use abandoned_locks::{AbandonCalls, AbandonedLock};
use renewal_calls::{AnsweredRenewals, RenewalBatch, RenewalCalls};

/// Delay before a renewal that failed with a retryable error is tried again.
const RETRY_DELAY: Duration = Duration::from_millis(50);
/// Locks of at least this length are renewed a fixed time before they expire, shorter ones at half their length.
const LONG_LOCK: Duration = Duration::from_secs(15);
/// Shortest interval between renewals of a long lock.
const LONG_LOCK_INTERVAL_MIN: Duration = Duration::from_secs(1);
/// Shortest time between a renewal and the end of its lock, however small the buffer: the answer takes time.
const RENEWAL_LEAD_MIN: Duration = Duration::from_millis(100);
/// A lock that cannot be renewed is given up this long before its end, so that its holder can abandon it in time and take
/// back the attempt.
const GIVE_UP_LEAD: Duration = Duration::from_millis(100);

/// The interval between renewals of a lock.
pub(crate) fn renewal_interval(timeout: Duration, buffer: Duration) -> Duration {
    if timeout < LONG_LOCK {
        return timeout / 2;
    }
    timeout.saturating_sub(buffer.max(RENEWAL_LEAD_MIN)).max(LONG_LOCK_INTERVAL_MIN)
}

/// How a lock is renewed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LockTerms {
    pub(crate) kind: LockKind,
    pub(crate) timeout: Duration,
    pub(crate) buffer: Duration,
}

/// The keeper; cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct LockKeeper(Arc<LockKeeperInner>);

#[derive(Default)]
struct LockKeeperInner {
    locks: Mutex<KeptLocks>,
    /// Wakes the task if a renewal is due before the time it sleeps until.
    due_earlier: Notify,
}

#[derive(Default)]
struct KeptLocks {
    by_id: HashMap<u64, KeptLock>,
    due: BTreeSet<(Instant, u64)>,
    next_id: u64,
    /// The time the task sleeps until; `None` if it waits for the first lock.
    asleep_until: Option<Instant>,
    /// Whether a renewal that the store answers late may have been made in time.
    late_renewals: bool,
    /// Locks that were lost and whose holders are not signalled yet.
    lost: Vec<CancellationToken>,
    /// Locks that were given up before their work had begun, and are not abandoned yet.
    abandoned: Vec<AbandonedLock>,
}

struct KeptLock {
    token: String,
    terms: LockTerms,
    /// Whether a renewal was sent and is not answered yet.
    under_way: bool,
    /// When it is to be renewed or, while a renewal is under way, given up.
    due_at: Instant,
    /// When the lock expires by this process' clock, if no renewal succeeds.
    ends_at: Instant,
    /// What waits for its turn; `None` once it has begun.
    unbegun: Option<UnbegunWork>,
    lost: CancellationToken,
    given_up: Arc<AtomicBool>,
}

/// Work that waits for its turn.
struct UnbegunWork {
    /// Its lock is given up then.
    until: Instant,
    key: AttemptKey,
}

impl KeptLock {
    /// When it is given up if no renewal succeeds. A short lock keeps most of its time, and a renewal that is sent later
    /// than that has until the end.
    fn give_up_at(&self, now: Instant) -> Instant {
        let lead = GIVE_UP_LEAD.min(self.terms.timeout / 10);
        self.ends_at.checked_sub(lead).filter(|at| now < *at).unwrap_or(self.ends_at)
    }

    /// When it is given up if the renewal that was sent at `now` is not answered.
    fn unanswered_until(&self, now: Instant, late_renewals: bool) -> Instant {
        if late_renewals { after(self.ends_at.max(now), self.terms.timeout) } else { self.give_up_at(now) }
    }
}

/// A lock that is renewed until this is dropped.
pub(crate) struct LockGuard {
    id: u64,
    keeper: LockKeeper,
    lost: CancellationToken,
    given_up: Arc<AtomicBool>,
    has_woken_keeper: bool,
}

impl LockGuard {
    /// Whether the keeper was woken for this lock. It runs next on the thread that woke it, and no other thread may take it
    /// over: that thread must not run the user's code before.
    pub(crate) fn has_woken_keeper(&self) -> bool {
        self.has_woken_keeper
    }

    /// Returns when the lock is lost.
    pub(crate) async fn lost(&self) {
        self.lost.cancelled().await;
    }

    /// Returns true if the lock is lost, for whatever reason.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.is_cancelled()
    }

    /// Returns true if the lock is lost only because it could not be renewed. The store may still count it as held.
    pub(crate) fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::SeqCst)
    }

    /// Returns when the lock is given up. Never returns if it is kept, or lost for another reason.
    pub(crate) async fn given_up(&self) {
        self.lost.cancelled().await;
        if !self.is_given_up() {
            pending::<()>().await;
        }
    }

    /// The work of the lock begins: it is renewed from now on until the guard is dropped. Returns false if it is lost.
    pub(crate) fn keep_on(&self) -> bool {
        // A lost lock is forgotten before its holder is signalled.
        match self.keeper.locks().by_id.get_mut(&self.id) {
            Some(held) => held.unbegun = None,
            None => return false,
        }
        !self.is_lost()
    }

    /// Has the lock renewed at once, to find out whether it is still held.
    pub(crate) fn check_now(&self) {
        let mut locks = self.keeper.locks();
        if locks.by_id.get(&self.id).is_none_or(|held| held.under_way) {
            return;
        }
        locks.set_due(self.id, Instant::now());
        locks.asleep_until = Some(Instant::now());
        drop(locks);
        self.keeper.0.due_earlier.notify_one();
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        self.keeper.locks().remove(self.id);
    }
}

impl LockKeeper {
    /// Renews a lock of which `lock_left` is left until the guard is dropped. Cancels `lost` if the lock is lost.
    pub(crate) fn keep(
        &self,
        token: String,
        terms: LockTerms,
        lock_left: Duration,
        lost: CancellationToken,
    ) -> LockGuard {
        self.keep_until(token, terms, lock_left, lost, None)
    }

    /// The same for work that waits for its turn. Until [`LockGuard::keep_on`] the lock is renewed for one more length only:
    /// what it waits for may never end, and others could do the work. Then the lock is abandoned, and the attempt taken back.
    pub(crate) fn keep_unbegun(
        &self,
        token: String,
        terms: LockTerms,
        lock_left: Duration,
        key: AttemptKey,
    ) -> LockGuard {
        let until = after(Instant::now(), lock_left.min(terms.timeout).saturating_add(terms.timeout));
        self.keep_until(token, terms, lock_left, CancellationToken::new(), Some(UnbegunWork { until, key }))
    }

    fn keep_until(
        &self,
        token: String,
        terms: LockTerms,
        lock_left: Duration,
        lost: CancellationToken,
        unbegun: Option<UnbegunWork>,
    ) -> LockGuard {
        let now = Instant::now();
        // What was spent before the answer came is missing from the first interval.
        let spent = terms.timeout.saturating_sub(lock_left);
        let due_at = after(now, renewal_interval(terms.timeout, terms.buffer).saturating_sub(spent));
        let mut locks = self.locks();
        let id = locks.next_id;
        locks.next_id += 1;
        locks.due.insert((due_at, id));
        let given_up = Arc::new(AtomicBool::new(false));
        let lock = KeptLock {
            token,
            terms,
            under_way: false,
            due_at,
            ends_at: after(now, lock_left.min(terms.timeout)),
            unbegun,
            lost: lost.clone(),
            given_up: Arc::clone(&given_up),
        };
        locks.by_id.insert(id, lock);
        let has_woken_keeper = locks.asleep_until.is_none_or(|until| due_at < until);
        if has_woken_keeper {
            locks.asleep_until = Some(due_at);
        }
        drop(locks);
        if has_woken_keeper {
            self.0.due_earlier.notify_one();
        }
        LockGuard { id, keeper: self.clone(), lost, given_up, has_woken_keeper }
    }

    /// Has the task look for locks that are due, without waiting for its timer.
    pub(crate) fn look_now(&self) {
        self.0.due_earlier.notify_one();
    }

    /// Renews the locks that are due, until this future is dropped.
    pub(crate) async fn run(self, store: Arc<dyn Store>, uncounted: UncountedAttempts) {
        let mut calls = RenewalCalls::default();
        let mut abandons = AbandonCalls::default();
        self.locks().begin(store.supports(Feature::LateRenewals), Instant::now());
        loop {
            let now = Instant::now();
            let wake_at = {
                let mut locks = self.locks();
                let batch = locks.take_due(now);
                if !batch.ids.is_empty() {
                    calls.send(&*store, batch, now);
                }
                calls.cancel_unless(|id| locks.by_id.contains_key(&id));
                locks.abandoned.drain(..).for_each(|lock| abandons.send(&*store, &uncounted, lock));
                locks.next_wake()
            };
            self.signal_lost();
            tokio::select! {
                biased;
                answered = calls.next() => self.locks().settle_all(answered),
                () = abandons.until_one_is_answered() => {}
                () = self.0.due_earlier.notified() => {}
                () = wait_until(wake_at) => {}
            }
        }
    }

    /// Signals the holders of lost locks. The mutex is released, because this runs wakers of the user's code; one that panics
    /// must not keep the other locks from being renewed.
    fn signal_lost(&self) {
        let lost = std::mem::take(&mut self.locks().lost);
        for lock in lost {
            if catch_unwind(AssertUnwindSafe(|| lock.cancel())).is_err() {
                tracing::warn!(target: "everturn::runtime::worker",
                    "a waker of an activity panicked while its cancellation was signalled; the activity may not notice it");
            }
        }
    }

    fn locks(&self) -> MutexGuard<'_, KeptLocks> {
        self.0.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeptLocks {
    fn remove(&mut self, id: u64) -> Option<KeptLock> {
        let held = self.by_id.remove(&id)?;
        self.due.remove(&(held.due_at, id));
        Some(held)
    }

    fn set_due(&mut self, id: u64, due_at: Instant) {
        if let Some(held) = self.by_id.get_mut(&id) {
            self.due.remove(&(held.due_at, id));
            held.due_at = due_at;
            self.due.insert((due_at, id));
        }
    }

    fn next_wake(&mut self) -> Option<Instant> {
        self.asleep_until = self.due.first().map(|(due_at, _)| *due_at);
        self.asleep_until
    }

    /// Prepares for a task that has no renewals under way. Those of a task before it, which has panicked, are sent again.
    fn begin(&mut self, late_renewals: bool, now: Instant) {
        self.late_renewals = late_renewals;
        let unanswered: Vec<u64> =
            self.by_id.iter().filter(|(_, held)| held.under_way).map(|(id, _)| *id).collect();
        for id in unanswered {
            if let Some(held) = self.by_id.get_mut(&id) {
                held.under_way = false;
            }
            self.set_due(id, now);
        }
    }

    /// The renewals that are due at `now`. Gives up locks whose renewal was not answered for too long.
    fn take_due(&mut self, now: Instant) -> RenewalBatch {
        let mut batch = RenewalBatch::default();
        while let Some((due_at, id)) = self.due.first().copied().filter(|(due_at, _)| *due_at <= now) {
            self.due.remove(&(due_at, id));
            let Some(held) = self.by_id.get_mut(&id) else { continue };
            if held.under_way {
                self.give_up(id, "no renewal succeeded in time");
                continue;
            }
            if held.unbegun.as_ref().is_some_and(|unbegun| unbegun.until <= now) {
                self.give_up(id, "its work has not begun in time");
                continue;
            }
            held.under_way = true;
            batch.ids.push(id);
            batch.locks.push(LockRenewal {
                kind: held.terms.kind,
                token: held.token.clone(),
                extend_for: held.terms.timeout,
            });
        }
        for id in &batch.ids {
            let late_renewals = self.late_renewals;
            if let Some(until) = self.by_id.get(id).map(|held| held.unanswered_until(now, late_renewals)) {
                self.set_due(*id, until);
            }
        }
        batch
    }

    fn settle_all(&mut self, answered: AnsweredRenewals) {
        let AnsweredRenewals { ids, sent_at, answers } = answered;
        let (mut answers, for_all) = match answers {
            Ok(renewed) => {
                (renewed.locks.into_iter(), ProviderError::retryable("renew", "no answer for this lock"))
            }
            Err(error) => (Vec::new().into_iter(), error),
        };
        for id in ids {
            self.settle(id, answers.next().unwrap_or_else(|| Err(for_all.clone())), sent_at);
        }
    }

    fn settle(&mut self, id: u64, answer: Result<(), ProviderError>, sent_at: Instant) {
        let Some(held) = self.by_id.get_mut(&id) else { return };
        held.under_way = false;
        match answer {
            Ok(()) => {
                held.ends_at = after(sent_at, held.terms.timeout);
                let due_at = after(sent_at, renewal_interval(held.terms.timeout, held.terms.buffer));
                self.set_due(id, due_at);
            }
            Err(error) if error.is_lock_lost() => {
                self.lose(id, &error.to_string());
            }
            Err(error) if error.is_retryable() => {
                let now = Instant::now();
                let retry_at = now + RETRY_DELAY;
                if retry_at < held.give_up_at(now) {
                    tracing::debug!(target: "everturn::runtime::worker", lock_token = %held.token, %error,
                        "lock renewal failed; retrying");
                    self.set_due(id, retry_at);
                } else {
                    self.give_up(id, "no renewal succeeded in time");
                }
            }
            Err(error) => self.give_up(id, &error.to_string()),
        }
    }

    /// The lock could not be renewed. The store did not say that it is lost.
    fn give_up(&mut self, id: u64, why: &str) {
        if let Some(held) = self.by_id.get_mut(&id) {
            held.given_up.store(true, Ordering::SeqCst);
            if let Some(UnbegunWork { key, .. }) = held.unbegun.take() {
                let (token, timeout) = (held.token.clone(), held.terms.timeout);
                self.abandoned.push(AbandonedLock { token, timeout, key });
            }
        }
        self.lose(id, why);
    }

    fn lose(&mut self, id: u64, why: &str) {
        if let Some(held) = self.remove(id) {
            tracing::debug!(target: "everturn::runtime::worker", lock_token = %held.token, error = why,
                "lock lost; its work is cancelled");
            self.lost.push(held.lost);
        }
    }
}

async fn wait_until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests;
