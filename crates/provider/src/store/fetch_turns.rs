//! Request and answer of [`Store::fetch_turns`](super::Store::fetch_turns).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::handlers::HandlerView;
use super::messages::MessageNotes;
use super::warm::{LentInstance, Stamp, WarmView};
use crate::types::{DispatcherCapabilityFilter, OrchestrationItem};

/// Asks for locked instances.
///
/// ```
/// use std::time::Duration;
/// use everturn_provider::store::TurnFetch;
///
/// let fetch = TurnFetch::new(Duration::from_secs(30), Duration::from_secs(5));
/// assert_eq!(fetch.turns_max, 1);
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct TurnFetch {
    /// How many instances to lock at most. A store may lock fewer than are ready. An instance with a message that was
    /// fetched before comes alone: its turn may be what ended the process that fetched it.
    pub turns_max: usize,
    /// How long each lock lasts.
    pub lock_timeout: Duration,
    /// How long to wait for work; zero looks once.
    pub poll_timeout: Duration,
    /// Which executions the caller can replay; `None` for all.
    pub filter: Option<DispatcherCapabilityFilter>,
    /// The instances the caller keeps in memory. Needs [`Feature::WarmInstances`](super::Feature::WarmInstances).
    pub warm: Option<Arc<dyn WarmView>>,
    /// The handlers the caller has; `None` to be offered everything that is not delayed for all. Needs
    /// [`Feature::HandlerLookup`](super::Feature::HandlerLookup).
    pub handlers: Option<Arc<dyn HandlerView>>,
}

impl TurnFetch {
    /// Asks for one instance, whatever its version.
    pub fn new(lock_timeout: Duration, poll_timeout: Duration) -> Self {
        Self { turns_max: 1, lock_timeout, poll_timeout, filter: None, warm: None, handlers: None }
    }

    /// Asks for up to `turns_max` instances.
    #[must_use]
    pub fn with_turns_max(mut self, turns_max: usize) -> Self {
        self.turns_max = turns_max;
        self
    }

    /// Asks only for executions that the filter accepts.
    #[must_use]
    pub fn with_filter(mut self, filter: DispatcherCapabilityFilter) -> Self {
        self.filter = Some(filter);
        self
    }

    /// Lends the caller's instances in memory.
    #[must_use]
    pub fn with_warm(mut self, warm: Arc<dyn WarmView>) -> Self {
        self.warm = Some(warm);
        self
    }

    /// Says which handlers the caller has.
    #[must_use]
    pub fn with_handlers(mut self, handlers: Arc<dyn HandlerView>) -> Self {
        self.handlers = Some(handlers);
        self
    }
}

impl fmt::Debug for TurnFetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TurnFetch")
            .field("turns_max", &self.turns_max)
            .field("lock_timeout", &self.lock_timeout)
            .field("poll_timeout", &self.poll_timeout)
            .field("filter", &self.filter)
            .field("warm", &self.warm.is_some())
            .field("handlers", &self.handlers)
            .finish()
    }
}

/// A locked instance.
#[derive(Debug)]
#[non_exhaustive]
pub struct FetchedTurn {
    /// The instance and its messages. If `warm` is set, `history` and `kv_snapshot` are empty: memory has them.
    pub item: OrchestrationItem,
    /// The notes of the messages, in the order of the messages; empty if the store keeps none.
    pub notes: Vec<MessageNotes>,
    /// The right to commit this turn.
    pub lock_token: String,
    /// How much of the lock is left when the answer is given.
    pub lock_left: Duration,
    /// How often the most fetched of the messages was fetched.
    pub attempt_count: u32,
    /// The instance as the caller kept it.
    pub warm: Option<LentInstance>,
    /// The stamp the execution bears, for [`TurnCommit::base`](super::TurnCommit::base); `None` if the store keeps none
    /// or there is no execution yet.
    pub stamp: Option<Stamp>,
}

impl FetchedTurn {
    /// A locked instance that is not in memory, whose messages have no notes.
    pub fn new(item: OrchestrationItem, lock_token: String, lock_left: Duration, attempt_count: u32) -> Self {
        Self { item, notes: Vec::new(), lock_token, lock_left, attempt_count, warm: None, stamp: None }
    }
}
