//! Calls into the code of the runtime, which may panic: that must not end a lane, which serves all calls.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};

use futures::FutureExt as _;

/// Runs code that may panic. A panic is logged, and `None` is returned.
pub(crate) fn guarded<T>(doing: &str, run: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| log(doing, &*panic)).ok()
}

/// The same for a future.
pub(crate) async fn guarded_future<T>(doing: &str, run: impl Future<Output = T>) -> Option<T> {
    AssertUnwindSafe(run).catch_unwind().await.map_err(|panic| log(doing, &*panic)).ok()
}

fn log(doing: &str, panic: &(dyn Any + Send)) {
    let text = panic.downcast_ref::<&str>().copied();
    let message = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
    tracing::error!(target: "everturn::providers::postgres", panic = message,
        "a bug: {doing} panicked; only the calls that it concerns fail");
}
