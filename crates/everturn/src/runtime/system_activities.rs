//! The built-in activities behind `new_guid`, `utc_now` and reads of other instances' key-value stores.

use std::sync::Arc;

use async_trait::async_trait;
use everturn_core::{SYSCALL_GET_KV_VALUE, SYSCALL_NEW_GUID, SYSCALL_UTC_NOW_MS};
use everturn_provider::Clock;
use serde::Deserialize;

use super::activity_context::ActivityContext;
use super::activity_handler::ActivityHandler;
use super::registry::ActivityRegistry;

/// The user's activities and the built-in ones.
pub(crate) fn with_system_activities(users: &ActivityRegistry, clock: &Arc<dyn Clock>) -> ActivityRegistry {
    ActivityRegistry::builder_from(users)
        .register_system(SYSCALL_NEW_GUID, Arc::new(NewGuid(Arc::clone(clock))))
        .register_system(SYSCALL_UTC_NOW_MS, Arc::new(UtcNowMs(Arc::clone(clock))))
        .register_system(SYSCALL_GET_KV_VALUE, Arc::new(GetKvValue))
        .build()
}

/// Returns a random UUID.
struct NewGuid(Arc<dyn Clock>);

#[async_trait]
impl ActivityHandler for NewGuid {
    async fn invoke(&self, _ctx: ActivityContext, _input: String) -> Result<String, String> {
        Ok(uuid_v4(self.0.random_u128()))
    }
}

/// Returns the time in milliseconds since the epoch.
struct UtcNowMs(Arc<dyn Clock>);

#[async_trait]
impl ActivityHandler for UtcNowMs {
    async fn invoke(&self, _ctx: ActivityContext, _input: String) -> Result<String, String> {
        Ok(self.0.wall_ms().to_string())
    }
}

/// Returns a key of another instance as JSON: `null` or a string.
struct GetKvValue;

#[derive(Deserialize)]
struct GetKvValueInput {
    instance_id: String,
    key: String,
}

#[async_trait]
impl ActivityHandler for GetKvValue {
    async fn invoke(&self, ctx: ActivityContext, input: String) -> Result<String, String> {
        let GetKvValueInput { instance_id, key } = serde_json::from_str(&input)
            .map_err(|error| format!("reading input of {SYSCALL_GET_KV_VALUE}: {error}"))?;
        let value =
            ctx.get_client().get_kv_value(&instance_id, &key).await.map_err(|error| error.to_string())?;
        serde_json::to_string(&value).map_err(|error| error.to_string())
    }
}

/// The text of a version 4 UUID made of 122 random bits.
fn uuid_v4(random: u128) -> String {
    const VERSION: u128 = 0xF << 76;
    const VARIANT: u128 = 0b11 << 62;
    let bits = (random & !VERSION & !VARIANT) | (4 << 76) | (0b10 << 62);
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        (bits >> 96) as u32,
        (bits >> 80) as u16,
        (bits >> 64) as u16,
        (bits >> 48) as u16,
        bits & 0xFFFF_FFFF_FFFF
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use everturn_core::{Event, EventKind, WorkItem};
    use everturn_provider::{ExecutionMetadata, ManualClock, MemoryProvider, Provider};

    use super::*;

    /// The result of the built-in activity `name`.
    async fn answer(store: Arc<MemoryProvider>, name: &str, input: &str) -> Result<String, String> {
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(1_234));
        let registry = with_system_activities(&ActivityRegistry::default(), &clock);
        let (_, handler) = registry.resolve_handler(name).expect("it is registered");
        handler.invoke(ActivityContext::for_test(store), input.to_owned()).await
    }

    /// A store with an instance `counter` whose key `total` is `7`.
    async fn store_with_a_key() -> Arc<MemoryProvider> {
        let store = Arc::new(MemoryProvider::new());
        let start = WorkItem::StartOrchestration {
            instance: "counter".into(),
            orchestration: "count".into(),
            input: String::new(),
            version: None,
            parent_instance: None,
            parent_id: None,
            parent_execution_id: None,
            execution_id: 1,
        };
        store.enqueue_for_orchestrator(start, None).await.expect("enqueued");
        let fetched = store.fetch_orchestration_item(Duration::from_secs(5), Duration::ZERO, None).await;
        let (_, token, _) = fetched.expect("fetched").expect("an instance waits");
        let set = EventKind::KeyValueSet { key: "total".into(), value: "7".into(), last_updated_at_ms: 1 };
        let delta = vec![Event::with_event_id(1, "counter", 1, None, set)];
        let metadata = ExecutionMetadata {
            orchestration_name: Some("count".into()),
            orchestration_version: Some("1.0.0".into()),
            ..Default::default()
        };
        store
            .ack_orchestration_item(&token, 1, delta, vec![], vec![], metadata, vec![])
            .await
            .expect("acked");
        store
    }

    #[test]
    fn uuid_has_version_4_and_its_variant() {
        assert_eq!(uuid_v4(0), "00000000-0000-4000-8000-000000000000");
        assert_eq!(uuid_v4(u128::MAX), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        assert_eq!(
            uuid_v4(0x0123_4567_89AB_CDEF_0123_4567_89AB_CDEF),
            "01234567-89ab-4def-8123-456789abcdef"
        );
    }

    #[test]
    fn an_empty_registry_gains_the_system_activities() {
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(7));
        let registry = with_system_activities(&ActivityRegistry::default(), &clock);
        assert_eq!(registry.list_names(), [SYSCALL_GET_KV_VALUE, SYSCALL_NEW_GUID, SYSCALL_UTC_NOW_MS]);
    }

    #[tokio::test]
    async fn guid_and_time_come_from_the_clock() {
        let store = Arc::new(MemoryProvider::new());
        let guid = answer(store.clone(), SYSCALL_NEW_GUID, "").await.expect("a guid");
        assert_eq!(guid.len(), 36);
        assert_eq!(answer(store, SYSCALL_UTC_NOW_MS, "").await, Ok("1234".to_owned()));
    }

    #[tokio::test]
    async fn a_key_of_another_instance_is_returned_as_json() {
        let store = store_with_a_key().await;
        let read = async |input: &str| answer(store.clone(), SYSCALL_GET_KV_VALUE, input).await;
        assert_eq!(read(r#"{"instance_id":"counter","key":"total"}"#).await, Ok("\"7\"".to_owned()));
        assert_eq!(read(r#"{"instance_id":"counter","key":"other"}"#).await, Ok("null".to_owned()));
        assert_eq!(read(r#"{"instance_id":"unknown","key":"total"}"#).await, Ok("null".to_owned()));
        assert!(read("nonsense").await.is_err());
    }
}
