//! Running the user's function, and stopping it when it is no longer wanted.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use everturn_core::turn::panic_text;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::super::activity_context::ActivityContext;
use super::super::activity_handler::ActivityHandler;
use super::super::catch_panic::caught;
use super::super::shutdown::SlotAlive;

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

/// How an activity is told that it is no longer wanted.
pub(crate) struct Withdrawal<'a> {
    pub(crate) signal: &'a CancellationToken,
    /// How long it may go on.
    pub(crate) grace: Duration,
    /// Called when its grace begins.
    pub(crate) tell: &'a (dyn Fn() + Send + Sync),
}

/// Runs an activity as a task of its own, so that code that does not yield holds up nobody else.
///
/// When it is withdrawn, the activity gets its grace to end by itself, then it is aborted.
pub(crate) async fn invoke(
    alive: &SlotAlive,
    handler: Arc<dyn ActivityHandler>,
    context: ActivityContext,
    input: String,
    withdrawal: Withdrawal<'_>,
) -> Ended {
    let activity = async move {
        caught(handler.invoke(context, input))
            .await
            .unwrap_or_else(|payload| Err(failure_text(payload.as_ref())))
    };
    let mut task = AbortOnDrop(alive.spawn(activity));
    tokio::select! {
        biased;
        // First, because whatever a withdrawn activity returns may only be its answer to the signal.
        () = withdrawal.signal.cancelled() => {
            // The activity's own token hangs on this one, so the code knows already.
            (withdrawal.tell)();
            if let Err(_elapsed) = tokio::time::timeout(withdrawal.grace, &mut task.0).await {
                tracing::debug!(target: "everturn::runtime", "cancelled activity is aborted after its grace period");
            }
            Ended::Withdrawn
        }
        ended = &mut task.0 => match ended {
            Ok(result) => Ended::With(result),
            Err(error) => match error.try_into_panic() {
                // A panic outside the function itself: in the destructors of its future.
                Ok(payload) => Ended::With(Err(failure_text(payload.as_ref()))),
                Err(_cancelled) => Ended::Dropped,
            },
        },
    }
}

/// The failure that a panic is recorded as.
fn failure_text(payload: &(dyn Any + Send)) -> String {
    match panic_text(payload) {
        Some(text) => format!("activity panicked: {text}"),
        None => "activity panicked".to_owned(),
    }
}

/// A task that does not outlive whoever waits for it.
struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
