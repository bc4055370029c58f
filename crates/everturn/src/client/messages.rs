//! External events, queue messages and cancellation.

use everturn_core::{WorkItem, check_instance_id, check_name};
use everturn_provider::store::Receipt;
use serde::Serialize;

use super::{Client, ClientError, encode, refused};

impl Client {
    /// Raises an external event for an instance. It is dropped if the instance does not wait for it when it arrives.
    ///
    /// After an error the event may still arrive, so a repeated call can raise it twice.
    ///
    /// # Errors
    /// [`ClientError::InvalidInput`] if the id or the name is empty, longer than 1 KiB or contains a control character, or
    /// the data is too large. [`ClientError::Provider`] if the store failed.
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
        let (instance, name, data): (String, String, String) =
            (instance.into(), event_name.into(), data.into());
        check_instance_id(&instance).map_err(refused)?;
        check_name("event name", &name).map_err(refused)?;
        self.check_payload(format_args!("data of raise_event {name} for {instance}"), &data)?;
        self.submit(WorkItem::ExternalRaised { instance, name, data }).await.map(|_| ())
    }

    /// [`raise_event`](Self::raise_event) with typed data. A string is sent as it is: [`codec`](crate::codec) says which
    /// strings are read as another value.
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
    /// [`ClientError::InvalidInput`] if the id or the name is empty, longer than 1 KiB or contains a control character, or
    /// the data is too large. [`ClientError::Provider`] if the store failed.
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
        let (instance, name, data): (String, String, String) = (instance.into(), queue.into(), data.into());
        check_instance_id(&instance).map_err(refused)?;
        check_name("queue name", &name).map_err(refused)?;
        self.check_payload(format_args!("data of enqueue_event {name} for {instance}"), &data)?;
        self.submit(WorkItem::QueueMessage { instance, name, data }).await.map(|_| ())
    }

    /// [`enqueue_event`](Self::enqueue_event) with typed data. A string is sent as it is: [`codec`](crate::codec) says which
    /// strings are read as another value.
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

    /// Cancels an instance and its running children. It fails with the text `canceled: {reason}`. An instance that has ended
    /// does not change. If there is no such instance and no start of it is queued, the call has no effect, also on an
    /// instance that gets this id later.
    ///
    /// # Errors
    /// [`ClientError::InvalidInput`] if the id is empty, longer than 1 KiB or contains a control character, or the reason
    /// is too large. [`ClientError::Provider`] if the store failed.
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
        self.cancel_instance_with_receipt(instance, reason).await.map(|_| ())
    }

    /// [`cancel_instance`](Self::cancel_instance) that also says whether there is such an instance: [`Receipt::Queued`], or
    /// [`Receipt::Dropped`] if no instance has this id and no start of it is queued. A store without
    /// [`Feature::StartReceipts`](crate::providers::store::Feature::StartReceipts) answers [`Receipt::Queued`] in both
    /// cases.
    ///
    /// # Errors
    /// As [`cancel_instance`](Self::cancel_instance).
    ///
    /// ```
    /// # async fn example(client: everturn::Client) -> Result<(), everturn::ClientError> {
    /// use everturn::Receipt;
    ///
    /// if client.cancel_instance_with_receipt("order-42", "too late").await? == Receipt::Dropped {
    ///     println!("there is no order-42");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn cancel_instance_with_receipt(
        &self,
        instance: impl Into<String>,
        reason: impl Into<String>,
    ) -> Result<Receipt, ClientError> {
        let (instance, reason): (String, String) = (instance.into(), reason.into());
        check_instance_id(&instance).map_err(refused)?;
        self.check_payload(format_args!("reason of cancel_instance for {instance}"), &reason)?;
        self.submit(WorkItem::CancelInstance { instance, reason }).await
    }
}
