//! Request and answer of [`Store::sweep`](super::Store::sweep).

use std::time::Duration;

/// Removes what has expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sweep {
    /// A session without activity for longer than this is idle.
    pub session_idle_timeout: Duration,
    /// A message that has waited this long for a start of its instance is dead-lettered; `None` keeps such messages. Needs
    /// [`Feature::DeadLetters`](super::Feature::DeadLetters).
    pub dead_letter_after: Option<Duration>,
}

impl Sweep {
    /// Removes expired sessions.
    pub fn new(session_idle_timeout: Duration) -> Self {
        Self { session_idle_timeout, dead_letter_after: None }
    }

    /// Dead-letters messages that have waited this long for a start of their instance, too.
    #[must_use]
    pub fn with_dead_letter_after(mut self, waited: Duration) -> Self {
        self.dead_letter_after = Some(waited);
        self
    }
}

/// What a [`Sweep`] removed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Swept {
    /// Sessions.
    pub sessions: usize,
    /// Messages, at most [`MAX_DEAD_LETTERS_PER_SWEEP`](everturn_core::limits::MAX_DEAD_LETTERS_PER_SWEEP).
    pub dead_letters: Vec<DeadLetter>,
}

impl Swept {
    /// So many sessions were removed.
    pub fn new(sessions: usize) -> Self {
        Self { sessions, dead_letters: Vec::new() }
    }

    /// These messages were dead-lettered, too.
    #[must_use]
    pub fn with_dead_letters(mut self, dead_letters: Vec<DeadLetter>) -> Self {
        self.dead_letters = dead_letters;
        self
    }
}

/// A message that was taken out of the orchestrator queue and kept aside.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct DeadLetter {
    /// The instance that was never started.
    pub instance: String,
    /// The kind of the message, as [`kind_of`](everturn_core::kind_of) names it.
    pub kind: String,
}

impl DeadLetter {
    /// A message of this kind for this instance.
    pub fn new(instance: impl Into<String>, kind: impl Into<String>) -> Self {
        Self { instance: instance.into(), kind: kind.into() }
    }
}
