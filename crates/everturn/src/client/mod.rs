//! Starting, signalling and querying orchestrations.

use std::fmt;
use std::sync::Arc;

use everturn_core::{WorkItem, codec, limits};
use everturn_provider::store::{Receipt, Store, Submission};
use everturn_provider::{Provider, store_of};
use serde::Serialize;

mod error;
mod kv;
mod management;
mod messages;
mod start;
mod status;
mod wait;

pub use error::ClientError;

/// Starts orchestrations, sends them events and reads their status and results. It needs the store only, so it also works
/// in processes without a runtime. Cheap to clone.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use everturn::{Client, ClientError, OrchestrationStatus};
/// use everturn::providers::Provider;
///
/// async fn order(store: Arc<dyn Provider>) -> Result<OrchestrationStatus, ClientError> {
///     let client = Client::new(store);
///     client.start_orchestration("order-42", "process_order", "2 books").await?;
///     client.raise_event("order-42", "paid", "19.90").await?;
///     client.wait_for_orchestration("order-42", Duration::from_secs(30)).await
/// }
/// ```
#[derive(Clone)]
pub struct Client {
    store: Arc<dyn Store>,
}

impl Client {
    /// A client on this store.
    pub fn new(store: Arc<dyn Provider>) -> Self {
        Self::of_store(store_of(store))
    }

    pub(crate) fn of_store(store: Arc<dyn Store>) -> Self {
        Self { store }
    }

    /// Puts a message into the orchestrator queue.
    async fn submit(&self, item: WorkItem) -> Result<Receipt, ClientError> {
        let receipts = self.store.submit(&Submission::of(item)).await?;
        // A store that returns no receipt has accepted the message all the same.
        Ok(receipts.first().copied().unwrap_or(Receipt::Queued))
    }

    /// Fails if a payload is larger than the store's limit. `what` says which payload of which call.
    fn check_payload(&self, what: fmt::Arguments<'_>, payload: &str) -> Result<(), ClientError> {
        let max = self.store.limits().payload_bytes_max;
        if payload.len() > max {
            let message = limits::payload_too_large(what, payload.len(), max);
            return Err(ClientError::InvalidInput { message });
        }
        Ok(())
    }
}

/// A refused id or name, before anything is sent.
fn refused(message: String) -> ClientError {
    ClientError::InvalidInput { message }
}

/// The payload text of a typed value.
fn encode<T: Serialize + ?Sized>(value: &T) -> Result<String, ClientError> {
    codec::encode(value).map_err(|error| ClientError::InvalidInput { message: format!("encode: {error}") })
}
