//! Where an instance stands.

use std::time::Duration;

use everturn_core::{OrchestrationStatus, SystemStats, codec};
use serde::de::DeserializeOwned;

use super::wait::LookAgain;
use super::{Client, ClientError};

/// A poll interval of zero would leave no time for anything else.
const POLL_INTERVAL_MIN: Duration = Duration::from_millis(1);

impl Client {
    /// Where an instance stands, as of its last committed turn.
    ///
    /// # Errors
    /// [`ClientError::Provider`] if the store failed or the instance's record is damaged.
    pub async fn get_orchestration_status(&self, instance: &str) -> Result<OrchestrationStatus, ClientError> {
        Ok(self.store.read_status(instance).await?)
    }

    /// Waits until an instance has completed or failed. It need not exist yet.
    ///
    /// # Errors
    /// [`ClientError::Timeout`] if it has not ended in time, [`ClientError::Provider`] if the store failed.
    pub async fn wait_for_orchestration(
        &self,
        instance: &str,
        timeout: Duration,
    ) -> Result<OrchestrationStatus, ClientError> {
        self.wait_for(instance, timeout, LookAgain::AsWatched, || async move {
            let status = self.get_orchestration_status(instance).await?;
            Ok(status.is_terminal().then_some(status))
        })
        .await
    }

    /// [`wait_for_orchestration`](Self::wait_for_orchestration) for a typed output; the inner error is the failure of
    /// the instance in words.
    ///
    /// # Errors
    /// As [`wait_for_orchestration`](Self::wait_for_orchestration); [`ClientError::InvalidInput`] if the output cannot
    /// be decoded.
    pub async fn wait_for_orchestration_typed<Out: DeserializeOwned>(
        &self,
        instance: &str,
        timeout: Duration,
    ) -> Result<Result<Out, String>, ClientError> {
        self.wait_for(instance, timeout, LookAgain::AsWatched, || async move {
            match self.get_orchestration_status(instance).await? {
                OrchestrationStatus::Completed { output, .. } => {
                    codec::decode(&output).map(|value| Some(Ok(value))).map_err(|error| {
                        ClientError::InvalidInput { message: format!("decode failed: {error}") }
                    })
                }
                OrchestrationStatus::Failed { details, .. } => Ok(Some(Err(details.display_message()))),
                OrchestrationStatus::NotFound | OrchestrationStatus::Running { .. } => Ok(None),
            }
        })
        .await
    }

    /// Waits until an instance's custom status is newer than `last_seen_version`, or the instance has ended.
    ///
    /// # Errors
    /// [`ClientError::Timeout`] if neither happened in time, [`ClientError::Provider`] if the store failed.
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
        let look_again = LookAgain::Every(poll_interval.max(POLL_INTERVAL_MIN));
        self.wait_for(instance, timeout, look_again, || async move {
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
        Ok(self.store.get_instance_stats(instance).await?)
    }
}
