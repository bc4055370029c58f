//! Paths that user code imports, and the values of public constants.

use std::sync::Arc;

/// Every name at the crate root, imported once.
#[expect(unused_imports, reason = "the imports are the test")]
mod root {
    use everturn::{
        ActivityContext, AppErrorKind, BackoffStrategy, Client, ClientError, ConfigErrorKind,
        DeleteInstanceResult, DispatcherCapabilityFilter, DurableFuture, Either2, Either3, ErrorDetails,
        Event, EventKind, ExecutionInfo, INITIAL_EVENT_ID, INITIAL_EXECUTION_ID, InstanceFilter,
        InstanceInfo, InstanceTree, OrchestrationContext, OrchestrationDescriptor, OrchestrationHandler,
        OrchestrationHandlerRef, OrchestrationRegistry, OrchestrationRegistryBuilder, OrchestrationStatus,
        PoisonMessageType, ProviderAdmin, ProviderRef, PruneOptions, PruneResult, QueueDepths, RetryPolicy,
        RuntimeOptions, SUB_ORCH_AUTO_PREFIX, ScheduleKind, ScheduledActivityIdentifier, SemverRange,
        SessionFetchConfig, SystemMetrics, SystemStats, TagFilter, build_child_instance_id,
        current_build_version, is_auto_generated_sub_orch_id,
    };
}

/// Every name in the public modules.
#[expect(unused_imports, reason = "the imports are the test")]
mod modules {
    use everturn::client::{Client, ClientError};
    use everturn::providers::error::ProviderError as _;
    use everturn::providers::instrumented::InstrumentedProvider;
    use everturn::providers::management::{
        DeleteInstanceResult, ExecutionInfo, InstanceFilter, InstanceInfo, InstanceTree, ProviderAdmin as _,
        PruneOptions, PruneResult, QueueDepths, SystemMetrics,
    };
    use everturn::providers::{
        DispatcherCapabilityFilter, ExecutionMetadata, KvEntry, OrchestrationItem, Provider, ProviderAdmin,
        ProviderError, ScheduledActivityIdentifier, SemverRange, SessionFetchConfig, TagFilter, WorkItem,
        current_build_version,
    };
    use everturn::runtime::observability::{
        LogFormat as _, MetricsProvider, MetricsSnapshot, ObservabilityConfig as _, ObservabilityHandle,
        init_logging,
    };
    use everturn::runtime::registry::{
        ActivityRegistry, ActivityRegistryBuilder, OrchestrationRegistry as _,
        OrchestrationRegistryBuilder as _, Registry, RegistryBuilder, VersionPolicy as _,
    };
    use everturn::runtime::{
        ActivityHandler, FnActivity, FnOrchestration, LogFormat, ObservabilityConfig,
        OrchestrationDescriptor, OrchestrationHandler, OrchestrationRegistry, OrchestrationRegistryBuilder,
        OrchestrationStatus, RuntimeOptions, UnregisteredBackoffConfig, VersionPolicy, kind_of,
    };
}

#[test]
fn limits_have_their_documented_values() {
    use everturn::runtime::limits;

    assert_eq!(limits::MAX_CUSTOM_STATUS_BYTES, 262_144);
    assert_eq!(limits::MAX_WORKER_TAGS, 5);
    assert_eq!(limits::MAX_TAG_NAME_BYTES, 256);
    assert_eq!(limits::MAX_KV_KEYS, 150);
    assert_eq!(limits::MAX_KV_VALUE_BYTES, 65_536);
}

#[test]
fn ids_have_their_documented_forms() {
    assert_eq!((everturn::INITIAL_EXECUTION_ID, everturn::INITIAL_EVENT_ID), (1, 1));
    assert_eq!(everturn::SUB_ORCH_AUTO_PREFIX, "sub::");
    assert!(everturn::is_auto_generated_sub_orch_id("sub::2"));
    assert_eq!(everturn::build_child_instance_id("parent", "sub::2"), "parent::sub::2");
}

#[test]
fn a_function_is_a_handler() {
    use everturn::runtime::{ActivityHandler, FnActivity, FnOrchestration};
    use everturn::{ActivityContext, OrchestrationContext, OrchestrationHandlerRef};

    let _: OrchestrationHandlerRef =
        Arc::new(FnOrchestration(|_ctx: OrchestrationContext, input: String| async move { Ok(input) }));
    let _: Arc<dyn ActivityHandler> =
        Arc::new(FnActivity(|_ctx: ActivityContext, input: String| async move { Ok(input) }));
}

#[test]
fn a_client_is_shared_between_threads() {
    fn shared<T: Clone + Send + Sync>() {}
    shared::<everturn::Client>();
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_client_takes_the_embedded_provider_as_it_is() {
    use everturn::providers::sqlite::{SqliteOptions, SqliteProvider};

    let options = Some(SqliteOptions::default());
    let store = Arc::new(SqliteProvider::new_in_memory_with_options(options).await.unwrap());
    let client = everturn::Client::new(store);
    assert!(client.has_management_capability());
}
