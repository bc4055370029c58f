//! The state of an outage: the store fails, or the writer cannot be trusted.

use std::time::Duration;

use crate::operation::Operation;
use crate::unreadable;

/// How long parked fetches are left alone after a lost batch: the outage may last.
pub(crate) const LOST_PAUSE: Duration = Duration::from_millis(100);
/// How many batches after a lost one give every operation a savepoint.
const CAREFUL_BATCHES: u32 = 1_000;
/// How many batches in a row are run again, each without one more row that could not be read. In an outage every row fails.
const PASSED_OVER_MAX: u32 = 64;
/// How many panics in a row break the writer: a second one says that the cause does not go away.
const PANICS_MAX: u32 = 2;

/// What the writer remembers of lost batches.
#[derive(Default)]
pub(crate) struct WriterOutage {
    /// The last batch was lost.
    lost_last: bool,
    /// How many batches in a row ran again because a row could not be read.
    passed_over: u32,
    /// Operations without a waiting caller that run when the store is back.
    owed: Vec<Box<dyn Operation>>,
    /// Those of them that could not read what they need, each with the time when it is tried again.
    put_off: Vec<(Duration, Box<dyn Operation>)>,
    /// How many more batches give every operation a savepoint.
    careful_batches: u32,
    panics: u32,
    broken: Option<String>,
}

impl WriterOutage {
    pub(crate) fn is_under_way(&self) -> bool {
        self.lost_last
    }

    /// Whether every operation gets a savepoint, so that it can be undone.
    pub(crate) fn is_careful(&self) -> bool {
        self.careful_batches > 0
    }

    pub(crate) fn be_careful(&mut self) {
        self.careful_batches = CAREFUL_BATCHES;
    }

    pub(crate) fn batch_begins(&mut self) {
        self.careful_batches = self.careful_batches.saturating_sub(1);
    }

    pub(crate) fn batch_is_lost(&mut self) {
        self.lost_last = true;
        self.be_careful();
    }

    /// A batch runs again without a row that could not be read. Returns `false` if that happened too often in a row: then it
    /// is an outage.
    pub(crate) fn may_pass_over(&mut self) -> bool {
        self.be_careful();
        self.passed_over += 1;
        self.passed_over <= PASSED_OVER_MAX
    }

    /// A batch was committed. Returns whether that ends an outage. A batch that wrote nothing proves nothing: it commits on
    /// a full disk, too, and owed operations would be tried again without a pause.
    pub(crate) fn batch_is_committed(&mut self, wrote: bool) -> bool {
        self.panics = 0;
        self.passed_over = 0;
        wrote && self.end()
    }

    /// Assumes that the store is back. Returns whether there was an outage.
    pub(crate) fn end(&mut self) -> bool {
        self.passed_over = 0;
        std::mem::take(&mut self.lost_last)
    }

    pub(crate) fn note_panic(&mut self) {
        self.panics += 1;
    }

    /// The store failed. An operation that no caller waits for is owed: it runs when the store is back.
    pub(crate) fn give_up(&mut self, operation: Box<dyn Operation>, reason: &str) {
        if operation.is_owed() {
            self.owed.push(operation);
        } else {
            operation.fail(reason, true);
        }
    }

    /// The operation cannot read what it needs, although it ran alone. If it is owed, it is tried again after a pause that
    /// grows: each time costs a batch.
    pub(crate) fn put_off(&mut self, mut operation: Box<dyn Operation>, now: Duration, reason: &str) {
        if operation.is_owed() {
            let pause = unreadable::pause_after(operation.note_unreadable());
            self.put_off.push((now.saturating_add(pause), operation));
        } else {
            operation.fail(reason, true);
        }
    }

    /// How long until an operation that was put off is tried again.
    pub(crate) fn until_next(&self, now: Duration) -> Option<Duration> {
        self.put_off.iter().map(|(at, _)| at.saturating_sub(now)).min()
    }

    /// Moves the owed operations to the pending ones, except those that were put off.
    pub(crate) fn release_owed(&mut self, pending: &mut Vec<Box<dyn Operation>>, now: Duration) {
        pending.append(&mut self.owed);
        pending.extend(self.put_off.extract_if(.., |(at, _)| *at <= now).map(|(_, operation)| operation));
    }

    /// Why the writer takes no more work, if it is broken.
    pub(crate) fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    /// The writer takes no more work.
    pub(crate) fn break_with(&mut self, reason: String) {
        self.broken = Some(reason);
    }

    /// Forgets the owed operations: the writer takes no more work.
    pub(crate) fn forget_owed(&mut self) {
        self.owed.clear();
        self.put_off.clear();
    }

    /// Breaks the writer if it panicked twice in a row: a writer that cannot be trusted must not write. Returns why, the
    /// first time.
    pub(crate) fn break_if_panicking(&mut self) -> Option<&str> {
        if self.panics < PANICS_MAX || self.broken.is_some() {
            return None;
        }
        let reason = "the writer panicked twice in a row and takes no more work; the log has the panics, \
             restart the process to go on";
        Some(self.broken.insert(reason.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_that_run_again_without_a_row_are_counted_until_one_is_committed() {
        let mut outage = WriterOutage::default();
        for nth in 1..=PASSED_OVER_MAX {
            assert!(outage.may_pass_over(), "batch {nth} of {PASSED_OVER_MAX} runs again");
        }
        assert!(!outage.may_pass_over(), "one more in a row is an outage");
        outage.batch_is_committed(false);
        assert!(outage.may_pass_over(), "after a commit they are counted anew");
    }

    #[test]
    fn only_a_batch_that_wrote_ends_an_outage() {
        let mut outage = WriterOutage::default();
        assert!(!outage.batch_is_committed(true), "there was no outage");
        outage.batch_is_lost();
        assert!(!outage.batch_is_committed(false), "a batch that wrote nothing commits on a full disk, too");
        assert!(outage.is_under_way());
        assert!(outage.batch_is_committed(true), "the store is back");
        assert!(!outage.is_under_way());
    }

    #[test]
    fn operations_have_savepoints_in_the_thousand_batches_after_a_lost_one() {
        let mut outage = WriterOutage::default();
        assert!(!outage.is_careful(), "no batch was lost");
        outage.batch_is_lost();
        (1..CAREFUL_BATCHES).for_each(|_| outage.batch_begins());
        assert!(outage.is_careful(), "the last of them");
        outage.batch_begins();
        assert!(!outage.is_careful(), "the one after it");
    }
}
