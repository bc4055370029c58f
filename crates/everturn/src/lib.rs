//! Durable execution as a library: ordinary `async` functions that survive crashes, restarts and deployments.
//!
//! An *orchestration* is an `async` function that decides what happens next. Its side effects are *activities*. Every
//! step is recorded in a *store* before it counts, so a process that is killed continues where it was when it is started
//! again. There is no server: client, runtime and store run in your process.
//!
//! # Install
//!
//! ```toml
//! [dependencies]
//! everturn = "0.1"
//! tokio = { version = "1", features = ["macros", "rt-multi-thread"] }
//! ```
//!
//! The feature `sqlite` (on by default) adds the embedded SQLite provider. It needs a C compiler and no system library. The
//! feature `postgres` adds the PostgreSQL provider, for processes on several machines.
//!
//! # A first orchestration
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
//! // Side effects belong in activities. An activity may run more than once, its outcome is recorded once.
//! let activities = ActivityRegistry::builder()
//!     .register("charge", |_ctx: ActivityContext, order: String| async move { Ok(format!("{order} is paid")) })
//!     .build();
//!
//! // An orchestration must be deterministic: time, randomness and input/output come from its context.
//! let orchestrations = OrchestrationRegistry::builder()
//!     .register("process_order", |ctx: OrchestrationContext, order: String| async move {
//!         ctx.schedule_timer(Duration::from_millis(10)).await;
//!         ctx.schedule_activity("charge", order).await
//!     })
//!     .build();
//!
//! // Replace the memory provider by `SqliteProvider::new("sqlite:orders.db", None)` to keep the data.
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
//!
//! # What is where
//!
//! | to | see |
//! | --- | --- |
//! | write an orchestration: activities, timers, events, queues, children, continue-as-new | [`OrchestrationContext`] |
//! | combine what it waits for | [`DurableFuture`], [`OrchestrationContext::select2`], [`OrchestrationContext::join`] |
//! | retry an activity | [`RetryPolicy`] |
//! | write an activity: identity, cancellation, logging | [`ActivityContext`] |
//! | register code under names and versions | [`OrchestrationRegistry`], [`ActivityRegistry`](runtime::registry::ActivityRegistry) |
//! | run it | [`Runtime`](runtime::Runtime) |
//! | tune it: concurrency, locks, sessions, tags, instances in memory | [`RuntimeOptions`] |
//! | start, signal, cancel and wait for instances; list and delete them | [`Client`] |
//! | understand why an instance failed | [`ErrorDetails`] |
//! | keep the data in a SQLite file, in PostgreSQL or in memory | [`providers::open`], [`providers::sqlite`], `providers::postgres`, [`providers::memory`] |
//! | keep the data elsewhere | [`providers::Provider`], [`providers::store::Store`] |
//! | see log lines and metrics | [`runtime::observability`] |
//!
//! # Further reading
//!
//! In the repository: the examples, one idea per file; `GUARANTEES.md`, what the engine promises and how it is proved;
//! `ARCHITECTURE.md`, how it is built; `docs/writing-a-provider.md`, how to store elsewhere.
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
    build_child_instance_id, codec, current_build_version, is_auto_generated_sub_orch_id,
};
pub use providers::store::Receipt;
pub use providers::{
    DeleteInstanceResult, DispatcherCapabilityFilter, ExecutionInfo, InstanceFilter, InstanceInfo,
    InstanceTree, ProviderAdmin, PruneOptions, PruneResult, QueueDepths, ScheduledActivityIdentifier,
    SessionFetchConfig, SystemMetrics, TagFilter,
};
pub use runtime::{
    ActivityContext, OrchestrationDescriptor, OrchestrationHandler, OrchestrationRegistry,
    OrchestrationRegistryBuilder, OrchestrationStatus, RuntimeOptions,
};

/// A shared provider, as [`Client::new`] and [`Runtime::start_with_store`](runtime::Runtime::start_with_store) take it.
pub type ProviderRef = Arc<dyn providers::Provider>;
