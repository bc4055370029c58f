//! Starting orchestrations.

use everturn_core::{INITIAL_EXECUTION_ID, SUB_ORCH_AUTO_PREFIX, WorkItem, check_name, uses_reserved_marker};
use everturn_provider::store::Receipt;
use serde::Serialize;

use super::{Client, ClientError, encode, refused};

impl Client {
    /// Starts a new instance with the version that the registry's policy chooses. Returns when the request is durable. An
    /// instance that exists already does not change.
    ///
    /// # Errors
    /// [`ClientError::InvalidInput`] if the id or the name is empty, longer than 1 KiB or contains a control character, if
    /// the id uses the marker of child ids, or if the input is too large: then no request was sent.
    /// [`ClientError::Provider`] if the store failed.
    ///
    /// ```
    /// # async fn example(client: everturn::Client) -> Result<(), everturn::ClientError> {
    /// client.start_orchestration("order-42", "process_order", "2 books").await?;
    /// // The same id again changes nothing, so a request that timed out can be repeated.
    /// client.start_orchestration("order-42", "process_order", "2 books").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn start_orchestration(
        &self,
        instance: impl Into<String>,
        orchestration: impl Into<String>,
        input: impl Into<String>,
    ) -> Result<(), ClientError> {
        self.start(instance.into(), orchestration.into(), None, input.into()).await.map(|_| ())
    }

    /// [`start_orchestration`](Self::start_orchestration) that also says whether this call created the instance:
    /// [`Receipt::Created`], or [`Receipt::Existing`] if the id was taken, perhaps by another orchestration or with another
    /// input. A store without [`Feature::StartReceipts`](crate::providers::store::Feature::StartReceipts) answers
    /// [`Receipt::Queued`].
    ///
    /// A call that is repeated after an error may find the instance that the first call created.
    ///
    /// # Errors
    /// As [`start_orchestration`](Self::start_orchestration).
    ///
    /// ```
    /// # async fn example(client: everturn::Client) -> Result<(), everturn::ClientError> {
    /// use everturn::Receipt;
    ///
    /// let receipt = client.start_orchestration_with_receipt("order-42", "process_order", "2 books").await?;
    /// if receipt == Receipt::Existing {
    ///     println!("order-42 was placed before; it keeps its first input");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn start_orchestration_with_receipt(
        &self,
        instance: impl Into<String>,
        orchestration: impl Into<String>,
        input: impl Into<String>,
    ) -> Result<Receipt, ClientError> {
        self.start(instance.into(), orchestration.into(), None, input.into()).await
    }

    /// [`start_orchestration`](Self::start_orchestration) with exactly this version.
    ///
    /// # Errors
    /// As [`start_orchestration`](Self::start_orchestration).
    ///
    /// ```
    /// # async fn example(client: everturn::Client) -> Result<(), everturn::ClientError> {
    /// client.start_orchestration_versioned("order-42", "process_order", "2.0.0", "2 books").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn start_orchestration_versioned(
        &self,
        instance: impl Into<String>,
        orchestration: impl Into<String>,
        version: impl Into<String>,
        input: impl Into<String>,
    ) -> Result<(), ClientError> {
        self.start(instance.into(), orchestration.into(), Some(version.into()), input.into())
            .await
            .map(|_| ())
    }

    /// [`start_orchestration`](Self::start_orchestration) with a typed input. A string is sent as it is:
    /// [`codec`](crate::codec) says which strings are read as another value.
    ///
    /// # Errors
    /// As [`start_orchestration`](Self::start_orchestration); [`ClientError::InvalidInput`] if the input cannot be
    /// encoded.
    ///
    /// ```
    /// # async fn example(client: everturn::Client) -> Result<(), everturn::ClientError> {
    /// client.start_orchestration_typed("order-42", "process_order", vec![("book", 2), ("pen", 1)]).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn start_orchestration_typed<In: Serialize>(
        &self,
        instance: impl Into<String>,
        orchestration: impl Into<String>,
        input: In,
    ) -> Result<(), ClientError> {
        self.start(instance.into(), orchestration.into(), None, encode(&input)?).await.map(|_| ())
    }

    /// [`start_orchestration_versioned`](Self::start_orchestration_versioned) with a typed input.
    ///
    /// # Errors
    /// As [`start_orchestration_typed`](Self::start_orchestration_typed).
    pub async fn start_orchestration_versioned_typed<In: Serialize>(
        &self,
        instance: impl Into<String>,
        orchestration: impl Into<String>,
        version: impl Into<String>,
        input: In,
    ) -> Result<(), ClientError> {
        self.start(instance.into(), orchestration.into(), Some(version.into()), encode(&input)?)
            .await
            .map(|_| ())
    }

    async fn start(
        &self,
        instance: String,
        orchestration: String,
        version: Option<String>,
        input: String,
    ) -> Result<Receipt, ClientError> {
        check_name("instance id", &instance).map_err(refused)?;
        check_name("orchestration name", &orchestration).map_err(refused)?;
        if uses_reserved_marker(&instance) {
            return Err(refused(format!(
                "instance id '{instance}' uses the reserved sub-orchestration marker '{SUB_ORCH_AUTO_PREFIX}'"
            )));
        }
        self.check_payload(format_args!("input of start_orchestration for {instance}"), &input)?;
        let item = WorkItem::StartOrchestration {
            instance,
            orchestration,
            input,
            version,
            parent_instance: None,
            parent_id: None,
            parent_execution_id: None,
            execution_id: INITIAL_EXECUTION_ID,
        };
        self.submit(item).await
    }
}
