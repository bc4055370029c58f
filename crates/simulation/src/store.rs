//! Where a simulated world is stored.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use everturn::providers::{Clock, LockKind, Provider, ProviderError};

use crate::plan::Plan;
use crate::random::SeededRandom;
use crate::weather::Fault;

/// Makes the store of a world, from its clock and its plan.
pub type Founder = fn(Arc<dyn Clock>, &Plan) -> Arc<dyn Store>;

/// Where a simulated world is stored: processes open it, and what is in it can be seen past them. A store may have bad
/// luck of its own.
#[async_trait]
pub trait Store: Send + Sync {
    /// Opens the store for a process.
    ///
    /// # Errors
    /// If the store cannot be opened now; the process will try again.
    async fn open(&self) -> Result<Arc<dyn Opened>, ProviderError>;

    /// What is true of a lock that was just handed out.
    fn standing(&self, kind: LockKind, token: &str) -> Standing;

    /// Locks that were handed out and are void, since the last time this was asked: what gave them out did not happen
    /// after all.
    fn take_void(&self) -> Vec<String> {
        Vec::new()
    }

    /// How many rows of an instance are in the queues.
    fn rows_left(&self, instance: &str) -> usize;

    /// The instances that are locked, and those whose lock ran out unreleased.
    fn locked_instances(&self) -> Vec<String>;

    /// What is wrong with the store itself, whatever is stored in it.
    fn flaws(&self) -> Vec<String> {
        Vec::new()
    }

    /// Where it is, as errors tell it, if that is another place every time.
    fn place(&self) -> Option<String> {
        None
    }

    /// How many turns were begun and committed in one batch, if it can tell.
    fn turns_in_one_batch(&self) -> u64 {
        0
    }

    /// Lets a fault of the store or its disk begin.
    fn strike(&self, _fault: Fault, _chance: &mut SeededRandom) {}

    /// A tenth of a second has passed. Tells which faults took effect meanwhile, and how.
    fn tick(&self, _chance: &mut SeededRandom) -> Vec<(Fault, String)> {
        Vec::new()
    }

    /// Every fault of the disk is over.
    fn heal(&self) {}

    /// Returns when the power has failed.
    async fn outage(&self) {
        std::future::pending().await
    }

    /// The power is back, everybody is dead, and nobody has opened the store yet.
    fn restart(&self) {}
}

/// A store as one process has it open.
#[async_trait]
pub trait Opened: Send + Sync {
    /// The provider.
    fn provider(&self) -> Arc<dyn Provider>;

    /// The process ends in order.
    async fn close(&self);

    /// The process is dead: nothing more happens of what it was about to do.
    async fn kill(&self);
}

/// What is true of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
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
    /// It is void: it was never stored, or somebody else has it by now.
    Void,
}
