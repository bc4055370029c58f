//! Request and answer of [`Store::sweep`](super::Store::sweep).

use std::time::Duration;

/// Removes what has expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sweep {
    /// A session without activity for longer than this is idle.
    pub session_idle_timeout: Duration,
}

impl Sweep {
    /// Removes expired sessions.
    pub fn new(session_idle_timeout: Duration) -> Self {
        Self { session_idle_timeout }
    }
}

/// What a [`Sweep`] removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Swept {
    /// Sessions.
    pub sessions: usize,
}

impl Swept {
    /// So many sessions were removed.
    pub fn new(sessions: usize) -> Self {
        Self { sessions }
    }
}
