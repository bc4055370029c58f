//! The provider that keeps everything in memory: the storage contract as a program one can read.
//!
//! All state is one `tables::Tables` of plain ordered tables behind a mutex. Each verb of the store is a method of it in
//! a file of its own; what is asynchronous (waiting for work, and for the commit of a batch) is only around it.

mod abandon_turn;
mod admin;
mod batch;
mod batches;
mod commit_turn;
mod delete;
mod fetch_turns;
mod fetch_work;
mod hand_back;
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
mod tables;
mod testing;
mod watches;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use everturn_core::limits::DEFAULT_PAYLOAD_BYTES_MAX;
use tokio::sync::Notify;

use crate::clock::{Clock, SystemClock};
use crate::store::Stamp;
use batch::State;
use batches::Batches;
use tables::{Changes, Moment};
use watches::Watches;

pub use batches::{BatchFate, BatchFates, LostBatch, NoLoss, Unanswered};

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
    clock: Arc<dyn Clock>,
    payload_bytes_max: usize,
    batches: Option<Batches>,
    state: Mutex<State>,
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
            clock,
            payload_bytes_max: DEFAULT_PAYLOAD_BYTES_MAX,
            batches: None,
            state: Mutex::default(),
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

    fn moment(&self) -> Moment {
        Moment { wall_ms: self.clock.wall_ms(), monotonic: self.clock.monotonic() }
    }

    /// Tells those whom a change concerns.
    fn announce(&self, changes: Changes) {
        // Whoever is woken by a commit shall find the instance in memory again.
        for check_in in changes.check_ins.0 {
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

    fn fresh_token(&self) -> String {
        format!("{:032x}", self.clock.random_u128())
    }

    fn fresh_stamp(&self) -> Stamp {
        #[expect(clippy::cast_possible_truncation, reason = "half of a random number is random")]
        Stamp(self.clock.random_u128() as u64)
    }
}

impl Default for MemoryProvider {
    fn default() -> Self {
        Self::new()
    }
}

/// A panic under the mutex can only come from code that was handed in (a view of warm instances); the tables are whole
/// by then, so the next verb goes on.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
