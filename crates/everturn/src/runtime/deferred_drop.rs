//! Dropping executions in a background task.
//!
//! Dropping an execution runs the user's destructors: they may panic, need the async context, or block. So executions
//! are never dropped where others wait, such as on a provider's thread, but in one background task of the runtime.

use std::panic::{AssertUnwindSafe, catch_unwind};

use everturn_core::turn::Execution;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Sends executions to the task that drops them; cheap to clone.
#[derive(Clone)]
pub(crate) struct DeferredDrops(mpsc::UnboundedSender<Box<Execution>>);

/// The background task that drops executions.
pub(crate) struct DeferredDropTask(mpsc::UnboundedReceiver<Box<Execution>>);

/// Both ends of the queue of executions to drop.
pub(crate) fn deferred_drops() -> (DeferredDrops, DeferredDropTask) {
    // Unbounded, because a provider's thread may not wait: what is queued was counted by the warm cache or by a
    // dispatcher slot a moment ago, and both are bounded.
    let (sender, receiver) = mpsc::unbounded_channel();
    (DeferredDrops(sender), DeferredDropTask(receiver))
}

impl DeferredDrops {
    /// Has the background task drop an execution.
    pub(crate) fn drop_later(&self, execution: Box<Execution>) {
        if let Err(mpsc::error::SendError(execution)) = self.0.send(execution) {
            // The runtime has shut down, so the task has ended.
            drop_and_catch(execution);
        }
    }
}

impl DeferredDropTask {
    /// Drops what arrives until `stop` is cancelled, then what is still queued.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        loop {
            tokio::select! {
                biased;
                execution = self.0.recv() => match execution {
                    Some(execution) => drop_and_catch(execution),
                    None => return,
                },
                () = stop.cancelled() => break,
            }
        }
        self.0.close();
        while let Ok(execution) = self.0.try_recv() {
            drop_and_catch(execution);
        }
    }
}

fn drop_and_catch(execution: Box<Execution>) {
    if catch_unwind(AssertUnwindSafe(|| drop(execution))).is_err() {
        tracing::warn!(target: "everturn::runtime", "a destructor in orchestration code panicked; the panic is ignored");
    }
}
