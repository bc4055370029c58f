//! Looking at instances as a whole, and removing them.

use std::any::Any;

use async_trait::async_trait;
use everturn_core::Event;

use crate::error::ProviderError;

/// What is known about an instance.
#[derive(Debug, Clone)]
pub struct InstanceInfo {
    /// The instance.
    pub instance_id: String,
    /// Registered name of the orchestration.
    pub orchestration_name: String,
    /// Version of the handler.
    pub orchestration_version: String,
    /// The current execution.
    pub current_execution_id: u64,
    /// Status of the current execution.
    pub status: String,
    /// Its output, error text or next input.
    pub output: Option<String>,
    /// When the instance was created, in milliseconds since the epoch.
    pub created_at: u64,
    /// When it last changed.
    pub updated_at: u64,
    /// Its parent, for a child.
    pub parent_instance_id: Option<String>,
}

/// What is known about an execution.
#[derive(Debug, Clone)]
pub struct ExecutionInfo {
    /// The execution.
    pub execution_id: u64,
    /// Its status.
    pub status: String,
    /// Its output, error text or next input.
    pub output: Option<String>,
    /// When it began, in milliseconds since the epoch.
    pub started_at: u64,
    /// When it ended.
    pub completed_at: Option<u64>,
    /// How many events it has.
    pub event_count: usize,
}

/// Totals of the whole store.
#[derive(Debug, Clone, Default)]
pub struct SystemMetrics {
    /// All instances.
    pub total_instances: u64,
    /// All executions.
    pub total_executions: u64,
    /// Instances under way.
    pub running_instances: u64,
    /// Instances that completed.
    pub completed_instances: u64,
    /// Instances that failed.
    pub failed_instances: u64,
    /// All events.
    pub total_events: u64,
}

/// How much work waits, not counting what is locked.
#[derive(Debug, Clone, Default)]
pub struct QueueDepths {
    /// Messages for instances. A timer counts, but not if it is not due and its execution has ended.
    pub orchestrator_queue: usize,
    /// Activities to run.
    pub worker_queue: usize,
    /// Always 0: timers are delayed messages of the orchestrator queue.
    pub timer_queue: usize,
}

/// Which instances a bulk operation is about; what is set must all hold.
#[derive(Debug, Clone, Default)]
pub struct InstanceFilter {
    /// Only these; an empty list means none.
    pub instance_ids: Option<Vec<String>>,
    /// Only those that ended before this moment, in milliseconds since the epoch.
    pub completed_before: Option<u64>,
    /// At most so many; 1000 if not set.
    pub limit: Option<u32>,
}

/// Which old executions to remove; what is set must all hold.
#[derive(Debug, Clone, Default)]
pub struct PruneOptions {
    /// Keep so many of the newest executions; the current one always stays.
    pub keep_last: Option<u32>,
    /// Only those that ended before this moment, in milliseconds since the epoch.
    pub completed_before: Option<u64>,
}

/// What a deletion removed.
#[derive(Debug, Clone, Default)]
pub struct DeleteInstanceResult {
    /// Instances, children included.
    pub instances_deleted: u64,
    /// Their executions.
    pub executions_deleted: u64,
    /// Their events.
    pub events_deleted: u64,
    /// Their rows in both queues.
    pub queue_messages_deleted: u64,
}

/// What pruning removed.
#[derive(Debug, Clone, Default)]
pub struct PruneResult {
    /// Instances looked at.
    pub instances_processed: u64,
    /// Executions removed.
    pub executions_deleted: u64,
    /// Their events.
    pub events_deleted: u64,
}

/// A row of a queue that was taken out of it and kept: a message whose instance was never started, or a damaged activity.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadLetterRecord {
    /// Names it; later ones have greater keys.
    pub key: u64,
    /// When it was dead-lettered, in milliseconds since the epoch.
    pub dead_lettered_at: u64,
    /// Why.
    pub reason: String,
    /// The instance that it names, if it names one.
    pub instance_id: Option<String>,
    /// The execution of an activity, if that is known.
    pub execution_id: Option<u64>,
    /// The event that scheduled an activity, if that is known.
    pub activity_id: Option<u64>,
    /// The message or activity as it was stored. It need not be valid JSON.
    pub work_item: Option<String>,
}

impl DeadLetterRecord {
    /// A dead letter of which only the reason is known.
    pub fn new(key: u64, dead_lettered_at: u64, reason: impl Into<String>) -> Self {
        Self {
            key,
            dead_lettered_at,
            reason: reason.into(),
            instance_id: None,
            execution_id: None,
            activity_id: None,
            work_item: None,
        }
    }
}

/// Which dead letters [`ProviderAdmin::delete_dead_letters`] removes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeadLetterSelection {
    /// Those with these keys.
    Keys(Vec<u64>),
    /// Those that were dead-lettered before this time, in milliseconds since the epoch.
    OlderThan(u64),
}

/// An instance and all its descendants.
#[derive(Debug, Clone)]
pub struct InstanceTree {
    /// The root.
    pub root_id: String,
    /// All of them, the root first.
    pub all_ids: Vec<String>,
}

impl InstanceTree {
    /// Whether the root has no children.
    pub fn is_root_only(&self) -> bool {
        self.all_ids.len() == 1
    }

    /// How many instances the tree has.
    pub fn size(&self) -> usize {
        self.all_ids.len()
    }
}

/// Listing, inspecting and removing instances.
#[async_trait]
pub trait ProviderAdmin: Any + Send + Sync {
    /// All instances, newest first; equal times by id.
    async fn list_instances(&self) -> Result<Vec<String>, ProviderError>;

    /// The instances whose current execution has this status, newest first.
    async fn list_instances_by_status(&self, status: &str) -> Result<Vec<String>, ProviderError>;

    /// The executions of an instance, ascending; empty for an unknown one.
    async fn list_executions(&self, instance: &str) -> Result<Vec<u64>, ProviderError>;

    /// The events of one execution.
    async fn read_history_with_execution_id(
        &self,
        instance: &str,
        execution_id: u64,
    ) -> Result<Vec<Event>, ProviderError>;

    /// The events of the latest execution.
    async fn read_history(&self, instance: &str) -> Result<Vec<Event>, ProviderError>;

    /// The latest execution; 1 for an unknown instance.
    async fn latest_execution_id(&self, instance: &str) -> Result<u64, ProviderError>;

    /// What is known about an instance; an error that says `not found` for an unknown one.
    async fn get_instance_info(&self, instance: &str) -> Result<InstanceInfo, ProviderError>;

    /// What is known about an execution; an error that says `not found` for an unknown one.
    async fn get_execution_info(
        &self,
        instance: &str,
        execution_id: u64,
    ) -> Result<ExecutionInfo, ProviderError>;

    /// Totals of the whole store.
    async fn get_system_metrics(&self) -> Result<SystemMetrics, ProviderError>;

    /// How much work waits.
    async fn get_queue_depths(&self) -> Result<QueueDepths, ProviderError>;

    /// Dead letters with a key above `after`, in the order of their keys, at most `limit`. The last key of a page is the
    /// `after` of the next.
    ///
    /// Fails with an error that is [unsupported](ProviderError::is_unsupported) if the store shows none.
    async fn read_dead_letters(
        &self,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<DeadLetterRecord>, ProviderError> {
        let message = format!("this store shows no dead letters (asked for {limit} after {after:?})");
        Err(ProviderError::unsupported("read_dead_letters", message))
    }

    /// Removes dead letters for good. Returns how many there were. After an error some may be gone.
    ///
    /// ```
    /// use everturn_provider::management::DeadLetterSelection;
    /// use everturn_provider::{ProviderAdmin, ProviderError};
    ///
    /// async fn delete_read_letters(admin: &dyn ProviderAdmin) -> Result<u64, ProviderError> {
    ///     let (mut after, mut deleted) = (None, 0);
    ///     loop {
    ///         let page = admin.read_dead_letters(after, 100).await?;
    ///         let Some(last) = page.last() else { return Ok(deleted) };
    ///         after = Some(last.key);
    ///         for letter in &page {
    ///             println!("{}: {}", letter.key, letter.reason);
    ///         }
    ///         let keys = page.iter().map(|letter| letter.key).collect();
    ///         deleted += admin.delete_dead_letters(DeadLetterSelection::Keys(keys)).await?;
    ///     }
    /// }
    /// ```
    ///
    /// Fails with an error that is [unsupported](ProviderError::is_unsupported) if the store shows none.
    async fn delete_dead_letters(&self, which: DeadLetterSelection) -> Result<u64, ProviderError> {
        let message = format!("this store shows no dead letters (asked to delete {which:?})");
        Err(ProviderError::unsupported("delete_dead_letters", message))
    }

    /// The direct children of an instance, by id.
    async fn list_children(&self, instance_id: &str) -> Result<Vec<String>, ProviderError>;

    /// The parent of an instance; `None` for a root, an error for an unknown instance.
    async fn get_parent_id(&self, instance_id: &str) -> Result<Option<String>, ProviderError>;

    /// Removes these instances and everything of theirs, all or none.
    ///
    /// Without `force` a running one is an error that says `still running`; a child outside the list is an error.
    async fn delete_instances_atomic(
        &self,
        ids: &[String],
        force: bool,
    ) -> Result<DeleteInstanceResult, ProviderError>;

    /// An instance and all its descendants, the root first.
    async fn get_instance_tree(&self, instance_id: &str) -> Result<InstanceTree, ProviderError> {
        let mut all_ids = vec![instance_id.to_owned()];
        let mut next = 0;
        while let Some(parent) = all_ids.get(next).cloned() {
            let children = self.list_children(&parent).await?;
            // A damaged record can make a circle of a tree.
            let new: Vec<String> = children.into_iter().filter(|child| !all_ids.contains(child)).collect();
            all_ids.extend(new);
            next += 1;
        }
        Ok(InstanceTree { root_id: instance_id.to_owned(), all_ids })
    }

    /// Removes a root and all its descendants.
    ///
    /// An unknown instance is an error that says `not found`, a child one that says `sub-orchestration`.
    async fn delete_instance(
        &self,
        instance_id: &str,
        force: bool,
    ) -> Result<DeleteInstanceResult, ProviderError> {
        if let Some(parent) = self.get_parent_id(instance_id).await? {
            return Err(ProviderError::sub_orchestration(
                "delete_instance",
                format!("{instance_id} is a sub-orchestration of {parent}, delete the root instead"),
            ));
        }
        let tree = self.get_instance_tree(instance_id).await?;
        self.delete_instances_atomic(&tree.all_ids, force).await
    }

    /// Removes the ended roots that match, with their descendants; running ones and children are passed over.
    ///
    /// Each root goes with all its descendants, or not at all. Not all of them go together: after an error, or if the future
    /// is dropped, some may be gone.
    async fn delete_instance_bulk(
        &self,
        filter: InstanceFilter,
    ) -> Result<DeleteInstanceResult, ProviderError>;

    /// Removes old executions of an instance; the current one and running ones stay. Many executions need not go together:
    /// after an error, or if the future is dropped, some may be gone.
    async fn prune_executions(
        &self,
        instance_id: &str,
        options: PruneOptions,
    ) -> Result<PruneResult, ProviderError>;

    /// Removes old executions of every instance that matches.
    async fn prune_executions_bulk(
        &self,
        filter: InstanceFilter,
        options: PruneOptions,
    ) -> Result<PruneResult, ProviderError>;
}
