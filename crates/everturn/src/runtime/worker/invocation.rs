//! Running the user's activity function, and stopping it when it is cancelled.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use everturn_core::turn::panic_text;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::super::activity_context::ActivityContext;
use super::super::activity_handler::ActivityHandler;
use super::super::catch_panic::catch_panic;
use super::super::shutdown::SlotAlive;

/// How an invocation ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum InvocationEnd {
    /// It returned, or panicked.
    Returned(Result<String, String>),
    /// It was cancelled; what it returned does not count.
    Cancelled,
    /// The async runtime shut down and aborted it.
    Aborted,
}

/// When and how an invocation is cancelled.
pub(super) struct InvocationLimits<'a> {
    /// The instance that wants the activity, for the log.
    pub(super) instance_id: &'a str,
    pub(super) cancelled: &'a CancellationToken,
    /// How long it may go on after that.
    pub(super) grace: Duration,
    /// Called when the grace period begins.
    pub(super) on_cancel: &'a (dyn Fn() + Send + Sync),
}

/// Runs an activity as a task of its own, so that code that does not yield does not block the slot.
///
/// A cancelled activity may end by itself within the grace period, then it is aborted.
pub(super) async fn invoke(
    alive: &SlotAlive,
    handler: Arc<dyn ActivityHandler>,
    context: ActivityContext,
    input: String,
    limits: InvocationLimits<'_>,
) -> InvocationEnd {
    let activity = async move {
        catch_panic(handler.invoke(context, input))
            .await
            .unwrap_or_else(|payload| Err(failure_text(payload.as_ref())))
    };
    let mut task = AbortOnDrop(alive.spawn(activity));
    tokio::select! {
        biased;
        // First, because what a cancelled activity returns may only be its reaction to the signal.
        () = limits.cancelled.cancelled() => {
            // The activity's own token is a child of this one, so the code has the signal already.
            (limits.on_cancel)();
            if let Err(_elapsed) = tokio::time::timeout(limits.grace, &mut task.0).await {
                tracing::debug!(target: "everturn::runtime", instance_id = limits.instance_id,
                    "cancelled activity is aborted after its grace period");
            }
            InvocationEnd::Cancelled
        }
        ended = &mut task.0 => match ended {
            Ok(result) => InvocationEnd::Returned(result),
            Err(error) => match error.try_into_panic() {
                // A panic outside the function itself: in a destructor of its future.
                Ok(payload) => InvocationEnd::Returned(Err(failure_text(payload.as_ref()))),
                Err(_cancelled) => InvocationEnd::Aborted,
            },
        },
    }
}

/// The error that records a panic.
fn failure_text(payload: &(dyn Any + Send)) -> String {
    match panic_text(payload) {
        Some(text) => format!("activity panicked: {text}"),
        None => "activity panicked".to_owned(),
    }
}

/// A task that is aborted when its owner is dropped.
struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
