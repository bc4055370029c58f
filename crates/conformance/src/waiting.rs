//! Polling futures that have not ended.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// How long a future must stay pending to count as waiting.
const A_MOMENT: Duration = Duration::from_millis(50);

/// Polls a future for a moment, in which it must not end.
pub(crate) async fn keeps_waiting<F>(future: &mut Pin<Box<F>>)
where
    F: Future + ?Sized,
{
    let ended = tokio::time::timeout(A_MOMENT, future).await.is_ok();
    assert!(!ended, "there was nothing to return for");
}

/// Shorter than the second after which a store may look at everything again.
pub(crate) const SHORT: Duration = Duration::from_millis(345);
/// How much later than it is due a wake-up may come, in paused time: timers count whole milliseconds.
const LATE_MAX: Duration = Duration::from_millis(2);

/// What a parked fetch returns after `call` has made work for it. No time may pass: no look that is taken from time to time
/// may be what finds the work.
pub(crate) async fn woken_at_once<T>(fetch: impl Future<Output = T>, call: impl Future<Output = ()>) -> T {
    woken_after(Duration::ZERO, fetch, call).await
}

/// The same for work that becomes ready so long after `call`.
pub(crate) async fn woken_after<T>(
    due: Duration,
    fetch: impl Future<Output = T>,
    call: impl Future<Output = ()>,
) -> T {
    let began = Instant::now();
    call.await;
    let fetched = fetch.await;
    let took = began.elapsed();
    let latest = if due.is_zero() { due } else { due + LATE_MAX };
    assert!(
        (due..=latest).contains(&took),
        "the call should have woken the parked fetch after {due:?}, but it ended after {took:?}"
    );
    fetched
}

/// Polls a future once.
pub(crate) async fn poll_once<F>(future: &mut Pin<Box<F>>) -> Option<F::Output>
where
    F: Future + ?Sized,
{
    poll_fn(|context| {
        Poll::Ready(match future.as_mut().poll(context) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        })
    })
    .await
}

/// Records that a future asked to be polled again.
struct Woken(Notify);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

/// Polls a future `polls` times, each time after its waker was called. Returns its output if it ended by then.
pub(crate) async fn polled<F>(future: &mut Pin<Box<F>>, polls: usize) -> Option<F::Output>
where
    F: Future + ?Sized,
{
    let woken = Arc::new(Woken(Notify::new()));
    let waker = Waker::from(Arc::clone(&woken));
    for nth in 0..polls {
        if nth > 0 {
            woken.0.notified().await;
        }
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(output);
        }
    }
    None
}
