//! Where executions are dropped.
//!
//! Dropping an execution runs the user's destructors: they may panic, want the async context, or take their time. So
//! it never happens where everybody waits, such as on a provider's thread, but in one task of the runtime.

use std::panic::{AssertUnwindSafe, catch_unwind};

use everturn_core::turn::Execution;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// The way to the graveyard; cheap to clone.
#[derive(Clone)]
pub(crate) struct Graveyard(mpsc::UnboundedSender<Box<Execution>>);

/// The other end: the task that drops what arrives.
pub(crate) struct Gravedigger(mpsc::UnboundedReceiver<Box<Execution>>);

/// A graveyard and the one who works there.
pub(crate) fn graveyard() -> (Graveyard, Gravedigger) {
    // Unbounded, because a provider's thread may not wait: what lies here was counted by the warm cache or by a
    // dispatcher slot a moment ago, and both are bounded.
    let (sender, receiver) = mpsc::unbounded_channel();
    (Graveyard(sender), Gravedigger(receiver))
}

impl Graveyard {
    /// Has an execution dropped, elsewhere.
    pub(crate) fn bury(&self, execution: Box<Execution>) {
        if let Err(mpsc::error::SendError(execution)) = self.0.send(execution) {
            // The runtime has shut down, and somebody kept this one beyond its end.
            drop_quietly(execution);
        }
    }
}

impl Gravedigger {
    /// Drops what arrives, until told to stop; then what is still there.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        loop {
            tokio::select! {
                biased;
                execution = self.0.recv() => match execution {
                    Some(execution) => drop_quietly(execution),
                    None => return,
                },
                () = stop.cancelled() => break,
            }
        }
        self.0.close();
        while let Ok(execution) = self.0.try_recv() {
            drop_quietly(execution);
        }
    }
}

fn drop_quietly(execution: Box<Execution>) {
    if catch_unwind(AssertUnwindSafe(|| drop(execution))).is_err() {
        tracing::warn!(target: "everturn::runtime", "a destructor of orchestration code panicked");
    }
}
