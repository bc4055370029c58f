//! When the writer removes a slice of what the garbage list names: beside other work, but never for long at a time.

use std::time::Duration;

use tokio::sync::oneshot;

use crate::clock_reading::ClockReading;
use crate::garbage::{self, SweepGarbage};
use crate::operation::PendingOperation;
use crate::writer::Writer;

/// Pause between two slices: other operations have most of the time.
const SLICE_PAUSE: Duration = Duration::from_millis(10);
/// Pause between two looks at the list while other processes commit.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// What the writer knows of the garbage list: a hint when to look.
#[derive(Debug, Default)]
pub(crate) struct GarbagePace {
    is_there: bool,
    /// When the next slice may begin, by the monotonic clock.
    next_at: Duration,
    /// The list may have something that this writer does not know of, or has passed over.
    look_wanted: bool,
    /// When the list was last looked at.
    looked_at: Option<Duration>,
}

impl GarbagePace {
    /// There is something in the list, or there may be.
    pub(crate) fn note(&mut self, now: ClockReading) {
        self.is_there = true;
        self.next_at = now.monotonic.saturating_add(SLICE_PAUSE);
    }

    /// Whether there are rows to be removed, as far as this writer knows.
    pub(crate) fn is_there(&self) -> bool {
        self.is_there
    }

    /// The writer had nothing to do for a while.
    pub(crate) fn tick(&mut self) {
        self.next_at = Duration::ZERO;
    }

    /// There may be something in the list that this writer does not know of.
    pub(crate) fn want_look(&mut self) {
        self.look_wanted = true;
    }

    /// A part of the list cannot be read now: it is looked at again after a pause.
    pub(crate) fn look_after_pause(&mut self, now: Duration) {
        (self.look_wanted, self.looked_at) = (true, Some(now));
    }

    /// How long until the next slice or the next look; `None` if the list is empty.
    pub(crate) fn until_due(&self, now: ClockReading) -> Option<Duration> {
        let slice = self.is_there.then_some(self.next_at);
        [slice, self.next_look()].into_iter().flatten().min().map(|at| at.saturating_sub(now.monotonic))
    }

    /// When the list is looked at next, if that is wanted.
    fn next_look(&self) -> Option<Duration> {
        self.look_wanted.then(|| self.looked_at.map_or(Duration::ZERO, |at| at.saturating_add(LOOK_PAUSE)))
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
        self.look_for_garbage();
        if !self.garbage.is_there || self.db.now().monotonic < self.garbage.next_at {
            return;
        }
        self.garbage.is_there = false;
        // No caller waits for it, and it need not happen in an outage.
        let (reply, _no_caller) = oneshot::channel();
        self.pending.push(Box::new(PendingOperation::new(SweepGarbage, Some(reply))));
    }

    /// Looks whether other processes have left something in the list, or it has what was passed over. Not inside a batch: an error would end its
    /// transaction.
    fn look_for_garbage(&mut self) {
        let (now, pace) = (self.db.now(), &mut self.garbage);
        if pace.next_look().is_none_or(|at| now.monotonic < at) {
            return;
        }
        pace.looked_at = Some(now.monotonic);
        match garbage::is_there(&self.db.conn) {
            Ok(is_there) => {
                // What was passed over is tried again as long as it is in the list.
                pace.look_wanted = is_there && self.db.unreadable.has_garbage();
                if is_there && !pace.is_there {
                    pace.note(now);
                }
            }
            Err(error) => tracing::debug!(target: "everturn::providers::sqlite", %error,
                "the garbage list cannot be read; it is looked at again in a second"),
        }
    }
}
