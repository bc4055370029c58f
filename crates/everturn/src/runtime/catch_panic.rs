//! Turning a panic inside a future into an error value.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

/// Runs a future. A panic in it is returned as an error, and the future is dropped.
pub(crate) async fn catch_panic<T>(future: impl Future<Output = T>) -> Result<T, Box<dyn Any + Send>> {
    let mut future = pin!(future);
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
        Ok(poll) => poll.map(Ok),
        Err(payload) => Poll::Ready(Err(payload)),
    })
    .await
}

#[cfg(test)]
mod tests {
    use everturn_core::turn::panic_text;

    use super::*;

    #[tokio::test]
    async fn a_panic_becomes_an_error_with_its_text() {
        let with_str = catch_panic::<()>(async { panic!("boom") }).await.unwrap_err();
        assert_eq!(panic_text(with_str.as_ref()), Some("boom"));
        let with_string = catch_panic::<()>(async { panic!("boom {}", 2) }).await.unwrap_err();
        assert_eq!(panic_text(with_string.as_ref()), Some("boom 2"));
        let with_other = catch_panic::<()>(async { std::panic::panic_any(7) }).await.unwrap_err();
        assert_eq!(panic_text(with_other.as_ref()), None);
        assert_eq!(catch_panic(async { 3 }).await.unwrap(), 3);
    }
}
