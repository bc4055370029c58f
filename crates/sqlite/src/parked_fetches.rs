//! Fetches that are parked in the writer until there is work for them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use everturn_core::SemverRange;
use everturn_provider::store::{HandlerKey, HandlerView, SessionPlaces, WarmView, WorkFetch};
use everturn_provider::{ProviderError, SessionFetchConfig, TagFilter};
use semver::Version;
use tokio::sync::oneshot;

use crate::engine_version::OWN_ENGINE;
use crate::fetch_turns::TurnAnswer;
use crate::fetch_work::WorkAnswer;
use crate::ready_instances::Candidate;

/// The id of fetches that are served before all others. Those with an id of their own have a greater one.
pub(crate) const FIRST_IN_LINE: u64 = 0;

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
    /// How many instances it takes at most.
    pub(crate) turns_max: usize,
    pub(crate) lock_timeout: Duration,
    /// The pinned versions it can replay; `None` for all.
    pub(crate) range: Option<SemverRange>,
    pub(crate) warm: Option<Arc<dyn WarmView>>,
    pub(crate) handlers: Option<Arc<dyn HandlerView>>,
    pub(crate) reply: FetchReply<Vec<TurnAnswer>>,
}

impl ParkedTurnFetch {
    /// Whether it can replay an execution with this pin.
    fn accepts(&self, pin: Option<&Version>) -> bool {
        match (&self.range, pin) {
            (Some(range), Some(pin)) => range.contains(pin),
            _ => true,
        }
    }

    /// Whether it may be assigned this instance.
    pub(crate) fn may_take(&self, candidate: &Candidate) -> bool {
        candidate.needs_engine <= OWN_ENGINE
            && self.accepts(candidate.pin())
            && candidate.missing_handler.as_ref().is_none_or(|handler| self.has(handler))
    }

    /// Whether its runtime takes a step of this instance at the moment.
    pub(crate) fn is_stepping(&self, candidate: &Candidate) -> bool {
        self.warm.as_ref().is_some_and(|warm| warm.is_stepping(&candidate.instance_id))
    }

    /// Whether its runtime has this handler, or does not say what it has.
    pub(crate) fn has(&self, handler: &HandlerKey) -> bool {
        self.handlers.as_ref().is_none_or(|handlers| handlers.has(handler))
    }
}

/// A worker's fetch of an activity.
pub(crate) struct ParkedWorkFetch {
    pub(crate) id: u64,
    pub(crate) once: bool,
    pub(crate) lock_timeout: Duration,
    pub(crate) session: Option<SessionFetchConfig>,
    pub(crate) session_places: Option<Arc<dyn SessionPlaces>>,
    pub(crate) tags: TagFilter,
    pub(crate) handlers: Option<Arc<dyn HandlerView>>,
    pub(crate) reply: FetchReply<WorkAnswer>,
}

impl ParkedWorkFetch {
    /// The fetch of a worker whose activity ended in a step: it takes one look, before all others.
    pub(crate) fn of_step(fetch: &WorkFetch, reply: FetchReply<WorkAnswer>) -> Self {
        Self::new(FIRST_IN_LINE, true, fetch, reply)
    }

    pub(crate) fn new(id: u64, once: bool, fetch: &WorkFetch, reply: FetchReply<WorkAnswer>) -> Self {
        Self {
            id,
            once,
            lock_timeout: fetch.lock_timeout,
            session: fetch.session.clone(),
            session_places: fetch.session_places.clone(),
            tags: fetch.tags.clone(),
            handlers: fetch.handlers.clone(),
            reply,
        }
    }

    /// Whether both may take the same activities, apart from those of sessions: their tags and their handlers are the same.
    pub(crate) fn wants_the_same(&self, tags: &TagFilter, handlers: Option<&Arc<dyn HandlerView>>) -> bool {
        let is_same_view = match (&self.handlers, handlers) {
            (Some(own), Some(other)) => Arc::ptr_eq(own, other),
            (own, other) => own.is_none() && other.is_none(),
        };
        self.tags == *tags && is_same_view
    }

    /// Whether its runtime has this activity, or does not say what it has.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.handlers.as_ref().is_none_or(|handlers| handlers.has(&HandlerKey::activity(name)))
    }
}

impl ParkedFetch for ParkedTurnFetch {
    type Answer = Vec<TurnAnswer>;
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

    fn into_reply(self) -> FetchReply<Vec<TurnAnswer>> {
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
        if fetch.id() == FIRST_IN_LINE {
            self.park_again(fetch);
        } else {
            self.parked.push_back(fetch);
        }
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

    pub(crate) fn iter(&self) -> impl Iterator<Item = &F> {
        self.parked.iter()
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
