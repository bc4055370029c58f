//! A process, from its start to its death.

use std::future::{Future, pending, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::Poll;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// The life of one process. Whatever a dead one was about to do never happens.
#[derive(Debug)]
pub(crate) struct Life {
    dead: AtomicBool,
    died: Notify,
    frozen_until: Mutex<Instant>,
    freezes: AtomicUsize,
}

impl Life {
    pub(crate) fn new() -> Self {
        Self {
            dead: AtomicBool::new(false),
            died: Notify::new(),
            frozen_until: Mutex::new(Instant::now()),
            freezes: AtomicUsize::new(0),
        }
    }

    /// Returns while the process lives and moves; never if it is dead.
    pub(crate) async fn go_on(&self) {
        loop {
            if self.is_dead() {
                return pending().await;
            }
            let frozen_until = *self.frozen_until.lock().unwrap_or_else(PoisonError::into_inner);
            if frozen_until <= Instant::now() {
                return;
            }
            sleep_until(frozen_until).await;
        }
    }

    /// Waits for something as a process does: while it stands still it takes nothing, and when it is dead nothing more.
    pub(crate) async fn waiting<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            self.go_on().await;
            let answer =
                poll_fn(
                    |cx| {
                        if self.is_still() { Poll::Ready(None) } else { work.as_mut().poll(cx).map(Some) }
                    },
                );
            if let Some(answer) = answer.await {
                return answer;
            }
        }
    }

    fn is_still(&self) -> bool {
        self.is_dead() || *self.frozen_until.lock().unwrap_or_else(PoisonError::into_inner) > Instant::now()
    }

    /// The process stands still until then.
    pub(crate) fn freeze(&self, until: Instant) {
        self.freezes.fetch_add(1, Ordering::SeqCst);
        *self.frozen_until.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }

    /// How often it stood still.
    pub(crate) fn freezes(&self) -> usize {
        self.freezes.load(Ordering::SeqCst)
    }

    /// The process ends here.
    pub(crate) fn die(&self) {
        self.dead.store(true, Ordering::SeqCst);
        self.died.notify_one();
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }

    /// Returns when the process has died.
    pub(crate) async fn died(&self) {
        while !self.is_dead() {
            self.died.notified().await;
        }
    }
}
