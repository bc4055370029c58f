//! Request and answer of [`Store::commit_step`](super::Store::commit_step).

use std::sync::Arc;

use super::commit_turn::TurnCommit;
use super::fetch_work::{FetchedWork, WorkFetch};

/// A fused step: activities ended in the process that keeps their instance in memory, and the turn on their outcomes was
/// taken there without a lock of the instance. It is committed together with their end.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StepCommit {
    /// The instance.
    pub instance: String,
    /// The activities that ended.
    pub ended: Vec<EndedWork>,
    /// What the turn decided. It names the stamp it builds on, and has no lock token. Its new activities are queued, unless
    /// the caller is given them at once.
    pub turn: TurnCommit,
}

impl StepCommit {
    /// A step of `instance`. `turn` must name its base.
    pub fn new(instance: impl Into<String>, ended: Vec<EndedWork>, turn: TurnCommit) -> Self {
        Self { instance: instance.into(), ended, turn }
    }
}

/// An activity that ended, and what its worker takes next.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EndedWork {
    /// The lock of the activity.
    pub lock_token: String,
    /// What the worker can run next; `None` if it takes nothing.
    pub next: Option<NextWork>,
}

impl EndedWork {
    /// An activity whose worker takes `next`.
    pub fn new(lock_token: impl Into<String>, next: Option<NextWork>) -> Self {
        Self { lock_token: lock_token.into(), next }
    }
}

/// Asks for the worker's next activity in the same commit: the oldest ready one that it may take, which may be one that the
/// step itself schedules.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct NextWork {
    /// What the worker can take. It never waits, and takes one activity.
    pub fetch: Arc<WorkFetch>,
    /// The random part of the lock token. The caller draws it, so that a repeated call finds what the first one locked. A store
    /// that takes back what a call locked whose answer was not read need not use it.
    pub random: u128,
}

impl NextWork {
    /// Asks for what `fetch` may take.
    pub fn new(fetch: Arc<WorkFetch>, random: u128) -> Self {
        Self { fetch, random }
    }
}

/// What became of a step.
#[derive(Debug)]
pub enum StepAnswer {
    /// It is durable. The activities that the workers go on with, one place per ended activity.
    Committed(Vec<Option<FetchedWork>>),
    /// Nothing was written: the outcomes go the ordinary way.
    Declined(StepDecline),
}

/// Why a step was declined. None of these is an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StepDecline {
    /// The store does not fuse steps.
    NotSupported,
    /// Another commit changed the instance, or it was deleted.
    HistoryMoved,
    /// The instance is locked, or waits for the end of a delay.
    Locked,
    /// Messages of the instance wait to be read.
    MessagesWaiting,
    /// An ended activity is not in the queue any more, or its lock is lost.
    WorkGone,
}
