//! The key-value store of the instance.

use std::collections::HashMap;
use std::panic::Location;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::OrchestrationContext;
use crate::action::Action;
use crate::codec;
use crate::future::DurableFuture;
use crate::{KvEntry, SystemStats};

impl OrchestrationContext {
    /// Sets a key. Clients see it when the turn is committed; it survives continue-as-new.
    ///
    /// ```
    /// use everturn_core::OrchestrationContext;
    ///
    /// async fn order(ctx: OrchestrationContext, id: String) -> Result<String, String> {
    ///     let parcel = ctx.schedule_activity("Ship", id).await?;
    ///     ctx.set_kv_value("parcel", parcel.clone());
    ///     assert_eq!(ctx.get_kv_value("parcel"), Some(parcel));
    ///     ctx.clear_kv_value("draft");
    ///     Ok(ctx.get_kv_all_keys().join(", "))
    /// }
    /// ```
    #[track_caller]
    pub fn set_kv_value(&self, key: impl Into<String>, value: impl Into<String>) {
        let (key, value) = (key.into(), value.into());
        self.shared.emit(Location::caller(), None, |state| {
            let last_updated_at_ms = state.last_event_ms;
            state.kv.insert(key.clone(), KvEntry { value: value.clone(), last_updated_at_ms });
            Action::SetKv { key, value, last_updated_at_ms }
        });
    }

    /// Sets a key to the JSON of a value, with the keys of every object in ascending order.
    ///
    /// # Panics
    /// If the value cannot be encoded. A NaN and a `Some` around a null are refused, as [`codec`](crate::codec) says.
    ///
    /// ```
    /// use everturn_core::OrchestrationContext;
    ///
    /// async fn count(ctx: OrchestrationContext, _: String) -> Result<String, String> {
    ///     let rounds: u64 = ctx.get_kv_value_typed("rounds")?.unwrap_or(0);
    ///     ctx.set_kv_value_typed("rounds", &(rounds + 1));
    ///     ctx.continue_as_new("").await
    /// }
    /// ```
    #[track_caller]
    pub fn set_kv_value_typed<T: Serialize>(&self, key: impl Into<String>, value: &T) {
        let key = key.into();
        let value =
            codec::to_json(value).unwrap_or_else(|error| panic!("encoding the value of key {key}: {error}"));
        self.set_kv_value(key, value.to_string());
    }

    /// The value of a key.
    pub fn get_kv_value(&self, key: &str) -> Option<String> {
        self.shared.lock().kv.get(key).map(|entry| entry.value.clone())
    }

    /// The value of a key, read as JSON.
    ///
    /// # Errors
    /// If the stored text is not JSON of that type.
    pub fn get_kv_value_typed<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, String> {
        self.get_kv_value(key).map(|value| from_json(key, &value)).transpose()
    }

    /// All keys and their values.
    pub fn get_kv_all_values(&self) -> HashMap<String, String> {
        let state = self.shared.lock();
        state.kv.iter().map(|(key, entry)| (key.clone(), entry.value.clone())).collect()
    }

    /// All keys, sorted.
    pub fn get_kv_all_keys(&self) -> Vec<String> {
        self.shared.lock().kv.keys().cloned().collect()
    }

    /// How many keys there are.
    pub fn get_kv_length(&self) -> usize {
        self.shared.lock().kv.len()
    }

    /// Removes a key.
    #[track_caller]
    pub fn clear_kv_value(&self, key: impl Into<String>) {
        let key = key.into();
        self.shared.emit(Location::caller(), None, |state| {
            state.kv.remove(&key);
            Action::ClearKv { key }
        });
    }

    /// Removes all keys.
    #[track_caller]
    pub fn clear_all_kv_values(&self) {
        self.shared.emit(Location::caller(), None, |state| {
            state.kv.clear();
            Action::ClearAllKv
        });
    }

    /// Removes every key that was last written before this time (milliseconds since the epoch), in key order. Returns how
    /// many keys it removed.
    #[track_caller]
    pub fn prune_kv_values_updated_before(&self, updated_before_ms: u64) -> usize {
        let Some(state) = self.shared.during_poll() else { return 0 };
        let old = state.kv.iter().filter(|(_, entry)| entry.last_updated_at_ms < updated_before_ms);
        let old: Vec<String> = old.map(|(key, _)| key.clone()).collect();
        drop(state);
        let pruned = old.len();
        for key in old {
            self.clear_kv_value(key);
        }
        pruned
    }

    /// Reads a key of another instance. The value is recorded, so that replay returns the same one.
    ///
    /// ```
    /// use everturn_core::OrchestrationContext;
    ///
    /// async fn invoice(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    ///     let parcel = ctx.get_kv_value_from_instance(order, "parcel").await?;
    ///     Ok(parcel.unwrap_or_else(|| "not shipped yet".to_owned()))
    /// }
    /// ```
    #[track_caller]
    pub fn get_kv_value_from_instance(
        &self,
        instance_id: impl Into<String>,
        key: impl Into<String>,
    ) -> DurableFuture<Result<Option<String>, String>> {
        let input = json!({ "instance_id": instance_id.into(), "key": key.into() }).to_string();
        self.system_call(crate::SYSCALL_GET_KV_VALUE, input).map(|answer| {
            serde_json::from_str(&answer?)
                .map_err(|error| format!("key-value answer cannot be read: {error}"))
        })
    }

    /// [`get_kv_value_from_instance`](Self::get_kv_value_from_instance), read as JSON.
    #[track_caller]
    pub fn get_kv_value_from_instance_typed<T: DeserializeOwned + Send + 'static>(
        &self,
        instance_id: impl Into<String>,
        key: impl Into<String>,
    ) -> DurableFuture<Result<Option<T>, String>> {
        let key = key.into();
        self.get_kv_value_from_instance(instance_id, key.clone())
            .map(move |answer| answer?.map(|value| from_json(&key, &value)).transpose())
    }

    /// Always `None`: ask the client for the statistics of an instance.
    pub fn get_system_stats(&self) -> Option<SystemStats> {
        None
    }
}

fn from_json<T: DeserializeOwned>(key: &str, value: &str) -> Result<T, String> {
    serde_json::from_str(value).map_err(|error| format!("KV deserialization error for key '{key}': {error}"))
}
