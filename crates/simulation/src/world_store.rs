//! Where a simulated world is stored.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use everturn::providers::store::{LockKind, Store};
use everturn::providers::{Clock, ProviderError};

use crate::fault_plan::Fault;
use crate::plan::Plan;
use crate::random::SeededRandom;

/// Creates the store of a world, from its clock and its plan.
pub type CreateStore = fn(Arc<dyn Clock>, &Plan) -> Arc<dyn WorldStore>;

/// Where a simulated world is stored: processes open it, and the checks look into it directly. It may have faults of its
/// own.
#[async_trait]
pub trait WorldStore: Send + Sync {
    /// Opens the store for a process.
    ///
    /// # Errors
    /// If the store cannot be opened now; the process tries again.
    async fn open(&self) -> Result<Arc<dyn OpenedStore>, ProviderError>;

    /// The state of a lock that was just fetched.
    fn lock_state(&self, kind: LockKind, token: &str) -> LockState;

    /// Whether other processes may have the locks of a process that no longer runs before they expire.
    fn releases_locks_of_ended_processes(&self) -> bool {
        false
    }

    /// Locks that were fetched and became void since the last call: the batch that gave them was lost.
    fn take_void_locks(&self) -> Vec<String> {
        Vec::new()
    }

    /// How many rows of an instance are in the queues.
    fn rows_left(&self, instance: &str) -> usize;

    /// The instances that have a lock, expired or not.
    fn locked_instances(&self) -> Vec<String>;

    /// What is wrong with the store itself, whatever is stored in it.
    fn flaws(&self) -> Vec<String> {
        Vec::new()
    }

    /// Its path as errors contain it, if that differs from run to run.
    fn path(&self) -> Option<String> {
        None
    }

    /// How many turns were fetched and committed in one batch, if the store can tell.
    fn turns_in_one_batch(&self) -> u64 {
        0
    }

    /// Begins a fault of the store or its disk.
    fn strike(&self, _fault: Fault, _random: &mut SeededRandom) {}

    /// A tenth of a second has passed. Returns which faults took effect meanwhile, and how.
    fn tick(&self, _random: &mut SeededRandom) -> Vec<(Fault, String)> {
        Vec::new()
    }

    /// Ends all faults of the store and its disk.
    fn heal(&self) {}

    /// Returns when the power has failed.
    async fn power_failure(&self) {
        std::future::pending().await
    }

    /// Restores the power, before any process opens the store again.
    fn restart(&self) {}
}

/// A store as one process has it open.
#[async_trait]
pub trait OpenedStore: Send + Sync {
    /// The store.
    fn store(&self) -> Arc<dyn Store>;

    /// Closes it as a process that shuts down.
    async fn close(&self);

    /// Closes it as a process that was killed: nothing more happens of what it was about to do.
    async fn kill(&self);
}

/// The state of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockState {
    /// It lasts so long, whatever the wall clock says.
    HeldFor {
        /// How much of it is left.
        left: Duration,
    },
    /// It lasts no longer than was asked for, and others take it for ended when the wall clock shows this time.
    HeldUntil {
        /// The time.
        until_ms: u64,
    },
    /// It is void: it was never stored, or another worker has it by now.
    Void,
}
