//! Running the user's function, and stopping it when it is no longer wanted.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::super::activity_context::ActivityContext;
use super::super::activity_handler::ActivityHandler;
use super::super::shutdown::SlotAlive;
use super::catch_panic::{catch_panic, panic_text};

/// How an invocation ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It returned, or panicked.
    With(Result<String, String>),
    /// It was no longer wanted; what it returned does not count.
    Withdrawn,
    /// The async runtime is going down under it.
    Dropped,
}

/// Runs an activity as a task of its own, so that code that does not yield holds up nobody else.
///
/// When `withdrawn` is signalled, the activity gets `grace` to end by itself, then it is aborted.
pub(crate) async fn invoke(
    alive: &SlotAlive,
    handler: Arc<dyn ActivityHandler>,
    context: ActivityContext,
    input: String,
    withdrawn: &CancellationToken,
    grace: Duration,
) -> Ended {
    let activity = async move { catch_panic(handler.invoke(context, input)).await };
    let mut task = AbortOnDrop(alive.spawn(activity));
    tokio::select! {
        biased;
        ended = &mut task.0 => match ended {
            Ok(result) => Ended::With(result),
            Err(error) => match error.try_into_panic() {
                // A panic outside the function itself: in the destructors of its future.
                Ok(payload) => Ended::With(Err(panic_text(payload.as_ref()))),
                Err(_cancelled) => Ended::Dropped,
            },
        },
        () = withdrawn.cancelled() => {
            // The activity's own token hangs on this one, so the code knows already.
            if tokio::time::timeout(grace, &mut task.0).await.is_err() {
                tracing::info!(target: "everturn::runtime", grace_ms = grace.as_millis() as u64,
                    "cancelled activity did not end within its grace period and is aborted");
            }
            Ended::Withdrawn
        }
    }
}

/// A task that does not outlive whoever waits for it.
struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
