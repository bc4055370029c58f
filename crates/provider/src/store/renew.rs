//! Request and answer of [`Store::renew`](super::Store::renew).

use std::time::Duration;

use crate::error::ProviderError;

/// Extends locks and session leases.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Renewal {
    /// Locks to extend.
    pub locks: Vec<LockRenewal>,
    /// Session leases to extend.
    pub sessions: Option<SessionRenewal>,
}

impl Renewal {
    /// Extends locks.
    pub fn of_locks(locks: Vec<LockRenewal>) -> Self {
        Self { locks, sessions: None }
    }

    /// Extends session leases.
    pub fn of_sessions(sessions: SessionRenewal) -> Self {
        Self { locks: Vec::new(), sessions: Some(sessions) }
    }
}

/// Extends the leases of these owners' live sessions that were active within `idle_timeout`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRenewal {
    /// The owners.
    pub owner_ids: Vec<String>,
    /// How long a lease lasts from now.
    pub extend_for: Duration,
    /// A session without activity for longer than this is not extended.
    pub idle_timeout: Duration,
}

/// What became of a [`Renewal`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Renewed {
    /// One answer per lock, in order.
    pub locks: Vec<Result<(), ProviderError>>,
    /// How many sessions were extended.
    pub sessions: usize,
}

impl Renewed {
    /// The answers to a renewal.
    pub fn new(locks: Vec<Result<(), ProviderError>>, sessions: usize) -> Self {
        Self { locks, sessions }
    }
}

/// Which of the two kinds of lock a token belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockKind {
    /// The lock of an instance, from an orchestration fetch.
    Orchestration,
    /// The lock of an activity, from a worker fetch.
    WorkItem,
}

/// One lock to be renewed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockRenewal {
    /// What kind of lock it is.
    pub kind: LockKind,
    /// Its token.
    pub token: String,
    /// How long it should last from now.
    pub extend_for: Duration,
}
