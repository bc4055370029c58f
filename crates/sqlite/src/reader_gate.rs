//! The gate that readers pass. While it is held, new readers wait, so that a moment comes in which no reader needs the
//! write-ahead log and it can be emptied. Without it, readers that overlap would let the log grow as long as they read.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::command_queue::{Command, CommandQueue};

/// How long a reader waits at the gate at most. Then it opens the gate: a read under way takes too long.
const HELD_MAX: Duration = Duration::from_secs(1);

/// The gate between the readers of a provider and its writer.
#[derive(Debug, Default)]
pub(crate) struct ReaderGate {
    state: Mutex<GateState>,
    opened: Notify,
}

#[derive(Debug, Default)]
struct GateState {
    /// How many reads have passed and are not over.
    under_way: usize,
    is_held: bool,
    /// A reader waited too long and opened the gate.
    given_up: bool,
}

impl ReaderGate {
    fn state(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while the gate is held, for a second at most. The read is under way until the pass is dropped; if it was the
    /// last one that the writer waits for, the writer is woken.
    pub(crate) async fn enter(self: &Arc<Self>, commands: &Arc<CommandQueue>) -> ReaderPass {
        if !self.try_enter() && tokio::time::timeout(HELD_MAX, self.enter_when_open()).await.is_err() {
            self.give_up();
        }
        ReaderPass { gate: Arc::clone(self), commands: Arc::clone(commands) }
    }

    fn try_enter(&self) -> bool {
        let mut state = self.state();
        if !state.is_held {
            state.under_way += 1;
        }
        !state.is_held
    }

    async fn enter_when_open(&self) {
        loop {
            let mut opened = std::pin::pin!(self.opened.notified());
            // From here on no opening is missed.
            opened.as_mut().enable();
            if self.try_enter() {
                return;
            }
            opened.await;
        }
    }

    /// Opens the gate for all, because a reader has waited long enough, and enters.
    fn give_up(&self) {
        let mut state = self.state();
        state.given_up |= state.is_held;
        state.is_held = false;
        state.under_way += 1;
        drop(state);
        self.opened.notify_waiters();
    }

    fn leave(&self) -> bool {
        let mut state = self.state();
        state.under_way = state.under_way.saturating_sub(1);
        state.is_held && state.under_way == 0
    }

    /// New readers wait from now on.
    pub(crate) fn hold(&self) {
        self.state().is_held = true;
    }

    /// Whether the gate is held and all reads are over that had passed it.
    pub(crate) fn is_clear(&self) -> bool {
        let state = self.state();
        state.is_held && state.under_way == 0
    }

    /// Whether a reader opened the gate since the last call, because it had waited too long.
    pub(crate) fn was_given_up(&self) -> bool {
        std::mem::take(&mut self.state().given_up)
    }

    #[cfg(test)]
    pub(crate) fn is_held(&self) -> bool {
        self.state().is_held
    }

    /// New readers no longer wait.
    pub(crate) fn open(&self) {
        let was_held = std::mem::replace(&mut self.state().is_held, false);
        if was_held {
            self.opened.notify_waiters();
        }
    }
}

/// A read that has passed the gate and is not over.
pub(crate) struct ReaderPass {
    gate: Arc<ReaderGate>,
    commands: Arc<CommandQueue>,
}

impl Drop for ReaderPass {
    fn drop(&mut self) {
        if self.gate.leave() {
            self.commands.send_even_if_closed(Command::ReadersLeft);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn gate() -> (Arc<ReaderGate>, Arc<CommandQueue>) {
        (Arc::default(), Arc::default())
    }

    fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_reader_waits_until_the_gate_is_opened() {
        let (gate, commands) = gate();
        let under_way = gate.enter(&commands).await;
        gate.hold();
        let mut new = pin!(gate.enter(&commands));
        assert!(poll(new.as_mut()).is_pending());
        assert!(!gate.is_clear(), "a read is under way");
        drop(under_way);
        assert!(gate.is_clear() && poll(new.as_mut()).is_pending());
        gate.open();
        assert!(poll(new.as_mut()).is_ready());
        assert!(!gate.was_given_up());
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_reader_under_way_wakes_the_writer_that_holds_the_gate() {
        let (gate, commands) = gate();
        let (first, second) = (gate.enter(&commands).await, gate.enter(&commands).await);
        gate.hold();
        drop(first);
        assert!(!commands.has_commands());
        drop(second);
        assert!(commands.has_commands());
    }

    #[tokio::test]
    async fn a_reader_that_leaves_an_open_gate_wakes_no_writer() {
        let (gate, commands) = gate();
        drop(gate.enter(&commands).await);
        assert!(!commands.has_commands());
    }

    #[tokio::test(start_paused = true)]
    async fn no_reader_waits_for_longer_than_a_second() {
        let (gate, commands) = gate();
        let under_way = gate.enter(&commands).await;
        gate.hold();
        let began = tokio::time::Instant::now();
        let (first, second) = tokio::join!(gate.enter(&commands), gate.enter(&commands));
        assert_eq!(began.elapsed().as_secs(), 1);
        assert!(!gate.is_held() && gate.was_given_up(), "the gate is open for all");
        assert!(!gate.was_given_up(), "that is told once");
        drop((under_way, first, second));
        gate.hold();
        assert!(gate.is_clear(), "every reader was counted once");
    }
}
