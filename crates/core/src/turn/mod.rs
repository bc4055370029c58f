//! The turn engine: events in, decisions out.
//!
//! An [`Execution`] is one execution of an instance in memory. It is made from a stored history ([`Execution::replay`])
//! or from a fresh start event ([`Execution::begin`]), takes a turn for each batch of messages, and can be kept between
//! turns: the next turn then applies only what is new. Live and replay are the same loop.

use std::collections::HashMap;

use crate::{ErrorDetails, Event, KvEntry, OrchestrationHandlerRef, WorkItem};

/// Where a turn gets the time from.
pub trait TurnClock {
    /// The store's time in milliseconds since the epoch; timers are due by it.
    fn store_ms(&self) -> u64;
    /// This node's time in milliseconds since the epoch; it stamps events.
    fn stamp_ms(&self) -> u64;
}

/// Whose turn it is.
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
    /// The code returned `Err`, or could not go on.
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

/// Everything a turn decided, to be committed whole or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// How it ended.
    pub outcome: TurnOutcome,
    /// New events, in order; begins with the start event in the first turn of an execution.
    pub history_delta: Vec<Event>,
    /// Activities to run.
    pub worker_items: Vec<WorkItem>,
    /// Messages to other instances and to this one: timers, child starts, notices, the successor.
    pub orchestrator_items: Vec<WorkItem>,
    /// Schedule ids of activities that are no longer wanted.
    pub cancelled_activities: Vec<u64>,
}

/// One execution of an instance in memory.
pub struct Execution {}

impl Execution {
    /// A new execution; its first turn records `start`, which must be an `OrchestrationStarted` event.
    pub fn begin(
        _handler: OrchestrationHandlerRef,
        _identity: ExecutionIdentity,
        _start: Event,
        _kv: HashMap<String, KvEntry>,
        _payload_bytes_max: usize,
    ) -> Self {
        Self {}
    }

    /// An execution as its stored history left it; the history is replayed in the next turn.
    pub fn replay(
        _handler: OrchestrationHandlerRef,
        _identity: ExecutionIdentity,
        _history: Vec<Event>,
        _kv: HashMap<String, KvEntry>,
        _payload_bytes_max: usize,
    ) -> Self {
        Self {}
    }

    /// Takes a turn: applies the messages and runs the code until it waits.
    ///
    /// After any outcome but [`TurnOutcome::Continue`] the execution is over and must be dropped.
    pub fn take_turn(&mut self, _messages: Vec<WorkItem>, _clock: &dyn TurnClock) -> Turn {
        unimplemented!()
    }

    /// The id of the last event, those of the last turn included.
    pub fn last_event_id(&self) -> u64 {
        0
    }

    /// How many events the history has, those of the last turn included.
    pub fn event_count(&self) -> usize {
        0
    }

    /// An estimate of the memory this execution holds: a base, and the payloads it was given.
    pub fn weight_bytes(&self) -> usize {
        0
    }
}
