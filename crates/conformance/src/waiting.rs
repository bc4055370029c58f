//! Looking at futures that have not ended.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tokio::sync::Notify;

/// How long a future is watched to find out that it waits.
const A_MOMENT: Duration = Duration::from_millis(50);

/// Polls a future for a moment, in which it must not end.
pub(crate) async fn keeps_waiting<F>(future: &mut Pin<Box<F>>)
where
    F: Future + ?Sized,
{
    let ended = tokio::time::timeout(A_MOMENT, future).await.is_ok();
    assert!(!ended, "there was nothing to return for");
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

/// Notes that a future wants to be polled again.
struct Woken(Notify);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

/// Polls a future so many times, each time when it asked for it: the first polls are spent at its first await, then it
/// stands at the next. Returns what it came to, if it ended by then.
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
