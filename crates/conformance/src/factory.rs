//! What a provider must offer to be tested.

use std::sync::Arc;

use async_trait::async_trait;
use everturn_provider::{Clock, ManualClock, Provider};

/// What of a worker-queue row is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerRowDamage {
    /// The stored work item cannot be decoded; the columns that identify it are intact.
    Item,
    /// Neither can be read: the activity belongs to no known instance.
    ItemAndIdentity,
}

/// Opens one store, moves its clock, damages it, and shows what no verb returns.
#[async_trait]
pub trait ProviderFactory: Send + Sync {
    /// The clock of the provider.
    fn clock(&self) -> Arc<ManualClock>;

    /// Opens the store for the first time: it is empty.
    async fn open(&self) -> Arc<dyn Provider>;

    /// Opens an empty store that goes by this clock, which follows tokio's time. The store must do everything on the calling
    /// thread: time is paused, so that it moves only while every task waits. `None` if the store needs other threads.
    async fn open_on_tokio_time(&self, _clock: Arc<dyn Clock>) -> Option<Arc<dyn Provider>> {
        None
    }

    /// Closes the provider and opens its store again; `None` if the store does not outlive its provider.
    async fn reopen(&self, _provider: Arc<dyn Provider>) -> Option<Arc<dyn Provider>> {
        None
    }

    /// Makes a stored event undecodable.
    async fn damage_event(
        &self,
        provider: &Arc<dyn Provider>,
        instance: &str,
        execution_id: u64,
        event_id: u64,
    );

    /// How often each message that waits for an instance was fetched, oldest first; `None` if only the
    /// provider can see its rows.
    async fn message_attempts(&self, provider: &Arc<dyn Provider>, instance: &str) -> Option<Vec<u32>>;

    /// Makes every orchestrator-queue row of an instance undecodable; `false` if that cannot be done.
    async fn damage_orchestrator_rows(&self, _provider: &Arc<dyn Provider>, _instance: &str) -> bool {
        false
    }

    /// Makes every worker-queue row of an instance undecodable; `false` if that cannot be done.
    async fn damage_worker_rows(
        &self,
        _provider: &Arc<dyn Provider>,
        _instance: &str,
        _damage: WorkerRowDamage,
    ) -> bool {
        false
    }

    /// Waits until the outcome of every dropped call is decided. By default a write that changes nothing: most
    /// stores answer it after all earlier ones.
    async fn settle(&self, provider: &Arc<dyn Provider>) {
        let admin = provider.as_management_capability().expect("the provider has a management side");
        admin.delete_instances_atomic(&[], false).await.expect("nothing is deleted");
    }

    /// Whether a fetch waits for work. A store that cannot wait returns at once; its callers pause between fetches.
    fn fetch_waits(&self) -> bool {
        true
    }
}
