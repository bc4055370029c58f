//! Which locks a runtime holds and when they expire at the latest, by its own clock.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use everturn::providers::ProviderError;
use tokio::time::Instant;

use crate::observations::{Observation, ObservationLog};

/// Records every lock that expires while it is held, and how the store answers commits and renewals after that.
pub(crate) struct LockTracker {
    log: Arc<ObservationLog>,
    held: Mutex<HeldLocks>,
}

/// The locks of this process, as far as it knows.
#[derive(Default)]
struct HeldLocks {
    /// When each expires at the latest: counted from the answer, which comes after the store began to count.
    until: HashMap<String, Instant>,
    /// Those that have expired and were not released.
    expired: HashSet<String>,
    /// Those whose renewal is not answered yet: their expiry is not known.
    renewing: HashSet<String>,
}

impl LockTracker {
    pub(crate) fn new(log: Arc<ObservationLog>) -> Self {
        Self { log, held: Mutex::default() }
    }

    fn held(&self) -> MutexGuard<'_, HeldLocks> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store has handed out a lock.
    pub(crate) fn acquired(&self, token: &str, lock_timeout: Duration) {
        self.note_expired();
        self.held().until.insert(token.to_owned(), Instant::now() + lock_timeout);
    }

    fn note_expired(&self) {
        let now = Instant::now();
        let mut held = self.held();
        let expired: Vec<String> =
            held.until.iter().filter(|(_, until)| **until < now).map(|(token, _)| token.clone()).collect();
        for token in expired {
            held.until.remove(&token);
            held.expired.insert(token);
            self.log.record(Observation::LockEnded);
        }
    }

    /// The holder is about to commit or abandon under this lock. Returns true if the lock has certainly expired. The
    /// token is forgotten: a commit that is repeated because its answer was lost may be answered with `Ok`.
    pub(crate) fn release(&self, token: &str) -> bool {
        self.note_expired();
        let mut held = self.held();
        held.until.remove(token);
        held.expired.remove(token) && !held.renewing.contains(token)
    }

    /// Whether a lock that the holder is about to use has certainly expired.
    pub(crate) fn has_expired(&self, token: &str) -> bool {
        self.note_expired();
        let held = self.held();
        held.expired.contains(token) && !held.renewing.contains(token)
    }

    /// Records the answer to a commit or a renewal that was sent after the lock had expired.
    pub(crate) fn check_answer(&self, what: &str, late: bool, answer: &Result<(), ProviderError>) {
        match answer {
            Ok(()) if late => {
                self.log.record(Observation::Wrong(format!("{what} came late and was accepted")));
            }
            Err(error) if late && !error.is_retryable() => self.log.record(Observation::RefusedLate),
            _ => {}
        }
    }

    /// The holder is about to renew a lock. Returns true if the lock has certainly expired.
    pub(crate) fn begin_renewal(&self, token: &str) -> bool {
        self.note_expired();
        let mut held = self.held();
        let expired = held.expired.contains(token);
        held.renewing.insert(token.to_owned()) && expired
    }

    /// The store has answered a renewal.
    pub(crate) fn end_renewal(
        &self,
        token: &str,
        extend_for: Duration,
        late: bool,
        answer: &Result<(), ProviderError>,
    ) {
        self.check_answer("a renewal", late, answer);
        let mut held = self.held();
        // After a retryable error it is not known whether the lock was renewed.
        if !answer.as_ref().is_err_and(ProviderError::is_retryable) {
            held.renewing.remove(token);
        }
        if answer.is_ok() && (held.expired.remove(token) || held.until.contains_key(token)) {
            held.until.insert(token.to_owned(), Instant::now() + extend_for);
        }
    }
}
