//! Requests and answers of the reads.

use everturn_core::Event;

use super::warm::Stamp;

/// Asks for an execution with its history.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExecutionRead {
    /// The instance.
    pub instance: String,
    /// The execution; `None` for the latest.
    pub execution_id: Option<u64>,
    /// Whether the answer should have the stamp of the instance.
    pub with_stamp: bool,
}

impl ExecutionRead {
    /// The same; the answer has the stamp of the instance, if the store keeps one.
    #[must_use]
    pub fn with_stamp(mut self, with_stamp: bool) -> Self {
        self.with_stamp = with_stamp;
        self
    }

    /// The latest execution of an instance.
    pub fn latest(instance: impl Into<String>) -> Self {
        Self { instance: instance.into(), execution_id: None, with_stamp: false }
    }

    /// One execution of an instance.
    pub fn of(instance: impl Into<String>, execution_id: u64) -> Self {
        Self { instance: instance.into(), execution_id: Some(execution_id), with_stamp: false }
    }
}

/// An execution as it is stored.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct StoredExecution {
    /// Its events, ordered by id; empty for an unknown execution.
    pub history: Vec<Event>,
    /// The stamp of the instance at the moment of the read, if it was asked for and the store keeps one.
    pub stamp: Option<Stamp>,
}

impl StoredExecution {
    /// An execution with this history.
    pub fn new(history: Vec<Event>) -> Self {
        Self { history, stamp: None }
    }

    /// The same execution with the stamp of its instance.
    #[must_use]
    pub fn with_stamp(mut self, stamp: Option<Stamp>) -> Self {
        self.stamp = stamp;
        self
    }
}

/// The custom status of an instance.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CustomStatus {
    /// The text; `None` if it was cleared.
    pub text: Option<String>,
    /// Grows by one with each committed turn that changed it.
    pub version: u64,
}

/// Which orchestration an instance runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrchestrationName {
    /// Registered name.
    pub name: String,
    /// Version of the handler.
    pub version: String,
}
