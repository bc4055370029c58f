//! Turns for a runtime that keeps instances in memory between them.
//!
//! A commit stamps the execution with a random value. An instance in memory is *warm* if its stamp is still the stored
//! one: then nothing else has touched it, and its history need not be read.

use std::fmt;

use everturn_core::{Event, WorkItem};

pub use crate::store::{CheckIn, LentInstance, Stamp, WarmView};
use crate::types::{ExecutionMetadata, OrchestrationItem, ScheduledActivityIdentifier};

/// An instance handed to a dispatcher by [`fetch_turn`](crate::Provider::fetch_turn).
#[derive(Debug)]
pub struct FetchedTurn {
    /// The instance and its messages. If `warm` is set, `history` and `kv_snapshot` are empty: memory has them.
    pub item: OrchestrationItem,
    /// The right to commit this turn.
    pub lock_token: String,
    /// How often the most fetched of the messages was fetched.
    pub attempt_count: u32,
    /// The instance as the runtime kept it.
    pub warm: Option<LentInstance>,
    /// The stamp the execution bears, for [`TurnCommit::base`]; `None` if the provider keeps none or there is no
    /// execution yet.
    pub stamp: Option<Stamp>,
}

/// Everything a turn decided, for [`commit_turn`](crate::Provider::commit_turn).
#[derive(Clone)]
pub struct TurnCommit {
    /// The right to commit.
    pub lock_token: String,
    /// The execution the turn belongs to.
    pub execution_id: u64,
    /// New events.
    pub history_delta: Vec<Event>,
    /// Activities to run.
    pub worker_items: Vec<WorkItem>,
    /// Messages to instances.
    pub orchestrator_items: Vec<WorkItem>,
    /// What changed about the execution as a whole.
    pub metadata: ExecutionMetadata,
    /// Activities no longer wanted.
    pub cancelled_activities: Vec<ScheduledActivityIdentifier>,
    /// The stamp this turn was built on. If set and no longer the stored one, the commit is refused with
    /// [`ProviderError::history_moved`](crate::ProviderError::history_moved).
    pub base: Option<Stamp>,
    /// The stamp to leave on the execution.
    pub stamp: Stamp,
    /// Called after the commit and before any answer, if the provider keeps stamps. Not called otherwise.
    pub check_in: Option<CheckIn>,
}

impl fmt::Debug for TurnCommit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TurnCommit")
            .field("lock_token", &self.lock_token)
            .field("execution_id", &self.execution_id)
            .field("history_delta", &self.history_delta)
            .field("worker_items", &self.worker_items)
            .field("orchestrator_items", &self.orchestrator_items)
            .field("metadata", &self.metadata)
            .field("cancelled_activities", &self.cancelled_activities)
            .field("base", &self.base)
            .field("stamp", &self.stamp)
            .finish_non_exhaustive()
    }
}
