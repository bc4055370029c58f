//! When the writer gives free pages back to the disk: while it has nothing else to do.

use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::clock_reading::ClockReading;
use crate::operation::PendingOperation;
use crate::shrink::{self, ShrinkFile};
use crate::writer::Writer;

/// Pause before a step: a writer that is used again within it is not idle.
const STEP_PAUSE: Duration = Duration::from_millis(20);

/// What the writer knows of free pages: a hint when to look.
#[derive(Debug)]
pub(crate) struct ShrinkPace {
    /// Whether the file can become smaller at all.
    is_possible: bool,
    /// When to look for free pages, by the monotonic clock; `None` if nothing was deleted.
    next_at: Option<Duration>,
}

impl ShrinkPace {
    /// What a writer knows that was just opened: it looks once.
    pub(crate) fn new(conn: &Connection, in_file: bool, now: ClockReading) -> rusqlite::Result<Self> {
        let mut pace = Self { is_possible: in_file && shrink::is_possible(conn)?, next_at: None };
        pace.note(now);
        Ok(pace)
    }

    /// Pages may be free.
    pub(crate) fn note(&mut self, now: ClockReading) {
        self.next_at = self.is_possible.then(|| now.monotonic.saturating_add(STEP_PAUSE));
    }

    /// How long until the next look, if there is one.
    pub(crate) fn until_due(&self, now: ClockReading) -> Option<Duration> {
        self.next_at.map(|at| at.saturating_sub(now.monotonic))
    }
}

impl Writer {
    /// Adds a step to the next batch, if pages are free and nothing else is to be done.
    pub(crate) fn shrink_if_idle(&mut self) {
        if self.refusal().is_some() {
            self.shrinking.next_at = None;
            return;
        }
        let now = self.db.now();
        let is_due = self.shrinking.until_due(now).is_some_and(|left| left.is_zero());
        if !is_due || self.outage.is_under_way() {
            return;
        }
        if self.has_work() || self.commands.has_commands() || self.garbage.is_there() {
            self.shrinking.note(now);
            return;
        }
        self.shrinking.next_at = None;
        match shrink::is_wanted(&self.db.conn) {
            Ok(true) => {
                // No caller waits for it, and it need not happen in an outage.
                let (reply, _no_caller) = oneshot::channel();
                self.pending.push(Box::new(PendingOperation::new(ShrinkFile, Some(reply))));
            }
            Ok(false) => {}
            Err(error) => tracing::debug!(target: "everturn::providers::sqlite", %error,
                "cannot read how many pages of the file are free; it stays as large as it is"),
        }
    }
}
