//! Turning a panic of an activity into its failure.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

/// Runs an activity; a panic becomes its error text.
pub(crate) async fn catch_panic(activity: impl Future<Output = Result<String, String>>) -> Result<String, String> {
    let mut activity = pin!(activity);
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| activity.as_mut().poll(cx))) {
        Ok(poll) => poll,
        Err(payload) => Poll::Ready(Err(panic_text(payload.as_ref()))),
    })
    .await
}

/// The failure that a panic is recorded as.
pub(crate) fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    match text {
        Some(text) => format!("activity panicked: {text}"),
        None => "activity panicked".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_becomes_an_error_with_its_text() {
        let with_str = catch_panic(async { panic!("boom") }).await;
        assert_eq!(with_str, Err("activity panicked: boom".to_owned()));
        let with_string = catch_panic(async { panic!("boom {}", 2) }).await;
        assert_eq!(with_string, Err("activity panicked: boom 2".to_owned()));
        let with_other = catch_panic(async { std::panic::panic_any(7) }).await;
        assert_eq!(with_other, Err("activity panicked".to_owned()));
        assert_eq!(catch_panic(async { Ok("fine".to_owned()) }).await, Ok("fine".to_owned()));
    }
}
