//! Request of [`Store::abandon_turn`](super::Store::abandon_turn).

use std::time::Duration;

use super::handlers::HandlerKey;

/// Releases the lock of an instance without a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TurnAbandon {
    /// The lock.
    pub lock_token: String,
    /// How long the instance cannot be fetched. Messages that come meanwhile wait with it, so that none overtakes another.
    pub delay: Option<Duration>,
    /// Takes back the attempt that the fetch counted.
    pub ignore_attempt: bool,
    /// The handler that the caller lacks: then the delay concerns only callers that lack it, too. Needs
    /// [`Feature::HandlerLookup`](super::Feature::HandlerLookup).
    pub missing_handler: Option<HandlerKey>,
}

impl TurnAbandon {
    /// Releases the lock at once; the attempt counts.
    pub fn new(lock_token: impl Into<String>) -> Self {
        Self { lock_token: lock_token.into(), delay: None, ignore_attempt: false, missing_handler: None }
    }

    /// Delays the instance.
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

    /// Lets callers with this handler fetch the instance during the delay.
    #[must_use]
    pub fn with_missing_handler(mut self, missing_handler: Option<HandlerKey>) -> Self {
        self.missing_handler = missing_handler;
        self
    }
}
