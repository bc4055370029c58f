//! Request of [`Store::abandon_turn`](super::Store::abandon_turn).

use std::time::Duration;

/// Releases the lock of an instance without a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TurnAbandon {
    /// The lock.
    pub lock_token: String,
    /// How long the fetched messages stay invisible.
    pub delay: Option<Duration>,
    /// Takes back the attempt that the fetch counted.
    pub ignore_attempt: bool,
}

impl TurnAbandon {
    /// Releases the lock at once; the attempt counts.
    pub fn new(lock_token: impl Into<String>) -> Self {
        Self { lock_token: lock_token.into(), delay: None, ignore_attempt: false }
    }

    /// Keeps the fetched messages invisible for a while.
    #[must_use]
    pub fn with_delay(mut self, delay: Option<Duration>) -> Self {
        self.delay = delay;
        self
    }

    /// Takes back the attempt that the fetch counted.
    #[must_use]
    pub fn with_ignored_attempt(mut self, ignore_attempt: bool) -> Self {
        self.ignore_attempt = ignore_attempt;
        self
    }
}
