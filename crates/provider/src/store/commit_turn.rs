//! Request of [`Store::commit_turn`](super::Store::commit_turn).

use std::fmt;
use std::sync::Arc;

use everturn_core::{Event, ExecutionStatus};
use semver::Version;

use super::messages::{NewMessage, NewWork};
use super::warm::Stamp;
use crate::error::ProviderError;
use crate::types::{ExecutionMetadata, ScheduledActivityIdentifier};

/// Called once a commit is durable, before any caller gets an answer: puts the instance back into memory, and cancels
/// activities of this process that the turn no longer wants. It is quick, may be called on any thread, and changes
/// nothing when it is called again.
pub type CheckIn = Arc<dyn Fn() + Send + Sync>;

/// Everything a turn decided.
#[derive(Clone)]
#[non_exhaustive]
pub struct TurnCommit {
    /// The right to commit.
    pub lock_token: String,
    /// The execution the turn belongs to.
    pub execution_id: u64,
    /// New events.
    pub history_delta: Vec<Event>,
    /// Activities to run.
    pub worker_items: Vec<NewWork>,
    /// Messages to instances.
    pub orchestrator_items: Vec<NewMessage>,
    /// What changed about the execution as a whole.
    pub update: ExecutionUpdate,
    /// Activities that the turn no longer wants.
    pub cancelled_activities: Vec<ScheduledActivityIdentifier>,
    /// The stamp this turn was built on. If set and no longer the stored one, the commit is refused with
    /// [`ProviderError::history_moved`](crate::ProviderError::history_moved).
    pub base: Option<Stamp>,
    /// The stamp to leave on the execution; without one the store draws its own.
    pub stamp: Option<Stamp>,
    /// Called after the commit and before any answer by a store that keeps stamps; other stores ignore it.
    pub check_in: Option<CheckIn>,
}

impl TurnCommit {
    /// A turn that decided nothing yet.
    pub fn new(lock_token: impl Into<String>, execution_id: u64) -> Self {
        Self {
            lock_token: lock_token.into(),
            execution_id,
            history_delta: Vec::new(),
            worker_items: Vec::new(),
            orchestrator_items: Vec::new(),
            update: ExecutionUpdate::default(),
            cancelled_activities: Vec::new(),
            base: None,
            stamp: None,
            check_in: None,
        }
    }
}

impl fmt::Debug for TurnCommit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TurnCommit")
            .field("lock_token", &self.lock_token)
            .field("execution_id", &self.execution_id)
            .field("history_delta", &self.history_delta)
            .field("worker_items", &self.worker_items)
            .field("orchestrator_items", &self.orchestrator_items)
            .field("update", &self.update)
            .field("cancelled_activities", &self.cancelled_activities)
            .field("base", &self.base)
            .field("stamp", &self.stamp)
            .finish_non_exhaustive()
    }
}

/// What a commit changes about the execution as a whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExecutionUpdate {
    /// New status, if it changed.
    pub status: Option<ExecutionStatus>,
    /// Output that goes with it.
    pub output: Option<String>,
    /// Registered name of the orchestration.
    pub orchestration_name: Option<String>,
    /// Version of the handler.
    pub orchestration_version: Option<String>,
    /// The parent of a child instance.
    pub parent_instance_id: Option<String>,
    /// The engine version that this execution is pinned to.
    pub pinned_engine_version: Option<Version>,
}

/// The plain contract tells the status by its name.
impl From<ExecutionUpdate> for ExecutionMetadata {
    fn from(update: ExecutionUpdate) -> Self {
        Self {
            status: update.status.map(|status| status.as_str().to_owned()),
            output: update.output,
            orchestration_name: update.orchestration_name,
            orchestration_version: update.orchestration_version,
            parent_instance_id: update.parent_instance_id,
            pinned_engine_version: update.pinned_engine_version,
        }
    }
}

/// Fails if the status is not one that executions can have.
impl TryFrom<ExecutionMetadata> for ExecutionUpdate {
    type Error = ProviderError;

    fn try_from(metadata: ExecutionMetadata) -> Result<Self, ProviderError> {
        let status = match metadata.status {
            Some(name) => Some(ExecutionStatus::from_name(&name).ok_or_else(|| {
                ProviderError::permanent("commit_turn", format!("'{name}' is no status of an execution"))
            })?),
            None => None,
        };
        Ok(Self {
            status,
            output: metadata.output,
            orchestration_name: metadata.orchestration_name,
            orchestration_version: metadata.orchestration_version,
            parent_instance_id: metadata.parent_instance_id,
            pinned_engine_version: metadata.pinned_engine_version,
        })
    }
}
