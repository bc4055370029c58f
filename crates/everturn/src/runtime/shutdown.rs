//! The tasks of a runtime, and how they end.
//!
//! Slots fetch and run work; they may be given time to finish. The other tasks serve the slots, so they end after
//! them. A task counts as ended when its future is gone, with everything it held.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use everturn_core::turn::panic_text;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinHandle};
use tokio_util::sync::CancellationToken;

use super::catch_panic::caught;

/// How long a task rests that panicked.
const AFTER_PANIC: Duration = Duration::from_secs(1);

/// The tasks of one runtime.
pub(crate) struct RuntimeTasks {
    /// No more fetching.
    stop_fetching: CancellationToken,
    /// No more of anything.
    stop_serving: CancellationToken,
    slots: TaskGroup,
    servants: TaskGroup,
}

/// Tasks that can be aborted together, and waited for from anywhere by anyone.
struct TaskGroup {
    alive: watch::Sender<()>,
    handles: Mutex<Vec<AbortHandle>>,
}

/// Proof that a task of the slots lives: as long as one is held, shutdown waits. Cloned into the activities.
#[derive(Clone)]
pub(crate) struct SlotAlive(watch::Receiver<()>);

impl SlotAlive {
    /// Runs a future as a task that shutdown waits for.
    pub(crate) fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        tokio::spawn(Tracked { future: Box::pin(future), _alive: self.0.clone() })
    }
}

impl RuntimeTasks {
    pub(crate) fn new() -> Self {
        Self {
            stop_fetching: CancellationToken::new(),
            stop_serving: CancellationToken::new(),
            slots: TaskGroup::new(),
            servants: TaskGroup::new(),
        }
    }

    /// Ends when nothing may be fetched any more.
    pub(crate) fn stop_fetching(&self) -> CancellationToken {
        self.stop_fetching.clone()
    }

    /// Ends when the last slot has.
    pub(crate) fn stop_serving(&self) -> CancellationToken {
        self.stop_serving.clone()
    }

    /// What a slot's own tasks are spawned with.
    pub(crate) fn slot_alive(&self) -> SlotAlive {
        SlotAlive(self.slots.alive.subscribe())
    }

    /// Starts a slot. If it panics it is begun anew.
    pub(crate) fn spawn_slot<F>(&self, slot: impl Fn() -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let stop = self.stop_fetching();
        self.slots.spawn(async move { begun_anew("slot", &stop, slot).await });
    }

    /// Starts a task that serves the slots until `stop_serving`; it may be dropped at any await then. If it panics it
    /// is begun anew.
    pub(crate) fn spawn_servant<F>(&self, servant: impl Fn() -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let stop = self.stop_serving();
        self.servants.spawn(async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = begun_anew("servant", &stop, servant) => {}
            }
        });
    }

    /// Runs something short for a caller who is no task of the runtime. `None` if `stop_serving` comes first; what the
    /// errand holds is gone before the servants have ended.
    pub(crate) async fn errand<T, F>(&self, begin: impl FnOnce() -> Option<F>) -> Option<T>
    where
        F: Future<Output = Option<T>> + Send + 'static,
        T: Send + 'static,
    {
        let stop = self.stop_serving();
        // Counted first: then either the end waits for this errand, or the errand sees the end.
        let alive = self.servants.alive.subscribe();
        if stop.is_cancelled() {
            return None;
        }
        let errand = begin()?;
        let until_stopped = async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => None,
                answer = errand => answer,
            }
        };
        let task = tokio::spawn(Tracked { future: Box::pin(until_stopped), _alive: alive });
        task.await.ok().flatten()
    }

    /// Starts a task that serves the slots and ends by itself after `stop_serving`.
    pub(crate) fn spawn_finisher(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.servants.spawn(future);
    }

    /// Stops fetching and returns when every slot has ended: by itself within `grace`, aborted after it. Any number
    /// of callers may wait, and the shortest grace rules; a caller that goes away leaves the rest to the others.
    pub(crate) async fn end_slots(&self, grace: Duration) {
        self.stop_fetching.cancel();
        if grace.is_zero() {
            // No timer here: this must work outside the async runtime too.
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

    /// Ends everything else.
    pub(crate) async fn end_servants(&self) {
        self.stop_serving.cancel();
        self.servants.ended().await;
    }
}

impl TaskGroup {
    fn new() -> Self {
        Self { alive: watch::Sender::new(()), handles: Mutex::default() }
    }

    fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        let tracked = Tracked { future: Box::pin(future), _alive: self.alive.subscribe() };
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

/// Runs a task; if it panics, which only a provider or a bug can make it do, it is begun anew.
async fn begun_anew<F>(what: &'static str, stop: &CancellationToken, begin: impl Fn() -> F)
where
    F: Future<Output = ()>,
{
    while let Err(payload) = caught(begin()).await {
        tracing::error!(target: "everturn::runtime", panic = panic_text(payload.as_ref()).unwrap_or("?"),
            "a {what} of the runtime panicked and is begun anew");
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(AFTER_PANIC) => {}
        }
    }
}

/// A future with the proof that it lives. Fields are dropped in order: the future first.
struct Tracked<F> {
    future: Pin<Box<F>>,
    _alive: watch::Receiver<()>,
}

impl<F: Future> Future for Tracked<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.future.as_mut().poll(cx)
    }
}
