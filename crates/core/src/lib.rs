//! The pure heart of Everturn.
//!
//! Events, work items, errors and limits; the [`OrchestrationContext`] that orchestration code talks to; and the
//! [turn engine](turn) that applies events to that code. Nothing here does I/O, reads a clock or draws a random number:
//! time and ids come in as arguments, so that the same inputs always give the same outputs.
//!
//! Users depend on the `everturn` crate, which re-exports what they need from here.
#![forbid(unsafe_code)]

pub mod codec;
mod context;
mod error;
mod event;
mod handler;
mod ids;
mod kv;
pub mod limits;
mod retry;
mod stats;
mod status;
pub mod turn;
mod version;
mod work_item;

pub use context::OrchestrationContext;
pub use error::{AppErrorKind, ConfigErrorKind, ErrorDetails, PoisonMessageType};
pub use event::{Event, EventKind};
pub use handler::{OrchestrationHandler, OrchestrationHandlerRef};
pub use ids::{
    INITIAL_EVENT_ID, INITIAL_EXECUTION_ID, SUB_ORCH_AUTO_PREFIX, build_child_instance_id,
    is_auto_generated_sub_orch_id, uses_reserved_marker,
};
pub use kv::KvEntry;
pub use retry::{BackoffStrategy, RetryPolicy};
pub use stats::SystemStats;
pub use status::OrchestrationStatus;
pub use version::{SemverRange, current_build_version};
pub use work_item::{WorkItem, kind_of};
