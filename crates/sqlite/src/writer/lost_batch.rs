//! What the writer does when a batch is lost: nothing of it happened.

use std::time::Duration;

use crate::command_queue::NoCommands;
use crate::operation::Operation;
use crate::parked_fetches::{fail_for_good, fail_retryable};
use crate::writer::Writer;
use crate::writer::batch::{Assignments, WriterBatch};
use crate::writer::schedule::WorkHints;

impl Writer {
    /// Rolls the batch back. Lock tokens that it gave out are void; its operations run again one by one, and the callers of
    /// those that fail then get an error.
    pub(crate) fn lose(&mut self, batch: WriterBatch, reason: &str) {
        self.lose_to(batch, reason, true);
    }

    /// The same because something could not be read. If an operation needed it, others may succeed: parked fetches need not
    /// wait.
    pub(crate) fn lose_to_reading(&mut self, batch: WriterBatch, reason: &str) {
        let is_outage = batch.todo.is_empty();
        self.lose_to(batch, reason, is_outage);
    }

    fn lose_to(&mut self, batch: WriterBatch, reason: &str, is_outage: bool) {
        if let Err(error) = self.db.roll_back() {
            tracing::error!(target: "everturn::providers::sqlite", %error,
                "rolling back a lost batch failed; if calls keep failing, restart the process");
        }
        tracing::warn!(target: "everturn::providers::sqlite", reason,
            "a batch was lost and rolled back; its operations run again one by one");
        metrics::counter!("everturn_sqlite_batches_lost_total").increment(1);
        let WriterBatch { todo, done, assigned, late, no_turn, no_work, alone, .. } = batch;
        self.park_again(assigned);
        self.keep_late(late);
        self.schedule.forget_looks(self.db.now());
        // A slice of the garbage may have been among the operations.
        self.garbage.note(self.db.now());
        if !alone && is_outage {
            // Parked fetches look again after a pause, or when one of the operations succeeds alone.
            self.schedule.hints = WorkHints::default();
            // The write-ahead log may take the room that was missing.
            if let Some(checkpointer) = &mut self.checkpointer {
                checkpointer.after_loss(&self.db.conn);
            }
        }
        if is_outage {
            self.outage.batch_is_lost();
        } else {
            self.outage.be_careful();
        }
        for fetch in no_turn.into_iter().chain(self.fetches.turns.take_once()) {
            fail_retryable(fetch, reason);
        }
        for fetch in no_work.into_iter().chain(self.fetches.work.take_once()) {
            fail_retryable(fetch, reason);
        }
        self.break_if_panicking();
        let mut operations: Vec<_> = done.into_iter().chain(todo).collect();
        if operations.is_empty() && !alone {
            // The batch consisted of assignments. Pending operations would wait as long as the outage lasts.
            operations.append(&mut self.pending);
        }
        if alone {
            let now = self.db.clock.monotonic();
            for operation in operations {
                if is_outage {
                    self.outage.give_up(operation, reason);
                } else {
                    self.outage.put_off(operation, now, reason);
                }
            }
            return;
        }
        // Other callers do not wait until each of them has timed out.
        let deadline = self.db.clock.monotonic().saturating_add(self.db.busy_timeout());
        for operation in operations {
            if self.db.clock.monotonic() < deadline {
                self.run_alone(operation, deadline);
            } else {
                self.outage.give_up(operation, reason);
            }
        }
    }

    /// Runs the batch again, with a savepoint for every operation. No caller was answered yet, except by turns that began
    /// early: their locks are void.
    pub(crate) fn run_again_carefully(&mut self, batch: WriterBatch) {
        if let Err(error) = self.db.roll_back() {
            self.lose(batch, &error.to_string());
            return;
        }
        self.outage.be_careful();
        let WriterBatch { todo, done, assigned, late, no_turn, no_work, .. } = batch;
        self.keep_late(late);
        let newer = std::mem::take(&mut self.pending);
        self.pending = done.into_iter().chain(todo).chain(newer).collect();
        self.park_again(assigned);
        no_turn.into_iter().for_each(|fetch| self.fetches.turns.park_again(fetch));
        no_work.into_iter().for_each(|fetch| self.fetches.work.park_again(fetch));
        self.schedule.forget_looks(self.db.now());
        self.schedule.hints = WorkHints::ALL;
    }

    fn run_alone(&mut self, operation: Box<dyn Operation>, deadline: Duration) {
        if let Err(error) = self.db.begin_before(deadline) {
            self.outage.give_up(operation, &error.to_string());
            return;
        }
        self.run_batch(WriterBatch::alone(operation), &mut NoCommands);
    }

    /// Parks fetches again whose assignment came to nothing.
    pub(crate) fn park_again(&mut self, assigned: Assignments) {
        let Assignments { turns, warm, work } = assigned;
        self.schedule.hints.turns |= !turns.is_empty() || !warm.is_empty();
        self.schedule.hints.work |= !work.is_empty();
        for (fetch, _turns) in turns.into_iter().chain(warm) {
            self.fetches.turns.park_again(fetch);
        }
        for (fetch, _work) in work {
            self.fetches.work.park_again(fetch);
        }
    }

    /// What was assigned in an earlier batch stays assigned, whatever happens to this one.
    fn keep_late(&mut self, late: Assignments) {
        self.late.turns.extend(late.turns);
        self.late.work.extend(late.work);
    }

    /// Fails everything for good if the writer panicked twice in a row.
    fn break_if_panicking(&mut self) {
        let Some(reason) = self.outage.break_if_panicking() else { return };
        tracing::error!(target: "everturn::providers::sqlite", reason,
            "the writer takes no more work; restart the process");
        let reason = reason.to_owned();
        self.fail_all(WriterBatch::default(), &reason);
    }

    /// Fails the batch and everything that waits for good.
    pub(crate) fn fail_all(&mut self, batch: WriterBatch, reason: &str) {
        let WriterBatch { todo, done, assigned, late, no_turn, no_work, .. } = batch;
        for operation in done.into_iter().chain(todo).chain(self.pending.drain(..)) {
            operation.fail(reason, false);
        }
        self.outage.forget_owed();
        for Assignments { turns, warm, work } in [assigned, late, std::mem::take(&mut self.late)] {
            turns.into_iter().chain(warm).for_each(|(fetch, _)| fail_for_good(fetch, reason));
            work.into_iter().for_each(|(fetch, _)| fail_for_good(fetch, reason));
        }
        no_turn.into_iter().for_each(|fetch| fail_for_good(fetch, reason));
        no_work.into_iter().for_each(|fetch| fail_for_good(fetch, reason));
        self.fetches.fail_all(reason);
    }
}
