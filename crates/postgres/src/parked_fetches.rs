//! Fetches that wait for work in the fetch lane.

use std::sync::Arc;

use everturn_provider::ProviderError;
use everturn_provider::store::{HandlerKey, HandlerView, TurnFetch, WorkFetch};
use tokio::sync::oneshot;

use crate::fetch_turns::TurnAnswer;
use crate::fetch_work::WorkAnswer;

/// Where the answer of a fetch goes; none after a look that found nothing.
pub(crate) type FetchReply<A> = oneshot::Sender<Result<Vec<A>, ProviderError>>;

/// A fetch of instances that waits.
pub(crate) struct ParkedTurnFetch {
    pub(crate) fetch: TurnFetch,
    /// It looks once and is then answered.
    pub(crate) once: bool,
    pub(crate) reply: FetchReply<TurnAnswer>,
}

/// A fetch of activities that waits.
pub(crate) struct ParkedWorkFetch {
    pub(crate) fetch: Arc<WorkFetch>,
    pub(crate) once: bool,
    pub(crate) reply: FetchReply<WorkAnswer>,
}

/// Whether a fetch with these handlers may take what was given back for the lack of this one. One that names none may take all.
pub(crate) fn may_take(handlers: Option<&Arc<dyn HandlerView>>, missing: Option<&HandlerKey>) -> bool {
    missing.is_none_or(|missing| handlers.is_none_or(|handlers| handlers.has(missing)))
}
