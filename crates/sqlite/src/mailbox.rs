//! The way to the writer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::writer::Letter;

/// How long the writer stays awake with an empty mailbox.
const AWAKE: Duration = Duration::from_micros(60);

/// What callers put down for the writer, in order. The writer takes everything at once.
#[derive(Default)]
pub(crate) struct Mailbox {
    state: Mutex<State>,
    /// Whether there is anything to take: a hint that can be read without the lock.
    full: AtomicBool,
    arrived: Condvar,
    /// The same for a writer that is a task.
    noticed: Notify,
}

#[derive(Default)]
struct State {
    letters: Vec<Letter>,
    /// No more calls are taken; what is in the box is still done.
    closed: bool,
    /// The writer is gone; nothing is done any more.
    abandoned: bool,
    /// The writer sleeps. Waking somebody who is awake costs as much as waking a sleeper.
    asleep: bool,
}

/// What a look into the mailbox brought.
pub(crate) struct Arrivals {
    pub(crate) letters: Vec<Letter>,
    pub(crate) closed: bool,
}

/// The mailbox takes no more calls.
#[derive(Debug)]
pub(crate) struct Closed;

impl Mailbox {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a letter down, unless the mailbox is closed.
    pub(crate) fn send(&self, letter: Letter) -> Result<(), Closed> {
        let state = self.state();
        if state.closed {
            return Err(Closed);
        }
        self.push(state, letter);
        Ok(())
    }

    fn push(&self, mut state: MutexGuard<'_, State>, letter: Letter) {
        state.letters.push(letter);
        self.full.store(true, Ordering::Release);
        let asleep = state.asleep;
        drop(state);
        if asleep {
            self.wake();
        }
    }

    /// Whether there is something to take.
    pub(crate) fn has_letters(&self) -> bool {
        self.full.load(Ordering::Acquire)
    }

    /// Puts down what must be done even while the writer is closing: work is handed back, a waiter leaves.
    pub(crate) fn send_last(&self, letter: Letter) {
        let state = self.state();
        if !state.abandoned {
            self.push(state, letter);
        }
    }

    /// Takes no more calls; the writer ends when it has done what is there. The first to close announces it.
    pub(crate) fn close(&self, announce: impl FnOnce()) {
        let mut state = self.state();
        if !state.closed {
            announce();
            state.closed = true;
        }
        drop(state);
        self.wake();
    }

    fn wake(&self) {
        self.arrived.notify_one();
        self.noticed.notify_one();
    }

    /// The writer is gone: whatever is still there is dropped, and its callers notice. Tells whether it was closed
    /// before.
    pub(crate) fn abandon(&self) -> bool {
        let mut state = self.state();
        let was_closed = std::mem::replace(&mut state.closed, true);
        state.abandoned = true;
        let letters = std::mem::take(&mut state.letters);
        drop(state);
        // Dropped outside the lock: a letter's drop may hand work back, which comes here.
        drop(letters);
        was_closed
    }

    /// Waits for letters up to `wait` (for ever if `None`), and takes all there are.
    pub(crate) fn take(&self, wait: Option<Duration>) -> Arrivals {
        let deadline = wait.and_then(|wait| Instant::now().checked_add(wait));
        self.stay_awake(wait.unwrap_or(Duration::MAX));
        let mut state = self.state();
        while state.letters.is_empty() && !state.closed {
            state.asleep = true;
            state = match deadline {
                None => self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break;
                    }
                    self.arrived.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        state.asleep = false;
        self.full.store(false, Ordering::Release);
        Arrivals { letters: std::mem::take(&mut state.letters), closed: state.closed }
    }

    /// The same for a writer that is a task.
    pub(crate) async fn take_in_task(&self, wait: Option<Duration>) -> Arrivals {
        if !self.has_arrivals() {
            match wait {
                None => self.noticed.notified().await,
                // Whether something came or the time is over shows below.
                Some(wait) => drop(tokio::time::timeout(wait, self.noticed.notified()).await),
            }
        }
        let mut state = self.state();
        state.asleep = false;
        self.full.store(false, Ordering::Release);
        Arrivals { letters: std::mem::take(&mut state.letters), closed: state.closed }
    }

    /// Whether the writer need not sleep; if it must, whoever puts a letter down wakes it.
    fn has_arrivals(&self) -> bool {
        let mut state = self.state();
        state.asleep = state.letters.is_empty() && !state.closed;
        !state.asleep
    }

    /// Looks for letters a moment longer before falling asleep: the answer to what was just said is often close, and
    /// being woken costs more than the look. Whoever else needs the processor gets it meanwhile.
    fn stay_awake(&self, at_most: Duration) {
        let began = Instant::now();
        let moment = AWAKE.min(at_most);
        while !self.full.load(Ordering::Acquire) && began.elapsed() < moment {
            std::thread::yield_now();
        }
    }
}
