//! The storage contract.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use everturn_core::limits::DEFAULT_PAYLOAD_BYTES_MAX;
use everturn_core::{Event, SystemStats, WorkItem};

use crate::clock::system_wall_ms;
use crate::error::ProviderError;
use crate::management::ProviderAdmin;
use crate::store::Store;
use crate::tags::TagFilter;
use crate::types::{
    DispatcherCapabilityFilter, ExecutionMetadata, OrchestrationItem, ScheduledActivityIdentifier,
    SessionFetchConfig,
};

/// The plain storage contract: storage and two queues with locks, one item at a time.
///
/// A provider never decides what an orchestration does. A simple provider implements this trait; one that can do more
/// implements [`Store`] and gets these methods from it.
///
/// Any returned future may be dropped at any await; the store is then as before the call or as after it. Work that was
/// assigned to a dropped fetch returns to its queue.
#[async_trait]
pub trait Provider: Any + Send + Sync {
    /// Name of the provider, for logs.
    fn name(&self) -> &str {
        "unknown"
    }

    /// Version of the provider, for logs.
    fn version(&self) -> &str {
        "0.0.0"
    }

    /// Locks the instance with the oldest visible message and hands out its history and all its visible messages,
    /// with the lock token and the highest attempt count. Waits up to `poll_timeout` for work.
    async fn fetch_orchestration_item(
        &self,
        lock_timeout: Duration,
        poll_timeout: Duration,
        filter: Option<&DispatcherCapabilityFilter>,
    ) -> Result<Option<(OrchestrationItem, String, u32)>, ProviderError>;

    /// Writes everything a turn decided, deletes the fetched messages and releases the lock; or changes nothing.
    ///
    /// Fails with [`ProviderError::lock_lost`] if the token is unknown or expired.
    #[expect(clippy::too_many_arguments, reason = "the shape providers already implement")]
    async fn ack_orchestration_item(
        &self,
        lock_token: &str,
        execution_id: u64,
        history_delta: Vec<Event>,
        worker_items: Vec<WorkItem>,
        orchestrator_items: Vec<WorkItem>,
        metadata: ExecutionMetadata,
        cancelled_activities: Vec<ScheduledActivityIdentifier>,
    ) -> Result<(), ProviderError>;

    /// Releases the lock; the fetched messages become visible again, now or after `delay`. `ignore_attempt` takes back
    /// the attempt that was counted.
    async fn abandon_orchestration_item(
        &self,
        lock_token: &str,
        delay: Option<Duration>,
        ignore_attempt: bool,
    ) -> Result<(), ProviderError>;

    /// The events of the latest execution; empty for an unknown instance.
    async fn read(&self, instance: &str) -> Result<Vec<Event>, ProviderError>;

    /// The events of one execution; empty for an unknown one.
    async fn read_with_execution(
        &self,
        instance: &str,
        execution_id: u64,
    ) -> Result<Vec<Event>, ProviderError>;

    /// Appends events to an execution and touches nothing else. For tests and tools.
    async fn append_with_execution(
        &self,
        instance: &str,
        execution_id: u64,
        new_events: Vec<Event>,
    ) -> Result<(), ProviderError>;

    /// Puts an activity into the worker queue.
    async fn enqueue_for_worker(&self, item: WorkItem) -> Result<(), ProviderError>;

    /// Locks the oldest activity this worker may take, with the lock token and the attempt count. Waits up to
    /// `poll_timeout` for work.
    async fn fetch_work_item(
        &self,
        lock_timeout: Duration,
        poll_timeout: Duration,
        session: Option<&SessionFetchConfig>,
        tag_filter: &TagFilter,
    ) -> Result<Option<(WorkItem, String, u32)>, ProviderError>;

    /// Deletes a fetched activity and enqueues its completion, in one transaction.
    ///
    /// Fails with [`ProviderError::lock_lost`] if the token is unknown or expired, or the row is gone; then nothing is
    /// enqueued.
    async fn ack_work_item(&self, token: &str, completion: Option<WorkItem>) -> Result<(), ProviderError>;

    /// Extends the lock of a fetched activity.
    async fn renew_work_item_lock(&self, token: &str, extend_for: Duration) -> Result<(), ProviderError>;

    /// Extends the leases of these owners' live sessions that were active within `idle_timeout`; returns how many.
    async fn renew_session_lock(
        &self,
        owner_ids: &[&str],
        extend_for: Duration,
        idle_timeout: Duration,
    ) -> Result<usize, ProviderError>;

    /// Removes expired sessions without queued activities; returns how many.
    async fn cleanup_orphaned_sessions(&self, idle_timeout: Duration) -> Result<usize, ProviderError>;

    /// Gives a fetched activity back, now or after `delay`. `ignore_attempt` takes back the attempt that was counted.
    async fn abandon_work_item(
        &self,
        token: &str,
        delay: Option<Duration>,
        ignore_attempt: bool,
    ) -> Result<(), ProviderError>;

    /// Extends the lock of a fetched instance.
    async fn renew_orchestration_item_lock(
        &self,
        token: &str,
        extend_for: Duration,
    ) -> Result<(), ProviderError>;

    /// Puts a message into the orchestrator queue, visible now or after `delay`. Never creates the instance.
    async fn enqueue_for_orchestrator(
        &self,
        item: WorkItem,
        delay: Option<Duration>,
    ) -> Result<(), ProviderError>;

    /// This provider as a [`Store`], if it is one; else the engine uses the plain verbs.
    ///
    /// A wrapper returns a *wrapped* store or `None`. A wrapper that forwards this call is bypassed: the engine would talk
    /// to the wrapped provider directly.
    fn as_store(self: Arc<Self>) -> Option<Arc<dyn Store>> {
        None
    }

    /// The management side of this provider, if it has one.
    fn as_management_capability(&self) -> Option<&dyn ProviderAdmin> {
        None
    }

    /// The custom status and its version, if the version is greater than `last_seen_version`.
    async fn get_custom_status(
        &self,
        instance: &str,
        last_seen_version: u64,
    ) -> Result<Option<(Option<String>, u64)>, ProviderError>;

    /// A key of the instance's key-value store as of the last committed turn.
    async fn get_kv_value(&self, instance: &str, key: &str) -> Result<Option<String>, ProviderError>;

    /// All keys of the instance's key-value store as of the last committed turn.
    async fn get_kv_all_values(&self, instance: &str) -> Result<HashMap<String, String>, ProviderError>;

    /// Size of the instance's current execution; `None` for an unknown instance.
    async fn get_instance_stats(&self, instance: &str) -> Result<Option<SystemStats>, ProviderError>;

    /// The largest payload that client and runtime let through, in UTF-8 bytes.
    fn payload_bytes_max(&self) -> usize {
        DEFAULT_PAYLOAD_BYTES_MAX
    }

    /// The store's time in milliseconds since the epoch: visibility, lock expiry and fire times go by it.
    fn now_ms(&self) -> u64 {
        system_wall_ms()
    }
}
