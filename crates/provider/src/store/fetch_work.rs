//! Request and answer of [`Store::fetch_work`](super::Store::fetch_work).

use std::time::Duration;

use everturn_core::WorkItem;

use super::reads::OrchestrationName;
use crate::tags::TagFilter;
use crate::types::SessionFetchConfig;

/// Asks for locked activities.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WorkFetch {
    /// How many activities to lock at most.
    pub work_max: usize,
    /// How long each lock lasts.
    pub lock_timeout: Duration,
    /// How long to wait for work; zero looks once.
    pub poll_timeout: Duration,
    /// Lets the worker take activities of sessions; `None` for activities without a session only.
    pub session: Option<SessionFetchConfig>,
    /// Which tags the worker takes.
    pub tags: TagFilter,
}

impl WorkFetch {
    /// Asks for one untagged activity without a session.
    pub fn new(lock_timeout: Duration, poll_timeout: Duration) -> Self {
        Self { work_max: 1, lock_timeout, poll_timeout, session: None, tags: TagFilter::default() }
    }

    /// Asks for up to `work_max` activities.
    #[must_use]
    pub fn with_work_max(mut self, work_max: usize) -> Self {
        self.work_max = work_max;
        self
    }

    /// Also asks for activities of sessions.
    #[must_use]
    pub fn with_session(mut self, session: Option<SessionFetchConfig>) -> Self {
        self.session = session;
        self
    }

    /// Asks for activities with these tags.
    #[must_use]
    pub fn with_tags(mut self, tags: TagFilter) -> Self {
        self.tags = tags;
        self
    }
}

/// A locked activity.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FetchedWork {
    /// The activity.
    pub item: WorkItem,
    /// The right to settle it.
    pub lock_token: String,
    /// How much of the lock is left when the answer is given.
    pub lock_left: Duration,
    /// How often the activity was fetched.
    pub attempt_count: u32,
    /// The orchestration that scheduled it, if the store knows it without a further read.
    pub orchestration: Option<OrchestrationName>,
}

impl FetchedWork {
    /// A locked activity.
    pub fn new(item: WorkItem, lock_token: String, lock_left: Duration, attempt_count: u32) -> Self {
        Self { item, lock_token, lock_left, attempt_count, orchestration: None }
    }
}
