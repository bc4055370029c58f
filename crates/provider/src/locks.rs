//! Renewing many locks at once.

use std::time::Duration;

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
