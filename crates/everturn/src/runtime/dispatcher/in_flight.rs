//! Turns that wait for their code to run, or are being committed, while their slot already fetches the next instance.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use everturn_core::limits::MAX_TURNS_IN_HAND;
use everturn_core::turn::panic_text;
use tokio::time::Instant;

use super::super::catch_panic::catch_panic;
use super::super::lock_keeper::LockKeeper;
use super::slot_turns::SlotTurns;

/// How long the turns of a slot keep their thread. Other tasks need it, too: locks are renewed in one.
const THREAD_KEPT_MAX: Duration = Duration::from_millis(10);

/// The turns of one slot. All of them run on the slot's own task, so the user's code of one slot never runs in parallel;
/// only waiting for the store overlaps.
pub(super) struct InFlightTurns<'a> {
    /// Keeps the locks of the turns.
    locks: LockKeeper,
    slot: &'a SlotTurns,
    turns: Vec<Pin<Box<dyn Future<Output = ()> + Send + 'a>>>,
}

impl<'a> InFlightTurns<'a> {
    /// No turns.
    pub(super) fn new(locks: LockKeeper, slot: &'a SlotTurns) -> Self {
        Self { locks, slot, turns: Vec::new() }
    }

    /// Adds a turn of an instance. It is first polled by the next `beside` or `finish`.
    pub(super) fn push(&mut self, instance_id: String, turn: impl Future<Output = ()> + Send + 'a) {
        self.turns.push(Box::pin(async move {
            // Only a provider or a bug of the engine panics here. The other turns of this slot go on.
            if let Err(payload) = catch_panic(turn).await {
                tracing::error!(target: "everturn::runtime", %instance_id,
                    panic = panic_text(payload.as_ref()).unwrap_or("?"),
                    "a turn panicked outside the user's code; its messages return to the queue when its lock expires");
            }
        }));
    }

    /// Waits for `fetch` while the turns go on. While there are too many turns, or one waits for its code to run, `fetch` is not
    /// polled: the lock of what it fetches would not be renewed while that code runs.
    pub(super) async fn beside<T>(&mut self, fetch: impl Future<Output = T>) -> T {
        let mut fetch = pin!(fetch);
        poll_fn(|cx| {
            if self.poll_turns(cx) == ThreadUse::Over
                || self.turns.len() >= MAX_TURNS_IN_HAND
                || self.slot.has_unbegun()
            {
                return Poll::Pending;
            }
            fetch.as_mut().poll(cx)
        })
        .await
    }

    /// Waits until every turn has ended.
    pub(super) async fn finish(mut self) {
        poll_fn(|cx| {
            self.poll_turns(cx);
            if self.turns.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Polls the turns until all have been polled or other tasks must run. A task that a turn has woken may be next on this
    /// thread, and no other thread takes that one over: it runs before the code of another turn.
    fn poll_turns(&mut self, cx: &mut Context<'_>) -> ThreadUse {
        if self.turns.is_empty() {
            return ThreadUse::GoesOn;
        }
        let began = Instant::now();
        let mut thread_use = ThreadUse::GoesOn;
        self.turns.retain_mut(|turn| {
            if thread_use == ThreadUse::Over {
                return true;
            }
            let is_pending = turn.as_mut().poll(cx).is_pending();
            if began.elapsed() >= THREAD_KEPT_MAX {
                // On a runtime with one thread no timer fires before this task waits, so the keeper is woken by hand.
                self.locks.look_now();
                thread_use = ThreadUse::Over;
            } else if !is_pending && self.slot.has_unbegun() {
                // It has perhaps woken the task that drops what turns leave behind.
                thread_use = ThreadUse::Over;
            }
            is_pending
        });
        if thread_use == ThreadUse::Over {
            // Those before have run, so the next poll comes to the others.
            cx.waker().wake_by_ref();
        }
        thread_use
    }
}

/// Whether the turns of a slot may keep their thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ThreadUse {
    GoesOn,
    /// Other tasks run before the next poll.
    Over,
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::task::Waker;

    use tokio::sync::oneshot;

    use super::*;

    #[test]
    fn a_full_slot_fetches_nothing_until_a_turn_ends() {
        let slot = SlotTurns::new();
        let mut in_flight = InFlightTurns::new(LockKeeper::default(), &slot);
        let mut ends = Vec::new();
        for _ in 0..MAX_TURNS_IN_HAND {
            let (end, ended) = oneshot::channel::<()>();
            ends.push(end);
            in_flight.push("i".to_owned(), async move { ended.await.unwrap_or_default() });
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

    #[test]
    fn a_slot_fetches_nothing_while_a_turn_waits_for_its_code_to_run() {
        let slot = SlotTurns::new();
        let unbegun = slot.note_unbegun();
        let mut in_flight = InFlightTurns::new(LockKeeper::default(), &slot);
        let mut cx = Context::from_waker(Waker::noop());
        let mut waiting = pin!(in_flight.beside(async {}));
        assert!(waiting.as_mut().poll(&mut cx).is_pending());
        unbegun.end();
        assert!(waiting.as_mut().poll(&mut cx).is_ready());
        drop(unbegun);
        assert!(!slot.has_unbegun(), "it is counted once");
    }
}
