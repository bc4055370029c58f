//! Request and answer of [`Store::submit`](super::Store::submit).

use super::messages::NewMessage;

/// What a client sends: starts, signals, queue messages, cancellations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Submission {
    /// The messages; all of them are enqueued or none.
    pub messages: Vec<NewMessage>,
}

impl Submission {
    /// One message.
    pub fn of(message: impl Into<NewMessage>) -> Self {
        Self { messages: vec![message.into()] }
    }

    /// Several messages.
    pub fn of_all(messages: Vec<NewMessage>) -> Self {
        Self { messages }
    }
}

/// What became of a submitted message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Receipt {
    /// It is in the queue.
    Queued,
}
