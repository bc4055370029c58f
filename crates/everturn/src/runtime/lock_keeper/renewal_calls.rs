//! Renewal calls under way. A call that hangs does not delay other calls.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use everturn_core::turn::panic_text;
use everturn_provider::ProviderError;
use everturn_provider::store::{LockRenewal, Renewal, Renewed, Store};
use tokio::time::Instant;

use super::super::catch_panic::catch_panic;

/// What the store answered to a renewal call.
type RenewalAnswer = Result<Renewed, ProviderError>;

/// The locks that one call renews.
#[derive(Default)]
pub(super) struct RenewalBatch {
    pub(super) ids: Vec<u64>,
    pub(super) locks: Vec<LockRenewal>,
}

/// A call that was answered.
pub(super) struct AnsweredRenewals {
    pub(super) ids: Vec<u64>,
    pub(super) sent_at: Instant,
    pub(super) answers: RenewalAnswer,
}

/// The calls under way.
#[derive(Default)]
pub(super) struct RenewalCalls<'a>(Vec<RenewalCall<'a>>);

struct RenewalCall<'a> {
    ids: Vec<u64>,
    sent_at: Instant,
    answers: Pin<Box<dyn Future<Output = RenewalAnswer> + Send + 'a>>,
}

impl<'a> RenewalCalls<'a> {
    /// Sends another call. If the store panics, every lock of the call counts as not answered.
    pub(super) fn send(&mut self, store: &'a dyn Store, batch: RenewalBatch, sent_at: Instant) {
        let RenewalBatch { ids, locks } = batch;
        let renewal = Renewal::of_locks(locks);
        let answers = Box::pin(async move {
            let renewing = catch_panic(async { store.renew(&renewal).await });
            renewing.await.unwrap_or_else(|payload| {
                tracing::error!(target: "everturn::runtime", panic = panic_text(payload.as_ref()).unwrap_or("?"),
                    "the store panicked while renewing locks; retrying");
                Err(ProviderError::retryable("renew", "the store panicked"))
            })
        });
        self.0.push(RenewalCall { ids, sent_at, answers });
    }

    /// Cancels the calls none of whose locks is kept any more.
    pub(super) fn cancel_unless(&mut self, is_kept: impl Fn(u64) -> bool) {
        self.0.retain(|call| call.ids.iter().any(|id| is_kept(*id)));
    }

    /// Returns the next answered call. Never returns if no call is under way.
    pub(super) async fn next(&mut self) -> AnsweredRenewals {
        poll_fn(|cx| {
            let answered = self.0.iter_mut().enumerate().find_map(|(index, call)| {
                match call.answers.as_mut().poll(cx) {
                    Poll::Ready(answers) => Some((index, answers)),
                    Poll::Pending => None,
                }
            });
            let Some((index, answers)) = answered else { return Poll::Pending };
            let RenewalCall { ids, sent_at, .. } = self.0.swap_remove(index);
            Poll::Ready(AnsweredRenewals { ids, sent_at, answers })
        })
        .await
    }
}
