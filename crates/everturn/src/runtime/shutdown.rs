//! The tasks of a runtime, and how they end.
//!
//! Slots fetch and run work; shutdown gives them time to finish. Background tasks (lock renewal, session leases, gauges,
//! deferred drops, unfinished work) serve the slots, so they are stopped after them. A task has ended when its future is
//! dropped.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use everturn_core::turn::panic_text;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinHandle};
use tokio_util::sync::CancellationToken;

use super::catch_panic::catch_panic;

/// Delay before a task that panicked is restarted.
const AFTER_PANIC: Duration = Duration::from_secs(1);

/// The tasks of one runtime.
pub(crate) struct RuntimeTasks {
    /// Cancelled when shutdown begins.
    stop_fetching: CancellationToken,
    /// Cancelled when every slot has ended.
    stop_background: CancellationToken,
    slots: TaskGroup,
    background: TaskGroup,
}

/// Tasks that can be aborted together. Any number of callers can wait for their end.
struct TaskGroup {
    alive: watch::Sender<()>,
    handles: Mutex<Vec<AbortHandle>>,
}

/// Shutdown waits until every clone of this is dropped. A slot spawns its activities with it.
#[derive(Clone)]
pub(crate) struct SlotAlive(watch::Receiver<()>);

impl SlotAlive {
    /// Spawns a task that shutdown waits for.
    pub(crate) fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        tokio::spawn(TrackedTask { future: Box::pin(future), _alive: self.0.clone() })
    }
}

impl RuntimeTasks {
    pub(crate) fn new() -> Self {
        Self {
            stop_fetching: CancellationToken::new(),
            stop_background: CancellationToken::new(),
            slots: TaskGroup::new(),
            background: TaskGroup::new(),
        }
    }

    /// Cancelled when nothing may be fetched any more.
    pub(crate) fn stop_fetching(&self) -> CancellationToken {
        self.stop_fetching.clone()
    }

    /// Cancelled when every slot has ended.
    pub(crate) fn stop_background(&self) -> CancellationToken {
        self.stop_background.clone()
    }

    /// What a slot spawns its own tasks with.
    pub(crate) fn slot_alive(&self) -> SlotAlive {
        SlotAlive(self.slots.alive.subscribe())
    }

    /// Starts a slot, and restarts it if it panics.
    pub(crate) fn spawn_slot<F>(&self, slot: impl Fn() -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let stop = self.stop_fetching();
        self.slots.spawn(async move { restart_on_panic("slot", &stop, slot).await });
    }

    /// Starts a background task, and restarts it if it panics. It is dropped at any await after `stop_background`.
    pub(crate) fn spawn_background<F>(&self, what: &'static str, task: impl Fn() -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let stop = self.stop_background();
        self.background.spawn(async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = restart_on_panic(what, &stop, task) => {}
            }
        });
    }

    /// Runs a short task for a caller outside the runtime. Returns `None` if `stop_background` comes first. What the task
    /// holds is dropped before shutdown returns.
    pub(crate) async fn run_short_task<T, F>(&self, begin: impl FnOnce() -> Option<F>) -> Option<T>
    where
        F: Future<Output = Option<T>> + Send + 'static,
        T: Send + 'static,
    {
        let stop = self.stop_background();
        // Subscribed first: then either shutdown waits for this task, or the task sees the cancelled token.
        let alive = self.background.alive.subscribe();
        if stop.is_cancelled() {
            return None;
        }
        let task = begin()?;
        let until_stopped = async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => None,
                answer = task => answer,
            }
        };
        tokio::spawn(TrackedTask { future: Box::pin(until_stopped), _alive: alive }).await.ok().flatten()
    }

    /// Starts a background task that ends by itself after `stop_background`.
    pub(crate) fn spawn_until_stopped(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.background.spawn(future);
    }

    /// Stops fetching and returns when every slot has ended: by itself within `grace`, or aborted after it.
    ///
    /// Any number of callers may wait, and the shortest grace applies. A caller that is dropped does not affect the others.
    pub(crate) async fn end_slots(&self, grace: Duration) {
        self.stop_fetching.cancel();
        if grace.is_zero() {
            // No timer here: this must also work outside the async runtime.
            self.slots.abort();
        } else {
            tokio::select! {
                biased;
                () = self.slots.ended() => return,
                () = tokio::time::sleep(grace) => self.slots.abort(),
            }
        }
        self.slots.ended().await;
    }

    /// Stops the background tasks and waits until they have ended.
    pub(crate) async fn end_background(&self) {
        self.stop_background.cancel();
        self.background.ended().await;
    }
}

impl TaskGroup {
    fn new() -> Self {
        Self { alive: watch::Sender::new(()), handles: Mutex::default() }
    }

    fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        let tracked = TrackedTask { future: Box::pin(future), _alive: self.alive.subscribe() };
        let handle = tokio::spawn(tracked).abort_handle();
        self.handles.lock().unwrap_or_else(PoisonError::into_inner).push(handle);
    }

    fn abort(&self) {
        for handle in self.handles.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            handle.abort();
        }
    }

    async fn ended(&self) {
        self.alive.closed().await;
    }
}

/// Runs a task, and restarts it if it panics. Only a provider or a bug of the engine makes it panic.
async fn restart_on_panic<F>(what: &'static str, stop: &CancellationToken, begin: impl Fn() -> F)
where
    F: Future<Output = ()>,
{
    while let Err(payload) = catch_panic(begin()).await {
        tracing::error!(target: "everturn::runtime", panic = panic_text(payload.as_ref()).unwrap_or("?"),
            "{what} task panicked; restarting it");
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(AFTER_PANIC) => {}
        }
    }
}

/// A future that keeps its group alive. Fields are dropped in order: the future first.
struct TrackedTask<F> {
    future: Pin<Box<F>>,
    _alive: watch::Receiver<()>,
}

impl<F: Future> Future for TrackedTask<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.future.as_mut().poll(cx)
    }
}
