//! Turns whose commit is under way while their slot already fetches the next instance.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use everturn_core::limits::MAX_TURNS_IN_HAND;
use everturn_core::turn::panic_text;

use super::super::catch_panic::caught;

/// What one slot has in hand. Everything runs on the slot's own task, so its user code runs one after the other; only
/// the waiting for the store overlaps.
#[derive(Default)]
pub(super) struct InFlight<'a> {
    turns: Vec<Pin<Box<dyn Future<Output = ()> + Send + 'a>>>,
}

impl<'a> InFlight<'a> {
    /// Takes on another turn; it begins with the next wait.
    pub(super) fn push(&mut self, turn: impl Future<Output = ()> + Send + 'a) {
        self.turns.push(Box::pin(async {
            // Only a provider or a bug of ours panics here; its neighbours in this slot go on.
            if let Err(payload) = caught(turn).await {
                tracing::error!(target: "everturn::runtime", panic = panic_text(payload.as_ref()).unwrap_or("?"),
                    "a turn panicked outside its code; its instance comes again when its lock ends");
            }
        }));
    }

    /// Waits for a fetch while the turns in hand go on. With too many of them in hand the fetch is not begun.
    pub(super) async fn beside<T>(&mut self, fetch: impl Future<Output = T>) -> T {
        let mut fetch = pin!(fetch);
        poll_fn(|cx| {
            self.poll_turns(cx);
            if self.turns.len() >= MAX_TURNS_IN_HAND {
                return Poll::Pending;
            }
            fetch.as_mut().poll(cx)
        })
        .await
    }

    /// Waits until every turn has come to its end.
    pub(super) async fn finish(mut self) {
        poll_fn(|cx| {
            self.poll_turns(cx);
            if self.turns.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    fn poll_turns(&mut self, cx: &mut Context<'_>) {
        self.turns.retain_mut(|turn| turn.as_mut().poll(cx).is_pending());
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::task::Waker;

    use tokio::sync::oneshot;

    use super::*;

    #[test]
    fn a_full_slot_fetches_nothing_until_a_turn_ends() {
        let mut in_flight = InFlight::default();
        let mut ends = Vec::new();
        for _ in 0..MAX_TURNS_IN_HAND {
            let (end, ended) = oneshot::channel::<()>();
            ends.push(end);
            in_flight.push(async move { ended.await.unwrap_or_default() });
        }
        let fetches = Cell::new(0);
        let mut cx = Context::from_waker(Waker::noop());
        let mut waiting = pin!(in_flight.beside(async { fetches.set(fetches.get() + 1) }));
        assert!(waiting.as_mut().poll(&mut cx).is_pending());
        assert_eq!(fetches.get(), 0);
        ends.pop().unwrap().send(()).unwrap();
        assert!(waiting.as_mut().poll(&mut cx).is_ready());
        assert_eq!(fetches.get(), 1);
    }
}
