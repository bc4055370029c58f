//! The place where the engine puts the result of one future, and the waker of the task that waits for it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// The result that a durable future is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FutureResult {
    Value(String),
    Failed(String),
    Fired,
}

impl FutureResult {
    pub(crate) fn payload_bytes(&self) -> usize {
        match self {
            Self::Value(text) | Self::Failed(text) => text.len(),
            Self::Fired => 0,
        }
    }
}

/// What the engine and one future share. The flag lets thousands of pending futures be polled without taking a lock.
#[derive(Debug, Default)]
pub(crate) struct ResultSlot {
    ready: AtomicBool,
    contents: Mutex<SlotContents>,
}

#[derive(Debug, Default)]
struct SlotContents {
    /// The result; a queue read takes its message from the queue instead.
    result: Option<FutureResult>,
    /// The waker that the pending future was last polled with.
    waker: Option<Waker>,
}

impl ResultSlot {
    /// Whether the engine has made the future ready.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    /// Takes the result out.
    pub(crate) fn take_result(&self) -> Option<FutureResult> {
        self.contents().result.take()
    }

    /// Keeps the waker of a pending future. `false` if the future became ready meanwhile, or `detached` is set: then no
    /// waker is kept. `detached` is set before the kept wakers are dropped.
    pub(crate) fn keep_waker(&self, waker: Waker, detached: &AtomicBool) -> bool {
        let (unused, kept) = {
            let mut contents = self.contents();
            if self.is_ready() || detached.load(Ordering::SeqCst) {
                (Some(waker), false)
            } else {
                (contents.waker.replace(waker), true)
            }
        };
        // After the lock is released: dropping a waker may run any code.
        drop(unused);
        kept
    }

    /// Takes the waker out, to be dropped without a lock.
    pub(super) fn take_waker(&self) -> Option<Waker> {
        self.contents().waker.take()
    }

    /// Makes the future ready. Returns the waker to call.
    pub(super) fn make_ready(&self, result: Option<FutureResult>) -> Option<Waker> {
        let mut contents = self.contents();
        contents.result = result;
        self.ready.store(true, Ordering::Release);
        contents.waker.take()
    }

    fn contents(&self) -> MutexGuard<'_, SlotContents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A future that became ready, and whose task is still to be woken.
///
/// A waker may run or drop any code, also code that drops a durable future and so takes the lock of the replay state.
/// So it is called and dropped after the lock is released.
#[must_use = "the task is woken after the lock is released"]
#[derive(Default)]
pub(crate) struct Wakeup(pub(super) Option<Waker>);

impl Wakeup {
    /// Wakes the task.
    pub(crate) fn wake(self) {
        if let Some(waker) = self.0 {
            catch_panics(|| waker.wake());
        }
    }
}

/// Drops wakers that are not called any more.
pub(super) fn drop_wakers(wakers: impl IntoIterator<Item = Waker>) {
    for waker in wakers {
        catch_panics(|| drop(waker));
    }
}

fn catch_panics(run: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(run)).is_err() {
        tracing::warn!(target: "everturn::runtime", "a waker in orchestration code panicked; the panic is ignored");
    }
}
