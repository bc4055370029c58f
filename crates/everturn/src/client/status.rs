//! Status and results of an instance.

use std::time::Duration;

use everturn_core::{OrchestrationStatus, SystemStats, codec};
use serde::de::DeserializeOwned;

use super::wait::ReadAgain;
use super::{Client, ClientError};

/// Shortest poll interval. With zero the loop would never yield.
const POLL_INTERVAL_MIN: Duration = Duration::from_millis(1);

impl Client {
    /// The status of an instance as of its last committed turn.
    ///
    /// # Errors
    /// [`ClientError::Provider`] if the store failed or the instance's record is damaged.
    ///
    /// ```
    /// # async fn example(client: everturn::Client) -> Result<(), everturn::ClientError> {
    /// use everturn::OrchestrationStatus;
    ///
    /// match client.get_orchestration_status("order-42").await? {
    ///     OrchestrationStatus::NotFound => println!("not started"),
    ///     OrchestrationStatus::Running { custom_status, .. } => println!("running: {custom_status:?}"),
    ///     OrchestrationStatus::Completed { output, .. } => println!("done: {output}"),
    ///     OrchestrationStatus::Failed { details, .. } => println!("failed: {}", details.display_message()),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn get_orchestration_status(&self, instance: &str) -> Result<OrchestrationStatus, ClientError> {
        Ok(self.store.read_status(instance).await?)
    }

    /// Waits until an instance has completed or failed. The instance need not exist yet.
    ///
    /// # Errors
    /// [`ClientError::Timeout`] if it does not end in time, [`ClientError::Provider`] if the store failed.
    ///
    /// ```
    /// # async fn example(client: everturn::Client) -> Result<(), everturn::ClientError> {
    /// use std::time::Duration;
    /// use everturn::ClientError;
    ///
    /// match client.wait_for_orchestration("order-42", Duration::from_secs(30)).await {
    ///     Ok(end) => println!("{end:?}"),
    ///     Err(ClientError::Timeout) => println!("still running"),
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn wait_for_orchestration(
        &self,
        instance: &str,
        timeout: Duration,
    ) -> Result<OrchestrationStatus, ClientError> {
        self.wait_for(instance, timeout, ReadAgain::OnChange, || async move {
            let status = self.get_orchestration_status(instance).await?;
            Ok(status.is_terminal().then_some(status))
        })
        .await
    }

    /// [`wait_for_orchestration`](Self::wait_for_orchestration) for a typed output. The inner error is the failure message
    /// of the instance.
    ///
    /// # Errors
    /// As [`wait_for_orchestration`](Self::wait_for_orchestration); [`ClientError::InvalidInput`] if the output cannot
    /// be decoded.
    ///
    /// ```
    /// # async fn example(client: everturn::Client) -> Result<(), everturn::ClientError> {
    /// use std::time::Duration;
    ///
    /// match client.wait_for_orchestration_typed::<u64>("order-42", Duration::from_secs(30)).await? {
    ///     Ok(cents) => println!("{cents} cents were paid"),
    ///     Err(failure) => println!("failed: {failure}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn wait_for_orchestration_typed<Out: DeserializeOwned>(
        &self,
        instance: &str,
        timeout: Duration,
    ) -> Result<Result<Out, String>, ClientError> {
        self.wait_for(instance, timeout, ReadAgain::OnChange, || async move {
            match self.get_orchestration_status(instance).await? {
                OrchestrationStatus::Completed { output, .. } => codec::decode(&output)
                    .map(|value| Some(Ok(value)))
                    .map_err(|error| ClientError::InvalidInput {
                        message: format!("decode failed: the output of {instance}: {error}"),
                    }),
                OrchestrationStatus::Failed { details, .. } => Ok(Some(Err(details.display_message()))),
                OrchestrationStatus::NotFound | OrchestrationStatus::Running { .. } => Ok(None),
            }
        })
        .await
    }

    /// Waits until an instance's custom status is newer than `last_seen_version`, or the instance has ended.
    ///
    /// # Errors
    /// [`ClientError::Timeout`] if neither happens in time, [`ClientError::Provider`] if the store failed.
    ///
    /// ```
    /// # async fn example(client: everturn::Client) -> Result<(), everturn::ClientError> {
    /// use std::time::Duration;
    ///
    /// let (mut seen, interval, limit) = (0, Duration::from_millis(100), Duration::from_secs(60));
    /// loop {
    ///     let status = client.wait_for_status_change("order-42", seen, interval, limit).await?;
    ///     println!("{status:?}");
    ///     if status.is_terminal() {
    ///         break;
    ///     }
    ///     seen = status.custom_status_version();
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn wait_for_status_change(
        &self,
        instance: &str,
        last_seen_version: u64,
        poll_interval: Duration,
        timeout: Duration,
    ) -> Result<OrchestrationStatus, ClientError> {
        if timeout.is_zero() {
            return Err(ClientError::Timeout);
        }
        let read_again = ReadAgain::Every(poll_interval.max(POLL_INTERVAL_MIN));
        self.wait_for(instance, timeout, read_again, || async move {
            let status = self.get_orchestration_status(instance).await?;
            let changed = status.is_terminal() || status.custom_status_version() > last_seen_version;
            Ok(changed.then_some(status))
        })
        .await
    }

    /// Size of an instance's current execution and of its key-value store; `None` for an unknown instance.
    ///
    /// # Errors
    /// [`ClientError::Provider`] if the store failed.
    pub async fn get_orchestration_stats(&self, instance: &str) -> Result<Option<SystemStats>, ClientError> {
        Ok(self.store.read_stats(instance).await?)
    }
}
