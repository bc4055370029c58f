//! Request and answer of [`Store::fetch_work`](super::Store::fetch_work).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use everturn_core::WorkItem;

use super::handlers::HandlerView;
use super::reads::OrchestrationName;
use super::session_places::{SessionPlace, SessionPlaces};
use crate::tags::TagFilter;
use crate::types::SessionFetchConfig;

/// Asks for locked activities.
#[derive(Clone)]
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
    /// How many sessions the caller serves at the same time; `None` for any number. Needs
    /// [`Feature::SessionPlaces`](super::Feature::SessionPlaces).
    pub session_places: Option<Arc<dyn SessionPlaces>>,
    /// Which tags the worker takes.
    pub tags: TagFilter,
    /// The handlers the worker has; `None` to be offered everything that is not delayed for all. Needs
    /// [`Feature::HandlerLookup`](super::Feature::HandlerLookup).
    pub handlers: Option<Arc<dyn HandlerView>>,
}

impl WorkFetch {
    /// Asks for one untagged activity without a session.
    pub fn new(lock_timeout: Duration, poll_timeout: Duration) -> Self {
        Self {
            work_max: 1,
            lock_timeout,
            poll_timeout,
            session: None,
            session_places: None,
            tags: TagFilter::default(),
            handlers: None,
        }
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

    /// Takes activities of sessions only as far as there are places for them.
    #[must_use]
    pub fn with_session_places(mut self, session_places: Arc<dyn SessionPlaces>) -> Self {
        self.session_places = Some(session_places);
        self
    }

    /// Asks for activities with these tags.
    #[must_use]
    pub fn with_tags(mut self, tags: TagFilter) -> Self {
        self.tags = tags;
        self
    }

    /// Says which handlers the worker has.
    #[must_use]
    pub fn with_handlers(mut self, handlers: Arc<dyn HandlerView>) -> Self {
        self.handlers = Some(handlers);
        self
    }
}

impl fmt::Debug for WorkFetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkFetch")
            .field("work_max", &self.work_max)
            .field("lock_timeout", &self.lock_timeout)
            .field("poll_timeout", &self.poll_timeout)
            .field("session", &self.session)
            .field("session_places", &self.session_places.is_some())
            .field("tags", &self.tags)
            .field("handlers", &self.handlers.is_some())
            .finish()
    }
}

/// A locked activity.
#[derive(Debug)]
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
    /// The place that was taken for its session, if the fetch had [`session_places`](WorkFetch::session_places).
    pub session_place: Option<SessionPlace>,
}

impl FetchedWork {
    /// A locked activity.
    pub fn new(item: WorkItem, lock_token: String, lock_left: Duration, attempt_count: u32) -> Self {
        Self { item, lock_token, lock_left, attempt_count, orchestration: None, session_place: None }
    }
}
