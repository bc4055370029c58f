//! The turns that one slot has in hand.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::{Semaphore, SemaphorePermit};

/// The turns that one slot has in hand. All of them share a task.
pub(super) struct SlotTurns {
    /// The place in which one turn at a time waits for the runtime's permit and runs: a permit that went to a second one could
    /// not be used before the first one's code returns.
    one_at_a_time: Semaphore,
    /// How many turns wait for their code to run.
    unbegun: AtomicUsize,
}

impl SlotTurns {
    /// None yet.
    pub(super) fn new() -> Self {
        Self { one_at_a_time: Semaphore::new(1), unbegun: AtomicUsize::new(0) }
    }

    /// Waits for the place in which a turn runs.
    pub(super) async fn place(&self) -> Option<SemaphorePermit<'_>> {
        self.one_at_a_time.acquire().await.ok()
    }

    /// Whether a turn waits for its code to run.
    pub(super) fn has_unbegun(&self) -> bool {
        self.unbegun.load(Ordering::Relaxed) > 0
    }

    /// There is one more.
    pub(super) fn note_unbegun(&self) -> UnbegunTurn<'_> {
        self.unbegun.fetch_add(1, Ordering::Relaxed);
        UnbegunTurn { slot: self, is_over: AtomicBool::new(false) }
    }
}

/// A turn that waits for its code to run, until it ends or is dropped.
pub(super) struct UnbegunTurn<'a> {
    slot: &'a SlotTurns,
    is_over: AtomicBool,
}

impl UnbegunTurn<'_> {
    /// It waits no more.
    pub(super) fn end(&self) {
        if !self.is_over.swap(true, Ordering::Relaxed) {
            self.slot.unbegun.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for UnbegunTurn<'_> {
    fn drop(&mut self) {
        self.end();
    }
}
