//! The queue of commands from callers to the writer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tokio::sync::{Notify, oneshot};

use crate::error::SqliteError;
use crate::operation::Operation;
use crate::parked_fetches::{ParkedTurnFetch, ParkedWorkFetch};

/// How long the writer polls an empty queue before it sleeps.
const AWAKE: Duration = Duration::from_micros(60);

/// A read with the writer's connection.
pub(crate) type Reading = Box<dyn FnOnce(&Connection) + Send>;

/// What callers send to the writer.
pub(crate) enum Command {
    /// Run an operation in the next batch.
    Run(Box<dyn Operation>),
    /// Park a dispatcher's fetch until an instance is ready for it.
    FetchTurn(ParkedTurnFetch),
    /// Park a worker's fetch until an activity is ready for it.
    FetchWork(ParkedWorkFetch),
    /// Forget the parked fetch with this id: it timed out, or its caller dropped it.
    CancelFetch(u64),
    /// An instance was assigned whose history cannot be read: leave it alone for a while.
    PassOver { key: i64, instance: String, reason: String },
    /// The clock was moved: look at everything again.
    Wake,
    /// A client watches an instance: an idle writer starts to look for other processes' commits.
    Watched,
    /// Another provider of this process has committed to the same file.
    CommittedElsewhere,
    /// The reads are over that the writer waits for, to empty the write-ahead log.
    ReadersLeft,
    /// Run a read between two batches.
    Read(Reading),
    /// Move the write-ahead log into the database file.
    Checkpoint(oneshot::Sender<Result<(), SqliteError>>),
}

/// Where the writer finds commands that arrive while a batch is open.
pub(crate) trait CommandSource {
    /// Commands are awaited for `window` from now on.
    fn open(&mut self, window: Duration);
    /// The commands that arrived; `None` when the window is over.
    fn next(&mut self) -> Option<Vec<Command>>;
    /// Waits at most this long for commands; none if none came.
    fn arrived_within(&mut self, wait: Duration) -> Vec<Command>;
}

/// A source without commands.
pub(crate) struct NoCommands;

impl CommandSource for NoCommands {
    fn open(&mut self, _window: Duration) {}

    fn next(&mut self) -> Option<Vec<Command>> {
        None
    }

    fn arrived_within(&mut self, _wait: Duration) -> Vec<Command> {
        Vec::new()
    }
}

/// Commands in order of arrival. The writer takes all of them at once.
#[derive(Default)]
pub(crate) struct CommandQueue {
    state: Mutex<QueueState>,
    /// Whether there are commands: a hint that can be read without the lock.
    full: AtomicBool,
    arrived: Condvar,
    /// The same for a writer that is a task.
    noticed: Notify,
}

#[derive(Default)]
struct QueueState {
    commands: Vec<Command>,
    /// No more calls are accepted; commands in the queue are still executed.
    closed: bool,
    /// The writer has ended; nothing is executed any more.
    writer_ended: bool,
    /// The writer sleeps. Notifying a writer that is awake would cost as much as waking it.
    asleep: bool,
}

/// What one look into the queue found.
pub(crate) struct ReceivedCommands {
    pub(crate) commands: Vec<Command>,
    pub(crate) closed: bool,
}

/// The queue accepts no more calls.
#[derive(Debug)]
pub(crate) struct QueueClosed;

impl CommandQueue {
    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a command, unless the queue is closed.
    pub(crate) fn send(&self, command: Command) -> Result<(), QueueClosed> {
        let state = self.state();
        if state.closed {
            return Err(QueueClosed);
        }
        self.push(state, command);
        Ok(())
    }

    /// Queues a command that must run even while the writer is closing: a fetch is cancelled, work is returned.
    pub(crate) fn send_even_if_closed(&self, command: Command) {
        let state = self.state();
        if !state.writer_ended {
            self.push(state, command);
        }
    }

    #[inline]
    fn push(&self, mut state: MutexGuard<'_, QueueState>, command: Command) {
        state.commands.push(command);
        self.full.store(true, Ordering::Release);
        let asleep = state.asleep;
        drop(state);
        if asleep {
            self.wake_writer();
        }
    }

    /// Whether there are commands to take.
    pub(crate) fn has_commands(&self) -> bool {
        self.full.load(Ordering::Acquire)
    }

    /// Accepts no more calls; the writer ends after the commands that are queued. `announce` runs for the first call only.
    pub(crate) fn close(&self, announce: impl FnOnce()) {
        let mut state = self.state();
        if !state.closed {
            announce();
            state.closed = true;
        }
        drop(state);
        self.wake_writer();
    }

    fn wake_writer(&self) {
        self.arrived.notify_one();
        self.noticed.notify_one();
    }

    /// The writer has ended: queued commands are dropped, so that their callers get an error. Returns whether the queue was
    /// closed before.
    pub(crate) fn writer_ended(&self) -> bool {
        let mut state = self.state();
        let was_closed = std::mem::replace(&mut state.closed, true);
        state.writer_ended = true;
        let commands = std::mem::take(&mut state.commands);
        drop(state);
        // Dropped outside the lock: dropping a command may return work to the queue, which locks this state.
        drop(commands);
        was_closed
    }

    /// Waits for commands up to `wait` (for ever if `None`), and takes all of them. If `expected`, the queue is polled for a
    /// moment before the writer sleeps.
    pub(crate) fn take(&self, wait: Option<Duration>, expected: bool) -> ReceivedCommands {
        let deadline = wait.and_then(|wait| Instant::now().checked_add(wait));
        // The next command often follows within microseconds, and being woken costs more than polling. Other threads get
        // the processor meanwhile.
        let began = Instant::now();
        let poll = if expected { AWAKE.min(wait.unwrap_or(Duration::MAX)) } else { Duration::ZERO };
        while !self.full.load(Ordering::Acquire) && began.elapsed() < poll {
            std::thread::yield_now();
        }
        let mut state = self.state();
        while state.commands.is_empty() && !state.closed {
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
        ReceivedCommands { commands: std::mem::take(&mut state.commands), closed: state.closed }
    }

    /// The same for a writer that is a task.
    pub(crate) async fn take_in_task(&self, wait: Option<Duration>) -> ReceivedCommands {
        if self.must_sleep() {
            match wait {
                None => self.noticed.notified().await,
                // Whether a command arrived or the time is over shows below.
                Some(wait) => drop(tokio::time::timeout(wait, self.noticed.notified()).await),
            }
        }
        let mut state = self.state();
        state.asleep = false;
        self.full.store(false, Ordering::Release);
        ReceivedCommands { commands: std::mem::take(&mut state.commands), closed: state.closed }
    }

    /// Whether there is nothing to take; if so, the next sender wakes the writer.
    fn must_sleep(&self) -> bool {
        let mut state = self.state();
        state.asleep = state.commands.is_empty() && !state.closed;
        state.asleep
    }
}
