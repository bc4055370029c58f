//! The provider that keeps everything in memory: the executable specification of the storage contract.
//!
//! All state is one `tables::Tables` of plain ordered tables behind a mutex. Each verb of the store is a method of it in
//! a file of its own; only waiting for work is asynchronous, and it is around the tables.

mod abandon_turn;
mod admin;
mod commit_step;
mod commit_turn;
mod delete;
mod due_timers;
mod fetch_turns;
mod fetch_work;
mod kv;
mod locks;
mod parked;
mod prune;
mod raw_writes;
mod read;
mod renew;
mod settle_work;
mod store;
mod submit;
mod sweep;
pub(crate) mod tables;
mod unknown_instance;
mod watches;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use everturn_core::limits::DEFAULT_PAYLOAD_BYTES_MAX;
use tokio::sync::Notify;

use crate::clock::{Clock, SystemClock};
use crate::store::{Stamp, StoreIdentity};
use tables::{Changes, Moment, Tables};
use watches::Watches;

/// A provider that keeps everything in memory and forgets it when it is dropped.
///
/// It follows the whole storage contract and is its executable specification; it is for tests and simulations.
///
/// ```
/// use std::sync::Arc;
/// use everturn_provider::{ManualClock, MemoryProvider, Provider};
///
/// let provider = MemoryProvider::with_clock(Arc::new(ManualClock::new(1_000)));
/// assert_eq!(provider.name(), "memory");
/// assert_eq!(provider.now_ms(), 1_000);
/// ```
#[derive(Debug)]
pub struct MemoryProvider {
    identity: StoreIdentity,
    clock: Arc<dyn Clock>,
    payload_bytes_max: usize,
    tables: Mutex<Tables>,
    watches: Mutex<Watches>,
    orchestrator_work: Notify,
    worker_work: Notify,
}

impl MemoryProvider {
    /// An empty store that goes by the system's clock.
    pub fn new() -> Self {
        Self::with_clock(Arc::new(SystemClock::new()))
    }

    /// An empty store that goes by this clock, and draws its tokens and stamps from it.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self {
            identity: StoreIdentity::unique(),
            clock,
            payload_bytes_max: DEFAULT_PAYLOAD_BYTES_MAX,
            tables: Mutex::default(),
            watches: Mutex::default(),
            orchestrator_work: Notify::new(),
            worker_work: Notify::new(),
        }
    }

    /// Sets the largest payload that client and runtime let through, in UTF-8 bytes.
    #[must_use]
    pub fn with_payload_bytes_max(mut self, payload_bytes_max: usize) -> Self {
        self.payload_bytes_max = payload_bytes_max;
        self
    }

    /// Runs a verb on the tables at the present time, and announces what it changed.
    fn run<T>(&self, verb: impl FnOnce(&mut Tables, Moment) -> T) -> T {
        let (answer, changes) = self.run_silently(verb);
        self.announce(changes);
        answer
    }

    /// Runs a verb on the tables at the present time.
    pub(crate) fn run_silently<T>(&self, verb: impl FnOnce(&mut Tables, Moment) -> T) -> (T, Changes) {
        let mut tables = locked(&self.tables);
        let now = Moment { wall_ms: self.clock.wall_ms(), monotonic: self.clock.monotonic() };
        let answer = verb(&mut tables, now);
        (answer, std::mem::take(&mut tables.changes))
    }

    /// Calls the check-ins, and wakes the watches and parked fetches that a change concerns.
    pub(crate) fn announce(&self, changes: Changes) {
        // A fetch or watch that a commit wakes must find the instance in memory again.
        for check_in in changes.check_ins {
            check_in();
        }
        if !changes.instances.is_empty() {
            let mut watches = locked(&self.watches);
            for instance in &changes.instances {
                watches.changed(instance);
            }
        }
        if changes.orchestrator_queue {
            self.orchestrator_work.notify_waiters();
        }
        if changes.worker_queue {
            self.worker_work.notify_waiters();
        }
    }

    pub(crate) fn fresh_token(&self) -> String {
        format!("{:032x}", self.clock.random_u128())
    }

    pub(crate) fn fresh_stamp(&self) -> Stamp {
        #[expect(clippy::cast_possible_truncation, reason = "half of a random number is random")]
        Stamp(self.clock.random_u128() as u64)
    }
}

impl Default for MemoryProvider {
    fn default() -> Self {
        Self::new()
    }
}

/// A panic under the mutex can only come from a view of warm instances; the tables are consistent by then, so the next
/// verb goes on.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
