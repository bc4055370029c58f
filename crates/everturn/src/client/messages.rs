//! External events, queue messages and cancellation.

use everturn_core::WorkItem;
use serde::Serialize;

use super::{Client, ClientError, encode};

impl Client {
    /// Raises an external event for an instance. It is dropped if the instance does not wait for it when it arrives.
    ///
    /// After an error the event may still arrive, so a repeated call can raise it twice.
    ///
    /// # Errors
    /// [`ClientError::InvalidInput`] if the data is too large, [`ClientError::Provider`] if the store failed.
    ///
    /// ```
    /// # async fn example(client: everturn::Client) -> Result<(), everturn::ClientError> {
    /// client.raise_event("order-42", "Approved", "the manager").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn raise_event(
        &self,
        instance: impl Into<String>,
        event_name: impl Into<String>,
        data: impl Into<String>,
    ) -> Result<(), ClientError> {
        let data = data.into();
        self.check_payload(&data)?;
        self.submit(WorkItem::ExternalRaised { instance: instance.into(), name: event_name.into(), data })
            .await
    }

    /// [`raise_event`](Self::raise_event) with typed data.
    ///
    /// # Errors
    /// As [`raise_event`](Self::raise_event); [`ClientError::InvalidInput`] if the data cannot be encoded.
    pub async fn raise_event_typed<T: Serialize>(
        &self,
        instance: impl Into<String>,
        event_name: impl Into<String>,
        data: &T,
    ) -> Result<(), ClientError> {
        self.raise_event(instance, event_name, encode(data)?).await
    }

    /// Adds a message to one of an instance's queues, where it stays until it is read.
    ///
    /// # Errors
    /// [`ClientError::InvalidInput`] if the data is too large, [`ClientError::Provider`] if the store failed.
    ///
    /// ```
    /// # async fn example(client: everturn::Client) -> Result<(), everturn::ClientError> {
    /// // Read one by one with `ctx.dequeue_event("commands")`, in this order.
    /// client.enqueue_event("cart-7", "commands", "book").await?;
    /// client.enqueue_event("cart-7", "commands", "checkout").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn enqueue_event(
        &self,
        instance: impl Into<String>,
        queue: impl Into<String>,
        data: impl Into<String>,
    ) -> Result<(), ClientError> {
        let data = data.into();
        self.check_payload(&data)?;
        self.submit(WorkItem::QueueMessage { instance: instance.into(), name: queue.into(), data }).await
    }

    /// [`enqueue_event`](Self::enqueue_event) with typed data.
    ///
    /// # Errors
    /// As [`enqueue_event`](Self::enqueue_event); [`ClientError::InvalidInput`] if the data cannot be encoded.
    pub async fn enqueue_event_typed<T: Serialize>(
        &self,
        instance: impl Into<String>,
        queue: impl Into<String>,
        data: &T,
    ) -> Result<(), ClientError> {
        self.enqueue_event(instance, queue, encode(data)?).await
    }

    /// The former name of [`enqueue_event`](Self::enqueue_event).
    ///
    /// # Errors
    /// As [`enqueue_event`](Self::enqueue_event).
    #[deprecated(note = "use enqueue_event")]
    pub async fn raise_event_persistent(
        &self,
        instance: impl Into<String>,
        event_name: impl Into<String>,
        data: impl Into<String>,
    ) -> Result<(), ClientError> {
        self.enqueue_event(instance, event_name, data).await
    }

    /// Cancels an instance and its running children. It fails with the text `canceled: {reason}`. An instance that is
    /// unknown or has ended does not change.
    ///
    /// # Errors
    /// [`ClientError::InvalidInput`] if the reason is too large, [`ClientError::Provider`] if the store failed.
    ///
    /// ```
    /// # async fn example(client: everturn::Client) -> Result<(), everturn::ClientError> {
    /// client.cancel_instance("order-42", "the customer cancelled the order").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn cancel_instance(
        &self,
        instance: impl Into<String>,
        reason: impl Into<String>,
    ) -> Result<(), ClientError> {
        let reason = reason.into();
        self.check_payload(&reason)?;
        self.submit(WorkItem::CancelInstance { instance: instance.into(), reason }).await
    }
}
