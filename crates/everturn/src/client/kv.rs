//! Reading an instance's key-value store.

use std::collections::HashMap;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::wait::ReadAgain;
use super::{Client, ClientError};

impl Client {
    /// The value of a key in an instance's key-value store; `None` if the key or the instance is unknown.
    ///
    /// # Errors
    /// [`ClientError::Provider`] if the store failed.
    ///
    /// ```
    /// # async fn example(client: everturn::Client) -> Result<(), everturn::ClientError> {
    /// let parcel = client.get_kv_value("order-42", "parcel").await?;
    /// println!("{}", parcel.as_deref().unwrap_or("not shipped yet"));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn get_kv_value(&self, instance: &str, key: &str) -> Result<Option<String>, ClientError> {
        Ok(self.store.read_kv_value(instance, key).await?)
    }

    /// [`get_kv_value`](Self::get_kv_value) for a value that was set with `set_kv_value_typed`.
    ///
    /// # Errors
    /// As [`get_kv_value`](Self::get_kv_value); [`ClientError::InvalidInput`] if the value cannot be decoded.
    pub async fn get_kv_value_typed<T: DeserializeOwned>(
        &self,
        instance: &str,
        key: &str,
    ) -> Result<Option<T>, ClientError> {
        self.get_kv_value(instance, key).await?.map(|value| decode(&value)).transpose()
    }

    /// All keys and values of an instance's key-value store; empty for an unknown instance.
    ///
    /// # Errors
    /// [`ClientError::Provider`] if the store failed.
    ///
    /// ```
    /// # async fn example(client: everturn::Client) -> Result<(), everturn::ClientError> {
    /// for (key, value) in client.get_kv_all_values("order-42").await? {
    ///     println!("{key} = {value}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn get_kv_all_values(&self, instance: &str) -> Result<HashMap<String, String>, ClientError> {
        Ok(self.store.read_kv_values(instance).await?)
    }

    /// Waits until a key of an instance's key-value store is set. The instance need not exist yet.
    ///
    /// # Errors
    /// [`ClientError::Timeout`] if it is not set in time, [`ClientError::Provider`] if the store failed.
    ///
    /// ```
    /// # async fn example(client: everturn::Client) -> Result<(), everturn::ClientError> {
    /// use std::time::Duration;
    ///
    /// let parcel = client.wait_for_kv_value("order-42", "parcel", Duration::from_secs(30)).await?;
    /// println!("shipped as {parcel}");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn wait_for_kv_value(
        &self,
        instance: &str,
        key: &str,
        timeout: Duration,
    ) -> Result<String, ClientError> {
        self.wait_for(instance, timeout, ReadAgain::OnChange, || self.get_kv_value(instance, key)).await
    }

    /// [`wait_for_kv_value`](Self::wait_for_kv_value) for a value that was set with `set_kv_value_typed`.
    ///
    /// # Errors
    /// As [`wait_for_kv_value`](Self::wait_for_kv_value); [`ClientError::InvalidInput`] if the value cannot be decoded.
    ///
    /// ```
    /// # async fn example(client: everturn::Client) -> Result<(), everturn::ClientError> {
    /// use std::time::Duration;
    ///
    /// let rounds: u64 = client.wait_for_kv_value_typed("cleaner", "rounds", Duration::from_secs(30)).await?;
    /// println!("{rounds} rounds");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn wait_for_kv_value_typed<T: DeserializeOwned>(
        &self,
        instance: &str,
        key: &str,
        timeout: Duration,
    ) -> Result<T, ClientError> {
        decode(&self.wait_for_kv_value(instance, key, timeout).await?)
    }
}

/// Decodes a value. Values of the key-value store are plain JSON: unlike payloads, strings are quoted.
fn decode<T: DeserializeOwned>(value: &str) -> Result<T, ClientError> {
    serde_json::from_str(value)
        .map_err(|error| ClientError::InvalidInput { message: format!("KV deserialization error: {error}") })
}
