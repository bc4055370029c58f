//! When the writer removes a slice of what the garbage list names: beside other work, but never for long at a time.

use std::time::Duration;

use tokio::sync::oneshot;

use crate::clock_reading::ClockReading;
use crate::garbage::SweepGarbage;
use crate::operation::PendingOperation;
use crate::writer::Writer;

/// Pause between two slices: other operations have most of the time.
const SLICE_PAUSE: Duration = Duration::from_millis(10);

/// What the writer knows of the garbage list: a hint when to look.
#[derive(Debug, Default)]
pub(crate) struct GarbagePace {
    is_there: bool,
    /// When the next slice may begin, by the monotonic clock.
    next_at: Duration,
}

impl GarbagePace {
    /// There is something in the list, or there may be.
    pub(crate) fn note(&mut self, now: ClockReading) {
        self.is_there = true;
        self.next_at = now.monotonic.saturating_add(SLICE_PAUSE);
    }

    /// The writer had nothing to do for a while.
    pub(crate) fn tick(&mut self) {
        self.next_at = Duration::ZERO;
    }

    /// How long until the next slice; `None` if the list is empty.
    pub(crate) fn until_due(&self, now: ClockReading) -> Option<Duration> {
        self.is_there.then(|| self.next_at.saturating_sub(now.monotonic))
    }
}

impl Writer {
    /// Adds a slice to the next batch, if one is due. If that batch is lost, the list is looked at again later.
    pub(crate) fn sweep_garbage_if_due(&mut self) {
        if self.refusal().is_some() {
            // Nothing is removed any more, and the writer need not wake up for it.
            self.garbage = GarbagePace::default();
            return;
        }
        let is_due = self.garbage.until_due(self.db.now()).is_some_and(|left| left.is_zero());
        if !is_due || self.outage.is_under_way() {
            return;
        }
        self.garbage.is_there = false;
        // No caller waits for it, and it need not happen in an outage.
        let (reply, _no_caller) = oneshot::channel();
        self.pending.push(Box::new(PendingOperation::new(SweepGarbage, Some(reply))));
    }
}
