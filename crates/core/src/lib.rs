//! The pure heart of Everturn.
//!
//! Events, work items, errors and limits; the [`OrchestrationContext`] that orchestration code talks to; and the
//! [turn engine](turn) that applies events to that code. The engine does no I/O, reads no clock and draws no random
//! number: time and ids come in as arguments, so that the same inputs always give the same outputs. (Only the constructors
//! of [`Event`] that users call stamp the system's time.)
//!
//! Users depend on the `everturn` crate, which re-exports what they need from here.
#![forbid(unsafe_code)]

mod action;
pub mod codec;
mod combinators;
mod context;
mod error;
mod event;
mod exchange;
mod future;
mod handler;
mod ids;
mod kv;
pub mod limits;
mod planted;
mod retry;
mod stats;
mod status;
pub mod turn;
mod version;
mod work_item;

pub use combinators::{Either2, Either3};
pub use context::OrchestrationContext;
pub use error::{AppErrorKind, ConfigErrorKind, ErrorDetails, PoisonMessageType};
pub use event::{Event, EventKind};
pub use future::{DurableFuture, ScheduleKind};
pub use handler::{OrchestrationHandler, OrchestrationHandlerRef};
pub use ids::{
    INITIAL_EVENT_ID, INITIAL_EXECUTION_ID, SUB_ORCH_AUTO_PREFIX, build_child_instance_id,
    is_auto_generated_sub_orch_id, uses_reserved_marker,
};
pub use kv::KvEntry;
#[doc(hidden)]
pub use planted::{Bug, planted};
pub use retry::{BackoffStrategy, RetryPolicy};
pub use stats::SystemStats;
pub use status::{ExecutionStatus, OrchestrationStatus};
pub use version::{SemverRange, current_build_version};
pub use work_item::{WorkItem, kind_of};

/// How the names of the engine's own activities begin; users may not register such names.
pub const SYSCALL_PREFIX: &str = "__everturn_syscall:";
/// The activity behind [`OrchestrationContext::new_guid`].
pub const SYSCALL_NEW_GUID: &str = "__everturn_syscall:new_guid";
/// The activity behind [`OrchestrationContext::utc_now`].
pub const SYSCALL_UTC_NOW_MS: &str = "__everturn_syscall:utc_now_ms";
/// The activity behind [`OrchestrationContext::get_kv_value_from_instance`].
pub const SYSCALL_GET_KV_VALUE: &str = "__everturn_syscall:get_kv_value";
