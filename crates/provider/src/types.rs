//! What travels between the runtime and a provider.

use std::collections::HashMap;
use std::time::Duration;

use everturn_core::{Event, KvEntry, SemverRange, WorkItem};
use semver::Version;

/// An instance handed to a dispatcher: its history and the messages that wait for it.
#[derive(Debug, Clone)]
pub struct OrchestrationItem {
    /// The instance.
    pub instance: String,
    /// Registered name of the orchestration.
    pub orchestration_name: String,
    /// The current execution.
    pub execution_id: u64,
    /// Version of the handler.
    pub version: String,
    /// The current execution's events, ordered by id.
    pub history: Vec<Event>,
    /// The messages this fetch locked, in the order of their arrival.
    pub messages: Vec<WorkItem>,
    /// Set if the history or a message could not be read; `history` is empty then.
    pub history_error: Option<String>,
    /// Key-value store as completed executions left it.
    pub kv_snapshot: HashMap<String, KvEntry>,
}

/// What an ack says about the execution as a whole.
#[derive(Debug, Clone, Default)]
pub struct ExecutionMetadata {
    /// New status, if it changed: `Completed`, `Failed` or `ContinuedAsNew`.
    pub status: Option<String>,
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

/// Names one scheduled activity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduledActivityIdentifier {
    /// The instance that asked for it.
    pub instance: String,
    /// Its execution.
    pub execution_id: u64,
    /// Its schedule event.
    pub activity_id: u64,
}

/// Lets a worker fetch activities that are bound to sessions.
#[derive(Debug, Clone)]
pub struct SessionFetchConfig {
    /// Who claims the session.
    pub owner_id: String,
    /// How long a claim lasts without renewal.
    pub lock_timeout: Duration,
}

/// Which executions a dispatcher can replay.
#[derive(Debug, Clone)]
pub struct DispatcherCapabilityFilter {
    /// The supported versions. Only the first range counts; an empty list matches nothing.
    pub supported_engine_versions: Vec<SemverRange>,
}

impl DispatcherCapabilityFilter {
    /// Whether an execution pinned to `version` can be replayed.
    ///
    /// ```
    /// use everturn_provider::DispatcherCapabilityFilter;
    /// use semver::Version;
    ///
    /// let filter = DispatcherCapabilityFilter::default_for_current_build();
    /// assert!(filter.is_compatible(&Version::new(0, 0, 1)));
    /// ```
    pub fn is_compatible(&self, version: &Version) -> bool {
        self.supported_engine_versions.first().is_some_and(|range| range.contains(version))
    }

    /// Everything up to this build.
    pub fn default_for_current_build() -> Self {
        Self { supported_engine_versions: vec![SemverRange::default_for_current_build()] }
    }
}
