//! One batch: the operations of one transaction, the work it assigns, and their answers.

use std::collections::{HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::clock_reading::ClockReading;
use crate::command_queue::{Command, CommandSource};
use crate::fetch_turns::{AssignedTurn, TurnAnswer};
use crate::fetch_work::{AssignedWork, WorkAnswer};
use crate::locks;
use crate::operation::{Effects, Operation};
use crate::parked_fetches::{ParkedTurnFetch, ParkedWorkFetch, answer_none};
use crate::return_unread::{UnreadGuard, UnreadWork};
use crate::writer::connection::BatchLoss;
use crate::writer::schedule::{WakeSchedule, WorkHints};
use crate::writer::{BatchLimits, Writer};

/// How long a batch takes commands that arrive while it runs.
const OPEN_MAX: Duration = Duration::from_millis(2);

/// Fetches, each with at least one turn that was assigned to it.
pub(crate) type ServedFetches = Vec<(ParkedTurnFetch, Vec<AssignedTurn>)>;

/// Work that was assigned to parked fetches.
#[derive(Default)]
pub(crate) struct Assignments {
    pub(crate) turns: ServedFetches,
    /// The same with instances in memory: they are answered when the assignment is over, before the commit.
    pub(crate) warm: ServedFetches,
    pub(crate) work: Vec<(ParkedWorkFetch, AssignedWork)>,
}

impl Assignments {
    /// The fetches that get instances in memory, or the others.
    pub(crate) fn served(&mut self, in_memory: bool) -> &mut ServedFetches {
        if in_memory { &mut self.warm } else { &mut self.turns }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.turns.is_empty() && self.warm.is_empty() && self.work.is_empty()
    }

    /// The same assignments, each with the time from which its renewed lock counts.
    fn renewed(mut self, held: &[(String, ClockReading, u64)]) -> Self {
        let renewed_at =
            |token: &str| held.iter().rev().find(|(other, ..)| other == token).map(|(_, at, _)| *at);
        for turn in self.turns.iter_mut().flat_map(|(_, turns)| turns) {
            turn.at = renewed_at(&turn.token).unwrap_or(turn.at);
        }
        for (_, work) in &mut self.work {
            work.at = renewed_at(&work.token).unwrap_or(work.at);
        }
        self
    }
}

/// What one transaction holds.
#[derive(Default)]
pub(crate) struct WriterBatch {
    /// Operations to run; the one that runs is in front.
    pub(crate) todo: VecDeque<Box<dyn Operation>>,
    pub(crate) done: Vec<Box<dyn Operation>>,
    pub(crate) assigned: Assignments,
    /// Work of an earlier batch whose lock is renewed in this one before the fetch is answered.
    pub(crate) late: Assignments,
    /// Fetches that took their one look and found nothing.
    pub(crate) no_turn: Vec<ParkedTurnFetch>,
    pub(crate) no_work: Vec<ParkedWorkFetch>,
    pub(crate) effects: Effects,
    /// Turns that were answered before the commit and whose own commit is outstanding.
    pub(crate) early: HashSet<String>,
    window_open: bool,
    /// When it began, by the monotonic clock.
    began: Duration,
    /// Commands arrived while it ran.
    in_burst: bool,
    /// An instance was skipped because its turn ended in this very batch.
    pub(crate) look_again: bool,
    /// How many operations and assignments it has.
    pub(crate) operations: usize,
    pub(crate) payload_bytes: usize,
    /// How many of the operations need no lock, and their payload.
    pub(crate) newcomers: usize,
    pub(crate) newcomers_payload_bytes: usize,
    /// Fetches that the last batch had no room for are being served, before any operation.
    fetches_first: bool,
    pub(crate) changes_before: u64,
    /// One operation of a lost batch runs again alone: nothing is assigned, and a failure is final.
    pub(crate) alone: bool,
}

impl WriterBatch {
    pub(crate) fn alone(operation: Box<dyn Operation>) -> Self {
        Self { todo: VecDeque::from([operation]), alone: true, ..Self::default() }
    }

    pub(crate) fn is_full(&self, limits: &BatchLimits) -> bool {
        self.operations >= limits.operations_max || self.payload_bytes >= limits.payload_bytes_max
    }

    /// Whether it has no room for another assignment. The payload of operations does not count: the callers of fetches work
    /// off what fills the batch. A batch that begins with assignments leaves half of itself to operations.
    pub(crate) fn is_full_for_fetches(&self, limits: &BatchLimits) -> bool {
        let part = if self.fetches_first { limits.operations_max.div_ceil(2) } else { limits.operations_max };
        self.operations >= part
    }

    /// Notes what an operation or an assignment did.
    pub(crate) fn absorb(&mut self, effects: Effects, schedule: &mut WakeSchedule) {
        for token in &effects.released {
            self.early.remove(token);
        }
        schedule.hints.turns |= effects.turns.is_some() || effects.new_turns || effects.orphans;
        schedule.hints.orphans |= effects.orphans;
        if effects.removed || effects.turns.is_some_and(|seq| schedule.is_skipped(seq)) {
            schedule.forget_skipped();
        }
        schedule.hints.work |= effects.work;
        self.effects.absorb(effects);
    }
}

impl Writer {
    /// Runs the batch in the transaction that was begun, and ends the transaction.
    pub(crate) fn run_batch(&mut self, mut batch: WriterBatch, source: &mut dyn CommandSource) {
        let ran = catch_unwind(AssertUnwindSafe(|| {
            self.fill(&mut batch, source)?;
            self.db.commit(batch.changes_before)
        }));
        match ran {
            // What was written to a file that is no longer in its place is lost: no caller may be told otherwise.
            Ok(Ok(true)) if self.shared.guard.refusal_now().is_some() => self.fail_closed(batch),
            Ok(Ok(wrote)) => {
                if wrote {
                    self.others.note_own_commit();
                    self.schedule.note_unknown_due(self.db.now());
                    self.shared.commits.fetch_add(1, Ordering::Relaxed);
                    // The store works: what it owes need not wait for a pause between commands.
                    self.outage.release_owed(&mut self.pending, self.db.clock.monotonic());
                }
                if self.outage.batch_is_committed(wrote) {
                    // The store is back: parked fetches may have missed work meanwhile.
                    self.schedule.hints = WorkHints::ALL;
                }
                self.finish(batch);
            }
            Ok(Err(BatchLoss::Storage(reason))) => self.lose(batch, &reason),
            Ok(Err(BatchLoss::Unreadable(reason))) => self.lose_to_reading(batch, &reason),
            Ok(Err(BatchLoss::UnreadableRow(place, reason))) => self.run_again_without(batch, place, &reason),
            Ok(Err(BatchLoss::RefusedLate)) => self.run_again_carefully(batch),
            Ok(Err(BatchLoss::FailedClosed)) => self.fail_closed(batch),
            Err(_panic) => {
                self.outage.note_panic();
                self.lose(batch, "the writer panicked");
            }
        }
        if let Some(checkpointer) = &mut self.checkpointer {
            checkpointer.after_batch(&self.db.conn, &self.shared.readers);
        }
    }

    /// Runs pending operations, and commands that arrive while the window is open.
    fn fill(&mut self, batch: &mut WriterBatch, source: &mut dyn CommandSource) -> Result<(), BatchLoss> {
        batch.changes_before = self.db.conn.total_changes();
        batch.began = self.db.clock.monotonic();
        self.outage.batch_begins();
        self.db.renewed.clear();
        if self.db.batch_begins(self.outage.is_careful()) {
            self.show_unreadable();
        }
        self.note_foreign_commits()?;
        self.check_refusal()?;
        if !batch.alone && !self.late.is_empty() {
            self.renew_late(batch)?;
        }
        if self.schedule.assignment_owed && !batch.alone {
            // A stream of operations must not starve the fetches whose callers could work it off.
            batch.fetches_first = true;
            self.assign(batch)?;
            batch.fetches_first = false;
        }
        loop {
            if !batch.alone {
                batch.take_pending(&mut self.pending, &self.limits, &mut self.newcomer_owed);
            }
            while let Some(operation) = batch.todo.front_mut() {
                let undoable = batch.alone || operation.writes_before_refusal() || self.outage.is_careful();
                let (kept, mut effects) = self.db.run_whole(undoable, |scope| operation.run(scope))?;
                let fetches = std::mem::take(&mut effects.fetches);
                if kept {
                    batch.absorb(effects, &mut self.schedule);
                }
                fetches.into_iter().for_each(|fetch| self.accept(Command::FetchWork(fetch)));
                batch.done.extend(batch.todo.pop_front());
            }
            if batch.alone {
                break;
            }
            self.assign(batch)?;
            if batch.is_full(&self.limits) {
                break;
            }
            let has_more = if batch.early.is_empty() {
                self.take_arrived(batch, source)
            } else {
                self.await_commands(batch, source)
            };
            if !has_more {
                break;
            }
        }
        if batch.done.is_empty() && !self.pending.is_empty() {
            // Fetches took the whole batch: the next one begins with operations.
            self.schedule.assignment_owed = false;
        }
        if batch.effects.removed && !batch.alone {
            self.drop_vanished(batch)?;
        }
        batch.effects.totals.write(&self.db.conn)?;
        Ok(())
    }

    /// Takes commands that arrived while the batch ran, so that a burst of them shares one commit; `false` if there are none.
    /// Once some have arrived, others are on their way: they are awaited for a part of what a commit costs.
    fn take_arrived(&mut self, batch: &mut WriterBatch, source: &mut dyn CommandSource) -> bool {
        let left = OPEN_MAX.saturating_sub(self.db.clock.monotonic().saturating_sub(batch.began));
        if left.is_zero() {
            return false;
        }
        let wait = if batch.in_burst { self.db.burst_gap().min(left) } else { Duration::ZERO };
        let commands = source.arrived_within(wait);
        batch.in_burst |= !commands.is_empty();
        let has_more = !commands.is_empty();
        commands.into_iter().for_each(|command| self.accept(command));
        has_more
    }

    /// Waits for commands while the window is open; `false` when it is over.
    fn await_commands(&mut self, batch: &mut WriterBatch, source: &mut dyn CommandSource) -> bool {
        if !batch.window_open {
            batch.window_open = true;
            let window = self.db.window();
            if window == Duration::ZERO {
                return false;
            }
            // Opened once: the batch ends however many turns begin in it.
            source.open(window);
        }
        match source.next() {
            Some(commands) => {
                commands.into_iter().for_each(|command| self.accept(command));
                true
            }
            None => false,
        }
    }

    /// The batch is durable: answers fetches first, because their callers begin to work, then operations.
    fn finish(&mut self, batch: WriterBatch) {
        let WriterBatch {
            mut done, assigned, late, no_turn, no_work, effects, look_again, operations, ..
        } = batch;
        let renewed = late.renewed(&effects.held);
        // A lock that had expired, and was renewed by a call from before its end, is held.
        for token in &effects.ended {
            self.db.own_locks.end(token);
        }
        for (token, at, lock_ms) in effects.held {
            self.db.own_locks.hold(&token, at, lock_ms);
        }
        for token in &effects.released {
            self.db.own_locks.release(token);
        }
        for operation in &done {
            // The callback is the runtime's; a panic in it is no failure of the store.
            if catch_unwind(AssertUnwindSafe(|| operation.committed())).is_err() {
                tracing::error!(target: "everturn::providers::sqlite",
                    "the runtime's callback after a commit panicked; the commit is durable, please report this");
            }
        }
        if effects.garbage {
            self.garbage.note(self.db.now());
        }
        if effects.freed {
            self.shrinking.note(self.db.now());
        }
        self.schedule.hints.turns |= look_again;
        self.note_read(&effects.ended_turns, &assigned);
        // Work that was renewed once is not held up for ever by a disk that is always slow.
        self.answer_fetches(renewed, locks::half_spent);
        self.answer_fetches(assigned, locks::has_aged);
        self.shared.watches.bump(&effects.touched);
        done.sort_by_key(|operation| operation.order());
        done.into_iter().for_each(|operation| operation.answer());
        no_turn.into_iter().for_each(answer_none);
        no_work.into_iter().for_each(answer_none);
        metrics::histogram!("everturn_sqlite_batch_operations")
            .record(f64::from(u32::try_from(operations).unwrap_or(u32::MAX)));
    }

    /// Answers fetches whose work is assigned. If too much of a lock is spent, it is renewed first, in the next batch.
    fn answer_fetches(
        &mut self,
        assigned: Assignments,
        is_spent: fn(ClockReading, ClockReading, u64) -> bool,
    ) {
        let now = self.db.now();
        for (fetch, turns) in assigned.turns {
            if turns.iter().any(|turn| is_spent(turn.at, now, turn.lock_ms)) {
                self.late.turns.push((fetch, turns));
            } else {
                self.answer_turns(fetch, turns);
            }
        }
        for (fetch, work) in assigned.work {
            if is_spent(work.at, now, work.lock_ms) {
                self.late.work.push((fetch, work));
            } else {
                self.answer_work(fetch, work);
            }
        }
    }

    pub(crate) fn answer_turns(&self, fetch: ParkedTurnFetch, turns: Vec<AssignedTurn>) {
        let guarded = |turn: AssignedTurn| {
            let unread = UnreadWork::Turn { token: turn.token.clone() };
            TurnAnswer { turn, guard: UnreadGuard::new(Arc::clone(&self.commands), unread) }
        };
        // If the caller no longer listens, dropping the answer returns the instances.
        drop(fetch.reply.send(Ok(Some(turns.into_iter().map(guarded).collect()))));
    }

    pub(crate) fn answer_work(&self, fetch: ParkedWorkFetch, work: AssignedWork) {
        let unread = UnreadWork::Activity { token: work.token.clone(), lease: work.lease.clone() };
        let guard = UnreadGuard::new(Arc::clone(&self.commands), unread);
        // If the caller no longer listens, dropping the answer returns the activity.
        drop(fetch.reply.send(Ok(Some(WorkAnswer { work, guard }))));
    }
}
