//! Writes that bypass the engine.

use async_trait::async_trait;
use everturn_core::{Event, WorkItem};

use crate::error::ProviderError;

/// Writes that bypass the engine: the plain contract has them for tests and tools.
#[async_trait]
pub trait RawWrites: Send + Sync {
    /// Appends events to an execution and changes nothing else.
    async fn append_events(
        &self,
        instance: &str,
        execution_id: u64,
        new_events: Vec<Event>,
    ) -> Result<(), ProviderError>;

    /// Puts an activity into the worker queue.
    async fn enqueue_work(&self, item: WorkItem) -> Result<(), ProviderError>;
}
