//! Locks that were given up before their work had begun: the keeper abandons them, so that others can do the work at once and
//! the attempt does not count.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use everturn_core::turn::panic_text;
use everturn_provider::store::{Store, TurnAbandon};

use super::super::catch_panic::catch_panic;
use super::super::retrying::retrying;
use super::super::uncounted_attempts::{AttemptKey, UncountedAttempts};

/// The lock of a turn that was given up before the turn's code ran.
pub(super) struct AbandonedLock {
    pub(super) token: String,
    /// How long the store is tried.
    pub(super) timeout: Duration,
    pub(super) key: AttemptKey,
}

/// The calls under way. One that hangs does not delay the others.
#[derive(Default)]
pub(super) struct AbandonCalls<'a>(Vec<Pin<Box<dyn Future<Output = ()> + Send + 'a>>>);

impl<'a> AbandonCalls<'a> {
    /// Abandons a lock. If the store cannot take the attempt back, the runtime remembers that it does not count.
    pub(super) fn send(
        &mut self,
        store: &'a dyn Store,
        uncounted: &'a UncountedAttempts,
        lock: AbandonedLock,
    ) {
        self.0.push(Box::pin(async move {
            let AbandonedLock { token, timeout, key } = lock;
            let abandon = TurnAbandon::new(&token).with_ignored_attempt(true);
            let why = match catch_panic(retrying(timeout, || store.abandon_turn(&abandon))).await {
                Ok(Ok(())) => return,
                Ok(Err(error)) => error.to_string(),
                Err(payload) => format!("the store panicked: {}", panic_text(payload.as_ref()).unwrap_or("?")),
            };
            tracing::warn!(target: "everturn::runtime", lock_token = %token, error = %why,
                "abandoning the lock of a turn that could not begin failed; its messages return when the lock expires");
            uncounted.note(key);
        }));
    }

    /// Returns when a call was answered. Never returns if no call is under way.
    pub(super) async fn until_one_is_answered(&mut self) {
        poll_fn(|cx| {
            let before = self.0.len();
            self.0.retain_mut(|call| call.as_mut().poll(cx).is_pending());
            if self.0.len() < before { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}
