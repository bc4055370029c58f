//! Durable execution as a library.
//!
//! An *orchestration* is an ordinary `async` function that survives crashes, restarts and deployments; its side effects
//! are *activities*. A [`Client`] starts orchestrations and asks about them, a [`Runtime`](runtime::Runtime) runs them,
//! and a [provider](providers) remembers everything. There is no server: all of it runs in the user's process.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use everturn::providers::memory::MemoryProvider;
//! use everturn::runtime::Runtime;
//! use everturn::runtime::registry::ActivityRegistry;
//! use everturn::{ActivityContext, Client, OrchestrationContext, OrchestrationRegistry};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let activities = ActivityRegistry::builder()
//!     .register("charge", |_ctx: ActivityContext, order: String| async move { Ok(format!("{order} is paid")) })
//!     .build();
//! let orchestrations = OrchestrationRegistry::builder()
//!     .register("process_order", |ctx: OrchestrationContext, order: String| async move {
//!         ctx.schedule_activity("charge", order).await
//!     })
//!     .build();
//!
//! let store = Arc::new(MemoryProvider::new());
//! let runtime = Runtime::start_with_store(store.clone(), activities, orchestrations).await;
//! let client = Client::new(store);
//! client.start_orchestration("order-42", "process_order", "order 42").await?;
//! let outcome = client.wait_for_orchestration_typed::<String>("order-42", Duration::from_secs(30)).await?;
//! assert_eq!(outcome, Ok("order 42 is paid".to_owned()));
//! runtime.shutdown(None).await;
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

pub mod client;
pub mod providers;
pub mod runtime;

use std::sync::Arc;

pub use client::{Client, ClientError};
pub use everturn_core::{
    AppErrorKind, BackoffStrategy, ConfigErrorKind, DurableFuture, Either2, Either3, ErrorDetails, Event,
    EventKind, INITIAL_EVENT_ID, INITIAL_EXECUTION_ID, OrchestrationContext, OrchestrationHandlerRef,
    PoisonMessageType, RetryPolicy, SUB_ORCH_AUTO_PREFIX, ScheduleKind, SemverRange, SystemStats,
    build_child_instance_id, current_build_version, is_auto_generated_sub_orch_id,
};
pub use providers::{
    DeleteInstanceResult, DispatcherCapabilityFilter, ExecutionInfo, InstanceFilter, InstanceInfo,
    InstanceTree, ProviderAdmin, PruneOptions, PruneResult, QueueDepths, ScheduledActivityIdentifier,
    SessionFetchConfig, SystemMetrics, TagFilter,
};
pub use runtime::{
    ActivityContext, OrchestrationDescriptor, OrchestrationHandler, OrchestrationRegistry,
    OrchestrationRegistryBuilder, OrchestrationStatus, RuntimeOptions,
};

/// A shared provider.
pub type ProviderRef = Arc<dyn providers::Provider>;
