//! Turns for a runtime that keeps instances in memory between them.
//!
//! A commit stamps the execution with a random value. An instance in memory is *warm* if its stamp is still the stored
//! one: then nothing else has touched it, and its history need not be read.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use everturn_core::{Event, WorkItem};

use crate::types::{ExecutionMetadata, OrchestrationItem, ScheduledActivityIdentifier};

/// The random value a commit leaves on its execution: the identity of that state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stamp(pub u64);

/// A runtime's view of what it keeps in memory, asked by the provider at the moment it assigns an instance.
pub trait WarmView: Send + Sync {
    /// Takes the instance out of memory for one turn, if it is held at exactly this execution and stamp.
    ///
    /// A copy that is held at any other state is stale and is dropped. Never blocks: it may be asked on a thread that
    /// everybody waits for.
    fn lend(&self, instance: &str, execution_id: u64, stamp: Stamp) -> Option<LentInstance>;
}

/// An instance on loan from a [`WarmView`]. Dropping it before it is taken gives it back, as it was.
pub struct LentInstance(Box<dyn Any + Send>);

impl LentInstance {
    /// Wraps whatever the runtime keeps; its `Drop` must give the instance back.
    pub fn new(entry: impl Any + Send) -> Self {
        Self(Box::new(entry))
    }

    /// Takes out what [`LentInstance::new`] wrapped, or `None` if that was another type.
    pub fn take<T: Any + Send>(self) -> Option<T> {
        self.0.downcast().ok().map(|entry| *entry)
    }
}

impl fmt::Debug for LentInstance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LentInstance")
    }
}

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

/// Called once a commit is durable, before anybody is told of it: puts the instance back into memory, and tells
/// activities of this process that they are no longer wanted. It is quick and may be called on any thread; calling it
/// again changes nothing.
pub type CheckIn = Arc<dyn Fn() + Send + Sync>;

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
