//! Dropping executions in a background task.
//!
//! Dropping an execution runs the user's destructors: they may panic, need the async context, or block. So executions
//! are never dropped where others wait, such as on a provider's thread, but in one background task of the runtime. On
//! tokio's multi-threaded runtime it moves the other tasks of its thread to another one first.
//!
//! A destructor that blocks holds up all others. Then dispatcher slots fetch no more turns once [`MAX_DEFERRED_DROPS`]
//! executions wait: what is added after that comes from turns that were fetched before.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use everturn_core::limits::MAX_DEFERRED_DROPS;
use everturn_core::turn::Execution;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{Notify, mpsc};
use tokio::task::block_in_place;
use tokio_util::sync::CancellationToken;

/// Sends executions to the task that drops them; cheap to clone.
#[derive(Clone)]
pub(crate) struct DeferredDrops {
    queue: mpsc::UnboundedSender<Box<Execution>>,
    backlog: Arc<DropBacklog>,
}

/// The background task that drops executions.
pub(crate) struct DeferredDropTask {
    queue: mpsc::UnboundedReceiver<Box<Execution>>,
    backlog: Arc<DropBacklog>,
}

/// The executions that are queued or being dropped.
#[derive(Default)]
struct DropBacklog {
    count: AtomicUsize,
    /// Notified when there is room again.
    shrunk: Notify,
    /// Whether a long backlog was logged: once per runtime.
    reported: AtomicBool,
}

/// Both ends of the queue of executions to drop.
pub(crate) fn deferred_drops() -> (DeferredDrops, DeferredDropTask) {
    // Unbounded, because a provider's thread may not wait. Dispatcher slots wait instead, before they fetch.
    let (sender, receiver) = mpsc::unbounded_channel();
    let backlog = Arc::<DropBacklog>::default();
    let drops = DeferredDrops { queue: sender, backlog: Arc::clone(&backlog) };
    (drops, DeferredDropTask { queue: receiver, backlog })
}

impl DeferredDrops {
    /// Has the background task drop an execution. Never waits.
    pub(crate) fn drop_later(&self, execution: Box<Execution>) {
        self.backlog.count.fetch_add(1, Ordering::SeqCst);
        if let Err(mpsc::error::SendError(execution)) = self.queue.send(execution) {
            // The runtime has shut down, so the task has ended.
            self.backlog.drop_one(execution);
        }
    }

    /// Waits until fewer than [`MAX_DEFERRED_DROPS`] executions wait to be dropped.
    pub(crate) async fn are_few(&self) {
        loop {
            // Created before the look: every drop after it ends the wait.
            let shrunk = self.backlog.shrunk.notified();
            if self.backlog.count.load(Ordering::SeqCst) < MAX_DEFERRED_DROPS {
                return;
            }
            if !self.backlog.reported.swap(true, Ordering::SeqCst) {
                tracing::warn!(target: "everturn::runtime", waiting = MAX_DEFERRED_DROPS,
                    "executions wait to be dropped because a destructor in orchestration code blocks; \
                     no turn is fetched until it returns");
            }
            shrunk.await;
        }
    }
}

impl DeferredDropTask {
    /// Drops what arrives until `stop` is cancelled, then what is still queued.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut arrived = Vec::new();
        let mut is_over = false;
        while !is_over {
            tokio::select! {
                biased;
                count = self.queue.recv_many(&mut arrived, MAX_DEFERRED_DROPS) => is_over = count == 0,
                () = stop.cancelled() => {
                    is_over = true;
                    self.queue.close();
                    while let Ok(execution) = self.queue.try_recv() {
                        arrived.push(execution);
                    }
                }
            }
            self.backlog.drop_all(arrived.drain(..));
        }
    }
}

impl DropBacklog {
    /// Drops executions that were counted, from a task.
    fn drop_all(&self, executions: impl Iterator<Item = Box<Execution>>) {
        let drop_each = || executions.for_each(|execution| self.drop_one(execution));
        match Handle::current().runtime_flavor() {
            // A thread that blocks keeps tasks that it has just woken, or that wait for their next share of it.
            RuntimeFlavor::MultiThread => block_in_place(drop_each),
            _ => drop_each(),
        }
    }

    /// Drops an execution that was counted.
    fn drop_one(&self, execution: Box<Execution>) {
        if catch_unwind(AssertUnwindSafe(|| drop(execution))).is_err() {
            tracing::warn!(target: "everturn::runtime", "a destructor in orchestration code panicked; the panic is ignored");
        }
        if self.count.fetch_sub(1, Ordering::SeqCst) == MAX_DEFERRED_DROPS {
            self.shrunk.notify_waiters();
        }
    }
}
