//! The core of Everturn: events, the orchestration context and the turn engine.
//!
//! The engine does no I/O, reads no clock and draws no random number. Time and ids come in as arguments, so that the same
//! inputs always give the same outputs. (Only the constructors of [`Event`] that users call read the system's clock.)
//! Users depend on the `everturn` crate, which re-exports what they need from here.
//!
//! # Where things are
//!
//! | module | holds |
//! | --- | --- |
//! | `event` | [`Event`] and [`EventKind`]: the records of a history |
//! | `work_item` | [`WorkItem`]: the messages of the two queues |
//! | `context` | [`OrchestrationContext`], one file for each group of calls: activities, timers, children, … |
//! | `future`, `combinators` | [`DurableFuture`], and `join` and `select` over several futures |
//! | `action` | what a call of the context asks the engine for |
//! | `replay_state` | the state that the code and the engine share: emitted actions, results, queues, signals |
//! | [`turn`] | the turn engine |
//! | `error`, `status` | [`ErrorDetails`]; [`OrchestrationStatus`] and [`ExecutionStatus`] |
//! | [`codec`], [`limits`] | how typed values become text; every limit with its reason |
//!
//! # How a turn goes
//!
//! The runtime fetches the messages of an instance and calls [`Execution::take_turn`](turn::Execution::take_turn):
//!
//! 1. The messages become events.
//! 2. The stored events (unless the execution was kept in memory) and the new ones are applied one after the other. An
//!    event may complete a future; then the code is polled before the next event is applied. Each poll may emit actions.
//!    Replay compares a stored schedule event with the next emitted action; a difference is nondeterminism and fails the
//!    instance.
//! 3. Each action that no event records becomes an event with the next id, and is applied like a stored one.
//! 4. Limits are checked.
//! 5. The outcome is decided. The [`Turn`](turn::Turn) holds the new events and the work items that carry the decisions
//!    out. The runtime commits all of it or nothing.
//!
//! # Adding an event kind
//!
//! Add the variant to [`EventKind`]. The compiler then points at every place that must handle it:
//! `Event::without_times`, `EventKind::ends_as`, `turn/apply.rs` (what it does to the code), `turn/history_index.rs` (what it changes in the
//! facts of the history), `turn/check_limits.rs` and `turn/cancellation.rs`.
//!
//! If the code asks for it: add a variant to `Action` and the call in `context/`. The compiler points at
//! `turn/decide.rs` (the event that records it), `turn/matching.rs` (what replay compares), `turn/work_items.rs` (the
//! message that carries it out) and `replay_state.rs` (how a future is bound to it).
//!
//! If a message brings it: add a variant to [`WorkItem`]. The compiler points at `turn/convert_messages.rs`, [`kind_of`]
//! and [`WorkItem::instance`].
//!
//! The JSON form of both enums is stored: a variant or field that was released is never renamed or removed.
#![forbid(unsafe_code)]

mod action;
pub mod codec;
mod combinators;
mod context;
mod error;
mod event;
mod future;
mod handler;
mod ids;
mod kv;
pub mod limits;
mod names;
mod replay_state;
mod retry;
mod stats;
mod status;
pub mod turn;
mod version;
mod work_item;

pub use combinators::{Either2, Either3};
pub use context::OrchestrationContext;
pub use error::{AppErrorKind, ConfigErrorKind, ErrorDetails, PoisonMessageType};
#[doc(hidden)]
pub use event::EndEvent;
pub use event::{Event, EventKind};
pub use future::{DurableFuture, ScheduleKind};
pub use handler::{OrchestrationHandler, OrchestrationHandlerRef};
pub use ids::{
    INITIAL_EVENT_ID, INITIAL_EXECUTION_ID, SUB_ORCH_AUTO_PREFIX, build_child_instance_id,
    is_auto_generated_sub_orch_id, uses_reserved_marker,
};
pub use kv::KvEntry;
pub use names::{check_instance_id, check_name};
pub use retry::{BackoffStrategy, RetryPolicy};
pub use stats::SystemStats;
pub use status::{ExecutionStatus, OrchestrationStatus};
pub use version::{SemverRange, current_build_version};
pub use work_item::{WorkItem, kind_of};

/// The beginning of the names of the engine's own activities. Users cannot register such names.
pub const SYSCALL_PREFIX: &str = "__everturn_syscall:";
/// The activity behind [`OrchestrationContext::new_guid`].
pub const SYSCALL_NEW_GUID: &str = "__everturn_syscall:new_guid";
/// The activity behind [`OrchestrationContext::utc_now`].
pub const SYSCALL_UTC_NOW_MS: &str = "__everturn_syscall:utc_now_ms";
/// The activity behind [`OrchestrationContext::get_kv_value_from_instance`].
pub const SYSCALL_GET_KV_VALUE: &str = "__everturn_syscall:get_kv_value";
