//! Default answers of the `Provider` trait, beside those of the in-memory provider. The conformance suite tests the
//! other default bodies on `DefaultBodies`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use everturn_core::{Event, SystemStats, WorkItem};
use everturn_provider::{
    Clock, DispatcherCapabilityFilter, ExecutionMetadata, ManualClock, MemoryProvider, OrchestrationItem,
    Provider, ProviderError, ScheduledActivityIdentifier, SessionFetchConfig, SystemClock, TagFilter,
};

/// Implements only the required methods; each returns an error.
struct Bare;

fn refused<T>() -> Result<T, ProviderError> {
    Err(ProviderError::permanent("bare", "there is no store"))
}

#[async_trait]
impl Provider for Bare {
    async fn fetch_orchestration_item(
        &self,
        _: Duration,
        _: Duration,
        _: Option<&DispatcherCapabilityFilter>,
    ) -> Result<Option<(OrchestrationItem, String, u32)>, ProviderError> {
        refused()
    }

    async fn ack_orchestration_item(
        &self,
        _: &str,
        _: u64,
        _: Vec<Event>,
        _: Vec<WorkItem>,
        _: Vec<WorkItem>,
        _: ExecutionMetadata,
        _: Vec<ScheduledActivityIdentifier>,
    ) -> Result<(), ProviderError> {
        refused()
    }

    async fn abandon_orchestration_item(
        &self,
        _: &str,
        _: Option<Duration>,
        _: bool,
    ) -> Result<(), ProviderError> {
        refused()
    }

    async fn read(&self, _: &str) -> Result<Vec<Event>, ProviderError> {
        refused()
    }

    async fn read_with_execution(&self, _: &str, _: u64) -> Result<Vec<Event>, ProviderError> {
        refused()
    }

    async fn append_with_execution(&self, _: &str, _: u64, _: Vec<Event>) -> Result<(), ProviderError> {
        refused()
    }

    async fn enqueue_for_worker(&self, _: WorkItem) -> Result<(), ProviderError> {
        refused()
    }

    async fn fetch_work_item(
        &self,
        _: Duration,
        _: Duration,
        _: Option<&SessionFetchConfig>,
        _: &TagFilter,
    ) -> Result<Option<(WorkItem, String, u32)>, ProviderError> {
        refused()
    }

    async fn ack_work_item(&self, _: &str, _: Option<WorkItem>) -> Result<(), ProviderError> {
        refused()
    }

    async fn renew_work_item_lock(&self, _: &str, _: Duration) -> Result<(), ProviderError> {
        refused()
    }

    async fn renew_session_lock(&self, _: &[&str], _: Duration, _: Duration) -> Result<usize, ProviderError> {
        refused()
    }

    async fn cleanup_orphaned_sessions(&self, _: Duration) -> Result<usize, ProviderError> {
        refused()
    }

    async fn abandon_work_item(&self, _: &str, _: Option<Duration>, _: bool) -> Result<(), ProviderError> {
        refused()
    }

    async fn renew_orchestration_item_lock(&self, _: &str, _: Duration) -> Result<(), ProviderError> {
        refused()
    }

    async fn enqueue_for_orchestrator(&self, _: WorkItem, _: Option<Duration>) -> Result<(), ProviderError> {
        refused()
    }

    async fn get_custom_status(
        &self,
        _: &str,
        _: u64,
    ) -> Result<Option<(Option<String>, u64)>, ProviderError> {
        refused()
    }

    async fn get_kv_value(&self, _: &str, _: &str) -> Result<Option<String>, ProviderError> {
        refused()
    }

    async fn get_kv_all_values(&self, _: &str) -> Result<HashMap<String, String>, ProviderError> {
        refused()
    }

    async fn get_instance_stats(&self, _: &str) -> Result<Option<SystemStats>, ProviderError> {
        refused()
    }
}

#[test]
fn name_and_version_are_unknown_by_default() {
    assert_eq!((Bare.name(), Bare.version()), ("unknown", "0.0.0"));
    let memory = MemoryProvider::new();
    assert_eq!((memory.name(), memory.version()), ("memory", env!("CARGO_PKG_VERSION")));
}

#[test]
fn payloads_are_limited_to_8_mib_or_as_the_provider_says() {
    assert_eq!(Bare.payload_bytes_max(), 8 * 1024 * 1024);
    assert_eq!(MemoryProvider::new().with_payload_bytes_max(7).payload_bytes_max(), 7);
}

#[test]
fn the_time_is_the_systems_or_the_providers() {
    let before = SystemClock::new().wall_ms();
    let now = Bare.now_ms();
    assert!((before..=before + 60_000).contains(&now), "{now} is not about {before}");
    let memory = MemoryProvider::with_clock(Arc::new(ManualClock::new(77)));
    assert_eq!(memory.now_ms(), 77);
}

#[test]
fn there_is_no_management_side_or_the_providers() {
    assert!(Bare.as_management_capability().is_none());
    assert!(MemoryProvider::new().as_management_capability().is_some());
}
