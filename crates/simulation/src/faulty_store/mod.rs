//! A store that fails on purpose.

mod admin;
mod batch;
mod batch_fates;
mod parked;
mod verbs;

use std::sync::Arc;
use std::time::Duration;

use everturn_provider::store::{Store, StoreLayer};
use everturn_provider::{Clock, MemoryProvider};

use batch::BatchedMemory;

pub use batch_fates::{BatchFate, BatchFates, LostBatch, NoLoss, Unanswered};

/// A store that fails on purpose.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use everturn_provider::ManualClock;
/// use everturn_simulation::{FaultyStore, NoLoss};
///
/// let clock = Arc::new(ManualClock::new(1_000));
/// let store = FaultyStore::in_memory(clock).with_batches(Duration::from_millis(1), Arc::new(NoLoss));
/// ```
#[derive(Debug)]
pub struct FaultyStore {
    clock: Arc<dyn Clock>,
    memory: Arc<MemoryProvider>,
    batched: Option<BatchedMemory>,
}

impl FaultyStore {
    /// A store in memory that goes by this clock.
    pub fn in_memory(clock: Arc<dyn Clock>) -> Self {
        let memory = Arc::new(MemoryProvider::with_clock(Arc::clone(&clock)));
        Self { clock, memory, batched: None }
    }

    /// Commits calls together, as a store does for which a commit is expensive.
    ///
    /// The first call that changes something opens a batch, which is committed `window` later; with a window of zero,
    /// tasks that are ready still join. Calls are answered after the commit, except that a turn of an instance that its
    /// runtime keeps in memory may begin before. A batch can be lost: `fates` decides.
    #[must_use]
    pub fn with_batches(mut self, window: Duration, fates: Arc<dyn BatchFates>) -> Self {
        self.batched =
            Some(BatchedMemory::new(Arc::clone(&self.memory), Arc::clone(&self.clock), window, fates));
        self
    }

    /// The tables behind it, committed or not, to be damaged or inspected through
    /// [`TableAccess`](everturn_provider::testing::TableAccess).
    pub fn memory(&self) -> &MemoryProvider {
        &self.memory
    }
}

impl StoreLayer for FaultyStore {
    fn inner(&self) -> &dyn Store {
        match &self.batched {
            Some(batched) => batched,
            None => &*self.memory,
        }
    }
}
