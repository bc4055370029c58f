//! Calls for renewal that are under way. One that hangs keeps no other from being made.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use everturn_core::turn::panic_text;
use everturn_provider::{LockRenewal, ProviderError};
use tokio::time::Instant;

use super::super::catch_panic::caught;
use super::Renewer;

/// The answers to a call for renewal, in order.
pub(super) type Answers = Vec<Result<(), ProviderError>>;

/// Locks that one call asks for.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) ids: Vec<u64>,
    pub(super) renewals: Vec<LockRenewal>,
}

/// A call that was answered.
pub(super) struct Answered {
    pub(super) ids: Vec<u64>,
    pub(super) sent_at: Instant,
    pub(super) answers: Answers,
}

/// The calls under way.
#[derive(Default)]
pub(super) struct Calls<'a>(Vec<Call<'a>>);

struct Call<'a> {
    ids: Vec<u64>,
    sent_at: Instant,
    answers: Pin<Box<dyn Future<Output = Answers> + Send + 'a>>,
}

impl<'a> Calls<'a> {
    /// Makes another call. A store that panics has answered nothing.
    pub(super) fn make(&mut self, store: &'a impl Renewer, batch: Batch, sent_at: Instant) {
        let Batch { ids, renewals } = batch;
        let answers = Box::pin(async move {
            let renewing = caught(async { store.renew(&renewals).await });
            renewing.await.unwrap_or_else(|payload| {
                tracing::error!(target: "everturn::runtime", panic = panic_text(payload.as_ref()).unwrap_or("?"),
                    "the store panicked while it renewed locks");
                Answers::new()
            })
        });
        self.0.push(Call { ids, sent_at, answers });
    }

    /// Gives up the calls whose answers nobody waits for any more.
    pub(super) fn forget_unless(&mut self, is_waited_for: impl Fn(u64) -> bool) {
        self.0.retain(|call| call.ids.iter().any(|id| is_waited_for(*id)));
    }

    /// Waits for an answer; for ever if no call is under way.
    pub(super) async fn next(&mut self) -> Answered {
        poll_fn(|cx| {
            let answered = self.0.iter_mut().enumerate().find_map(|(index, call)| {
                match call.answers.as_mut().poll(cx) {
                    Poll::Ready(answers) => Some((index, answers)),
                    Poll::Pending => None,
                }
            });
            let Some((index, answers)) = answered else { return Poll::Pending };
            let Call { ids, sent_at, .. } = self.0.swap_remove(index);
            Poll::Ready(Answered { ids, sent_at, answers })
        })
        .await
    }
}
