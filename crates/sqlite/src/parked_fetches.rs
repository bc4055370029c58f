//! Fetches that are parked in the writer until there is work for them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use everturn_core::SemverRange;
use everturn_provider::store::WarmView;
use everturn_provider::{ProviderError, SessionFetchConfig, TagFilter};
use semver::Version;
use tokio::sync::oneshot;

use crate::fetch_turns::TurnAnswer;
use crate::fetch_work::WorkAnswer;

/// Where the answer to a fetch goes.
pub(crate) type FetchReply<A> = oneshot::Sender<Result<Option<A>, ProviderError>>;

/// What the fetches of both queues have in common.
pub(crate) trait ParkedFetch {
    type Answer;
    const NAME: &'static str;
    fn id(&self) -> u64;
    /// Whether it takes one look and is not parked.
    fn once(&self) -> bool;
    /// Whether its caller no longer listens.
    fn is_gone(&self) -> bool;
    fn into_reply(self) -> FetchReply<Self::Answer>;
}

/// A dispatcher's fetch of an instance.
pub(crate) struct ParkedTurnFetch {
    pub(crate) id: u64,
    pub(crate) once: bool,
    pub(crate) lock_timeout: Duration,
    /// The pinned versions it can replay; `None` for all.
    pub(crate) range: Option<SemverRange>,
    pub(crate) warm: Option<Arc<dyn WarmView>>,
    pub(crate) reply: FetchReply<TurnAnswer>,
}

impl ParkedTurnFetch {
    /// Whether it can replay an execution with this pin.
    pub(crate) fn accepts(&self, pin: Option<&Version>) -> bool {
        match (&self.range, pin) {
            (Some(range), Some(pin)) => range.contains(pin),
            _ => true,
        }
    }
}

/// A worker's fetch of an activity.
pub(crate) struct ParkedWorkFetch {
    pub(crate) id: u64,
    pub(crate) once: bool,
    pub(crate) lock_timeout: Duration,
    pub(crate) session: Option<SessionFetchConfig>,
    pub(crate) tags: TagFilter,
    pub(crate) reply: FetchReply<WorkAnswer>,
}

impl ParkedWorkFetch {
    /// Whether `other` finds nothing where this one found nothing. The owner of a session matters only if activities of
    /// sessions are ready.
    pub(crate) fn wants_the_same(&self, other: &Self, session_work_is_ready: bool) -> bool {
        let owner = self.session.as_ref().map(|session| &session.owner_id);
        let same_owner = owner == other.session.as_ref().map(|session| &session.owner_id);
        self.tags == other.tags && (same_owner || !session_work_is_ready)
    }
}

impl ParkedFetch for ParkedTurnFetch {
    type Answer = TurnAnswer;
    const NAME: &'static str = "fetch_turns";

    fn id(&self) -> u64 {
        self.id
    }

    fn once(&self) -> bool {
        self.once
    }

    fn is_gone(&self) -> bool {
        self.reply.is_closed()
    }

    fn into_reply(self) -> FetchReply<TurnAnswer> {
        self.reply
    }
}

impl ParkedFetch for ParkedWorkFetch {
    type Answer = WorkAnswer;
    const NAME: &'static str = "fetch_work";

    fn id(&self) -> u64 {
        self.id
    }

    fn once(&self) -> bool {
        self.once
    }

    fn is_gone(&self) -> bool {
        self.reply.is_closed()
    }

    fn into_reply(self) -> FetchReply<WorkAnswer> {
        self.reply
    }
}

/// The parked fetches of both queues.
#[derive(Default)]
pub(crate) struct ParkedFetches {
    pub(crate) turns: FetchLine<ParkedTurnFetch>,
    pub(crate) work: FetchLine<ParkedWorkFetch>,
}

impl ParkedFetches {
    pub(crate) fn is_empty(&self) -> bool {
        self.turns.is_empty() && self.work.is_empty()
    }

    pub(crate) fn cancel(&mut self, id: u64) {
        self.turns.parked.retain(|fetch| fetch.id != id);
        self.work.parked.retain(|fetch| fetch.id != id);
    }

    /// Forgets fetches whose caller no longer listens.
    pub(crate) fn forget_gone(&mut self) {
        self.turns.parked.retain(|fetch| !fetch.is_gone());
        self.work.parked.retain(|fetch| !fetch.is_gone());
    }

    /// Fails the fetches that take one look: they cannot wait for the store to come back.
    pub(crate) fn fail_once(&mut self, reason: &str) {
        for fetch in self.turns.take_once() {
            fail_retryable(fetch, reason);
        }
        for fetch in self.work.take_once() {
            fail_retryable(fetch, reason);
        }
    }

    /// Fails all of them for good.
    pub(crate) fn fail_all(&mut self, reason: &str) {
        for fetch in self.turns.parked.drain(..) {
            fail_for_good(fetch, reason);
        }
        for fetch in self.work.parked.drain(..) {
            fail_for_good(fetch, reason);
        }
    }

    /// Answers all of them that there is no work.
    pub(crate) fn answer_none_to_all(&mut self) {
        self.turns.parked.drain(..).for_each(answer_none);
        self.work.parked.drain(..).for_each(answer_none);
    }
}

/// Tells the caller that the store failed for now.
pub(crate) fn fail_retryable<F: ParkedFetch>(fetch: F, reason: &str) {
    // A caller that left wants no answer.
    drop(fetch.into_reply().send(Err(ProviderError::retryable(F::NAME, reason))));
}

/// Tells the caller that the store failed and does not come back.
pub(crate) fn fail_for_good<F: ParkedFetch>(fetch: F, reason: &str) {
    // A caller that left wants no answer.
    drop(fetch.into_reply().send(Err(ProviderError::permanent(F::NAME, reason))));
}

/// Tells the caller that there is no work.
pub(crate) fn answer_none<F: ParkedFetch>(fetch: F) {
    // A caller that left wants no answer.
    drop(fetch.into_reply().send(Ok(None)));
}

/// The parked fetches of one queue, the oldest first.
pub(crate) struct FetchLine<F> {
    parked: VecDeque<F>,
}

impl<F> Default for FetchLine<F> {
    fn default() -> Self {
        Self { parked: VecDeque::new() }
    }
}

impl<F: ParkedFetch> FetchLine<F> {
    pub(crate) fn park(&mut self, fetch: F) {
        self.parked.push_back(fetch);
    }

    /// Parks a fetch whose assignment was lost again, in its old place.
    pub(crate) fn park_again(&mut self, fetch: F) {
        let place = self.parked.partition_point(|other| other.id() < fetch.id());
        self.parked.insert(place, fetch);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parked.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.parked.len()
    }

    pub(crate) fn get(&self, place: usize) -> Option<&F> {
        self.parked.get(place)
    }

    /// What all of them have in common, if they do.
    pub(crate) fn common<T: PartialEq>(&self, of: impl Fn(&F) -> &T) -> Option<&T> {
        let first = of(self.parked.front()?);
        self.parked.iter().all(|fetch| of(fetch) == first).then_some(first)
    }

    pub(crate) fn position(&self, wanted: impl FnMut(&F) -> bool) -> Option<usize> {
        self.parked.iter().position(wanted)
    }

    pub(crate) fn take(&mut self, place: usize) -> Option<F> {
        self.parked.remove(place)
    }

    /// The fetches that take one look.
    pub(crate) fn take_once(&mut self) -> Vec<F> {
        let (once, parked) = self.parked.drain(..).partition(F::once);
        self.parked = parked;
        Vec::from(once)
    }
}
