//! A simulated process.

use std::future::{Future, pending, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::Poll;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// A simulated process, which can be frozen for a while and killed. What a killed process was about to do never happens.
#[derive(Debug)]
pub struct Process {
    killed: AtomicBool,
    was_killed: Notify,
    frozen_until: Mutex<Instant>,
    freezes: AtomicUsize,
}

impl Process {
    /// A running process.
    pub fn new() -> Self {
        Self {
            killed: AtomicBool::new(false),
            was_killed: Notify::new(),
            frozen_until: Mutex::new(Instant::now()),
            freezes: AtomicUsize::new(0),
        }
    }

    /// Returns while the process runs; never if it was killed.
    pub async fn running(&self) {
        loop {
            if self.is_killed() {
                return pending().await;
            }
            let frozen_until = *self.frozen_until.lock().unwrap_or_else(PoisonError::into_inner);
            if frozen_until <= Instant::now() {
                return;
            }
            sleep_until(frozen_until).await;
        }
    }

    /// Polls `work` only while the process runs.
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            self.running().await;
            let answer =
                poll_fn(
                    |cx| {
                        if self.is_stopped() { Poll::Ready(None) } else { work.as_mut().poll(cx).map(Some) }
                    },
                );
            if let Some(answer) = answer.await {
                return answer;
            }
        }
    }

    fn is_stopped(&self) -> bool {
        self.is_killed() || *self.frozen_until.lock().unwrap_or_else(PoisonError::into_inner) > Instant::now()
    }

    /// Freezes the process until then.
    pub fn freeze(&self, until: Instant) {
        self.freezes.fetch_add(1, Ordering::SeqCst);
        *self.frozen_until.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }

    /// How often it was frozen.
    pub fn freezes(&self) -> usize {
        self.freezes.load(Ordering::SeqCst)
    }

    /// Kills the process.
    pub fn kill(&self) {
        self.killed.store(true, Ordering::SeqCst);
        self.was_killed.notify_one();
    }

    /// Whether it was killed.
    pub fn is_killed(&self) -> bool {
        self.killed.load(Ordering::SeqCst)
    }

    /// Returns when the process was killed. For one caller at a time.
    pub async fn killed(&self) {
        while !self.is_killed() {
            self.was_killed.notified().await;
        }
    }
}

impl Default for Process {
    fn default() -> Self {
        Self::new()
    }
}
