//! Fetches that wait in the writer until there is work for them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use everturn_core::SemverRange;
use everturn_provider::{ProviderError, SessionFetchConfig, TagFilter, WarmView};
use semver::Version;
use tokio::sync::oneshot;

use crate::fetch_orchestration_item::TurnAnswer;
use crate::fetch_work_item::WorkAnswer;

/// Where the answer to a fetch goes.
pub(crate) type FetchReply<A> = oneshot::Sender<Result<Option<A>, ProviderError>>;

/// What every waiter has.
pub(crate) trait Waiter {
    type Answer;
    const NAME: &'static str;
    fn id(&self) -> u64;
    /// Whether it takes one look and leaves.
    fn once(&self) -> bool;
    /// Whether nobody listens any more.
    fn is_gone(&self) -> bool;
    fn reply(self) -> FetchReply<Self::Answer>;
}

/// A dispatcher that waits for an instance.
pub(crate) struct TurnWaiter {
    pub(crate) id: u64,
    pub(crate) once: bool,
    pub(crate) lock_timeout: Duration,
    /// The pins it can replay; `None` for all.
    pub(crate) range: Option<SemverRange>,
    pub(crate) warm: Option<Arc<dyn WarmView>>,
    pub(crate) reply: FetchReply<TurnAnswer>,
}

impl TurnWaiter {
    /// Whether it can replay an execution with this pin.
    pub(crate) fn accepts(&self, pin: Option<&Version>) -> bool {
        match (&self.range, pin) {
            (Some(range), Some(pin)) => range.contains(pin),
            _ => true,
        }
    }
}

/// A worker that waits for an activity.
pub(crate) struct WorkWaiter {
    pub(crate) id: u64,
    pub(crate) once: bool,
    pub(crate) lock_timeout: Duration,
    pub(crate) session: Option<SessionFetchConfig>,
    pub(crate) tags: TagFilter,
    pub(crate) reply: FetchReply<WorkAnswer>,
}

impl WorkWaiter {
    /// Whether the other one would find nothing either. Who owns which session only matters if activities of sessions
    /// wait.
    pub(crate) fn wants_the_same(&self, other: &Self, sessions_wait: bool) -> bool {
        let owner = self.session.as_ref().map(|session| &session.owner_id);
        let same_owner = owner == other.session.as_ref().map(|session| &session.owner_id);
        self.tags == other.tags && (same_owner || !sessions_wait)
    }
}

impl Waiter for TurnWaiter {
    type Answer = TurnAnswer;
    const NAME: &'static str = "fetch_orchestration_item";

    fn id(&self) -> u64 {
        self.id
    }

    fn once(&self) -> bool {
        self.once
    }

    fn is_gone(&self) -> bool {
        self.reply.is_closed()
    }

    fn reply(self) -> FetchReply<TurnAnswer> {
        self.reply
    }
}

impl Waiter for WorkWaiter {
    type Answer = WorkAnswer;
    const NAME: &'static str = "fetch_work_item";

    fn id(&self) -> u64 {
        self.id
    }

    fn once(&self) -> bool {
        self.once
    }

    fn is_gone(&self) -> bool {
        self.reply.is_closed()
    }

    fn reply(self) -> FetchReply<WorkAnswer> {
        self.reply
    }
}

/// The waiters of one queue, the oldest first.
pub(crate) struct Line<W> {
    waiters: VecDeque<W>,
}

impl<W> Default for Line<W> {
    fn default() -> Self {
        Self { waiters: VecDeque::new() }
    }
}

impl<W: Waiter> Line<W> {
    pub(crate) fn join(&mut self, waiter: W) {
        self.waiters.push_back(waiter);
    }

    /// Somebody whose assignment was lost waits on, in the old place.
    pub(crate) fn rejoin(&mut self, waiter: W) {
        let place = self.waiters.partition_point(|other| other.id() < waiter.id());
        self.waiters.insert(place, waiter);
    }

    pub(crate) fn withdraw(&mut self, id: u64) {
        self.waiters.retain(|waiter| waiter.id() != id);
    }

    /// Forgets those that nobody listens for any more.
    pub(crate) fn tidy(&mut self) {
        self.waiters.retain(|waiter| !waiter.is_gone());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.waiters.len()
    }

    pub(crate) fn get(&self, place: usize) -> Option<&W> {
        self.waiters.get(place)
    }

    /// What all of them have in common, if they do.
    pub(crate) fn common<T: PartialEq>(&self, of: impl Fn(&W) -> &T) -> Option<&T> {
        let first = of(self.waiters.front()?);
        self.waiters.iter().all(|waiter| of(waiter) == first).then_some(first)
    }

    pub(crate) fn position(&self, wanted: impl FnMut(&W) -> bool) -> Option<usize> {
        self.waiters.iter().position(wanted)
    }

    pub(crate) fn take(&mut self, place: usize) -> Option<W> {
        self.waiters.remove(place)
    }

    /// Those that took their one look and found nothing.
    pub(crate) fn take_once(&mut self) -> Vec<W> {
        let (once, waiting) = self.waiters.drain(..).partition(W::once);
        self.waiters = waiting;
        Vec::from(once)
    }

    pub(crate) fn take_all(&mut self) -> Vec<W> {
        self.waiters.drain(..).collect()
    }
}
