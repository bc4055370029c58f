//! The turn engine: events in, decisions out.
//!
//! An [`Execution`] is one execution of an instance in memory. It is made from a stored history ([`Execution::replay`])
//! or from a new start event ([`Execution::begin`]) and takes one turn for each batch of messages
//! ([`Execution::take_turn`]). It can be kept between turns: the next turn then applies only what is new.
//!
//! The steps of a turn, each in a file of its own:
//!
//! 1. `convert_messages`: the messages become events.
//! 2. `execution`: stored and new events are applied one by one, and the code is polled whenever an event concerns it.
//!    Live turns and replay are the same loop. `apply` applies one event; `matching` compares it with what the code
//!    asks for. `poll` polls the code, again if it wakes itself (`self_wake`).
//! 3. `decide`: each new action of the code becomes an event and is applied like a stored one.
//! 4. `check_limits`: a turn that breaks a limit fails its instance.
//! 5. `finish`: the outcome, and the work items that carry the decisions out (`work_items`). If the execution ends,
//!    `end_execution` writes its last events.

use crate::limits::MAX_DECISIONS_PER_TURN;
use crate::{ErrorDetails, Event, WorkItem};

mod apply;
mod cancellation;
mod check_limits;
mod convert_messages;
mod decide;
mod draft;
mod end_execution;
mod execution;
mod finish;
mod history_index;
mod matching;
mod poll;
mod record;
mod self_wake;
mod start_event;
mod subscriptions;
mod work_items;

pub(crate) use cancellation::Cancellable;
pub use end_execution::fail_from_outside;
pub use execution::Execution;

/// The clock of a turn.
pub trait TurnClock {
    /// The store's time in milliseconds since the epoch; timers are due by it.
    fn store_ms(&self) -> u64;
    /// This node's time in milliseconds since the epoch; it stamps events.
    fn stamp_ms(&self) -> u64;
}

/// The execution that takes a turn, and the handler that runs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutionIdentity {
    /// The instance.
    pub instance: String,
    /// Its execution.
    pub execution_id: u64,
    /// Registered name of the orchestration.
    pub orchestration_name: String,
    /// Version of the handler that runs it.
    pub orchestration_version: String,
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TurnOutcome {
    /// The code waits for something durable.
    Continue,
    /// The code returned `Ok`.
    Completed {
        /// What it returned.
        output: String,
    },
    /// The code returned `Err` or panicked, or the execution could not go on.
    Failed {
        /// Why.
        details: ErrorDetails,
    },
    /// The code asked for a successor.
    ContinuedAsNew {
        /// Input of the successor.
        input: String,
    },
    /// The instance was cancelled.
    Cancelled {
        /// The reason given.
        reason: String,
    },
}

/// The result of a turn, to be committed whole or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// How it ended.
    pub outcome: TurnOutcome,
    /// New events, in order; begins with the start event in the first turn of an execution.
    pub history_delta: Vec<Event>,
    /// Activities to run.
    pub worker_items: Vec<WorkItem>,
    /// Messages to this instance and to others: timers, child starts, notices to parents, the successor.
    pub orchestrator_items: Vec<WorkItem>,
    /// Schedule ids of activities that are no longer wanted.
    pub cancelled_activities: Vec<u64>,
    /// Children that are no longer wanted.
    pub cancelled_children: Vec<CancelledChild>,
}

/// A child that its parent no longer wants.
///
/// Its id may be taken by an instance that this call did not start, so the cancellation names the call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CancelledChild {
    /// Instance id of the child.
    pub instance: String,
    /// The parent's schedule event.
    pub schedule_id: u64,
    /// Why it is cancelled.
    pub reason: String,
}

fn turn_limit() -> ErrorDetails {
    ErrorDetails::Infrastructure {
        operation: "turn_limit".to_owned(),
        message: format!("turn exceeded {MAX_DECISIONS_PER_TURN} decisions"),
        retryable: false,
    }
}

/// The text of a panic, if it has one.
pub fn panic_text(panic: &(dyn std::any::Any + Send)) -> Option<&str> {
    panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str))
}
