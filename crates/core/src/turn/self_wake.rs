//! The waker that the code is polled with.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Wake;
use std::thread::{self, ThreadId};

/// Takes note if the code wakes itself while it is polled; all other wakes have no effect.
///
/// Only what the code does in its own poll is repeated by replay. A wake from another thread, or between two polls, comes
/// by chance.
#[derive(Default)]
pub(super) struct SelfWake(Mutex<PollInProgress>);

#[derive(Default)]
struct PollInProgress {
    /// The thread that polls the code.
    thread: Option<ThreadId>,
    woken: bool,
}

impl SelfWake {
    /// Begins a poll on this thread.
    pub(super) fn begin_poll(&self) {
        *self.poll() = PollInProgress { thread: Some(thread::current().id()), woken: false };
    }

    /// Whether the code has woken itself since the poll began.
    pub(super) fn is_woken(&self) -> bool {
        self.poll().woken
    }

    /// Ends the poll.
    pub(super) fn end_poll(&self) {
        self.poll().thread = None;
    }

    fn poll(&self) -> MutexGuard<'_, PollInProgress> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for SelfWake {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut poll = self.poll();
        if poll.thread == Some(thread::current().id()) {
            poll.woken = true;
        }
    }
}
