//! Looking at futures that have not ended.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

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
