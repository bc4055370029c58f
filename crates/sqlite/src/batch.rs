//! One batch: its operations, the work it assigns, and what becomes of both.

use std::collections::{HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use everturn_core::{Bug, planted};
use everturn_provider::ProviderError;
use rusqlite::Connection;

use crate::fetch_orchestration_item::{AssignedTurn, TurnAnswer};
use crate::fetch_work_item::{AssignedWork, WorkAnswer};
use crate::hand_back::{Assigned, HandBackGuard};
use crate::locks;
use crate::moment::Moment;
use crate::operation::{Effects, Operation, Scope};
use crate::waiters::{TurnWaiter, Waiter, WorkWaiter};
use crate::writer::{Inlet, Letter, Look, Writer, answer_nothing, refuse};

/// How many batches after a lost one give every operation a savepoint.
const CAREFUL_BATCHES: u32 = 1_000;

/// Why a batch was lost.
#[derive(Debug)]
pub(crate) enum Lost {
    /// The store could not.
    Storage(String),
    /// Something was refused after it had written, without a savepoint to go back to.
    RefusedLate,
}

impl From<rusqlite::Error> for Lost {
    fn from(error: rusqlite::Error) -> Self {
        Self::Storage(error.to_string())
    }
}

/// Work that was assigned to waiters.
#[derive(Default)]
pub(crate) struct Assignments {
    pub(crate) turns: Vec<(TurnWaiter, AssignedTurn)>,
    pub(crate) work: Vec<(WorkWaiter, AssignedWork)>,
}

impl Assignments {
    pub(crate) fn is_empty(&self) -> bool {
        self.turns.is_empty() && self.work.is_empty()
    }

    /// The same, each with the moment from which its lock counts now.
    fn renewed(mut self, held: &[(String, Moment, u64)]) -> Self {
        let renewed_at =
            |token: &str| held.iter().rev().find(|(other, ..)| other == token).map(|(_, at, _)| *at);
        for (_, turn) in &mut self.turns {
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
pub(crate) struct Batch {
    /// Operations to run; the one that runs is in front.
    pub(crate) todo: VecDeque<Box<dyn Operation>>,
    done: Vec<Box<dyn Operation>>,
    pub(crate) assigned: Assignments,
    /// Work of an earlier batch whose lock is renewed in this one, before it is handed out.
    pub(crate) late: Assignments,
    /// Waiters that took their one look and found nothing.
    pub(crate) no_turn: Vec<TurnWaiter>,
    pub(crate) no_work: Vec<WorkWaiter>,
    pub(crate) effects: Effects,
    /// Turns that were answered before the commit and are not back yet.
    pub(crate) early: HashSet<String>,
    window_open: bool,
    /// An instance was passed over because its turn ended in this very batch.
    pub(crate) look_again: bool,
    pub(crate) operations: usize,
    payload_bytes: usize,
    pub(crate) changes_before: u64,
    /// The operations of a lost batch run again alone: nothing is offered, and what fails now has failed.
    pub(crate) alone: bool,
}

impl Batch {
    fn alone(operation: Box<dyn Operation>) -> Self {
        Self { todo: VecDeque::from([operation]), alone: true, ..Self::default() }
    }
}

impl Writer {
    /// Runs what waits, and what comes while the window is open.
    pub(crate) fn fill(&mut self, batch: &mut Batch, inlet: &mut dyn Inlet) -> Result<(), Lost> {
        batch.changes_before = self.conn.total_changes();
        self.careful_batches = self.careful_batches.saturating_sub(1);
        self.look_for_foreign_commits()?;
        self.renew_late(batch)?;
        if self.offer_owed && !batch.alone {
            // A stream of operations must not keep those waiting who could work them off.
            self.offer(batch)?;
        }
        loop {
            if !batch.alone {
                self.take_pending(batch);
            }
            while !batch.todo.is_empty() {
                self.run_next(batch)?;
            }
            if batch.alone {
                return Ok(());
            }
            self.offer(batch)?;
            if batch.early.is_empty() || self.is_full(batch) || !self.await_letters(batch, inlet) {
                break;
            }
        }
        self.drop_vanished(batch)
    }

    /// Waits for letters while the window is open; `false` when it is over.
    fn await_letters(&mut self, batch: &mut Batch, inlet: &mut dyn Inlet) -> bool {
        if !batch.window_open {
            batch.window_open = true;
            let window = self.window();
            if window == Duration::ZERO {
                return false;
            }
            // Opened once: the batch ends however many turns begin in it.
            inlet.open(window);
        }
        match inlet.next() {
            Some(letters) => {
                letters.into_iter().for_each(|letter: Letter| self.accept(letter));
                true
            }
            None => false,
        }
    }

    pub(crate) fn is_full(&self, batch: &Batch) -> bool {
        batch.operations >= self.bounds.operations_max || batch.payload_bytes >= self.bounds.payload_bytes_max
    }

    /// Moves waiting operations into the batch: those who hold something first, each kind in order of arrival.
    fn take_pending(&mut self, batch: &mut Batch) {
        self.pending.sort_by_key(|operation| operation.order());
        let mut taken = 0;
        for operation in &self.pending {
            if self.is_full(batch) {
                break;
            }
            batch.operations += 1;
            batch.payload_bytes += operation.payload_bytes();
            taken += 1;
        }
        batch.todo.extend(self.pending.drain(..taken));
    }

    /// Runs the next operation.
    fn run_next(&mut self, batch: &mut Batch) -> Result<(), Lost> {
        let Some(operation) = batch.todo.front_mut() else { return Ok(()) };
        let undoable = batch.alone || operation.writes_before_refusal();
        let (kept, effects) = self.whole(undoable, |scope| operation.run(scope))?;
        if kept {
            self.absorb(batch, effects);
        }
        batch.done.extend(batch.todo.pop_front());
        Ok(())
    }

    /// Runs something that happens whole or not at all, and is kept if it says so.
    ///
    /// With a savepoint it can be undone. Most need none, because they check before they write; the pages a savepoint
    /// copies are a quarter of a step's cost. If such a one is refused too late all the same, its row is damaged: the
    /// batch runs again, and for a while every operation gets its savepoint.
    pub(crate) fn whole(
        &self,
        undoable: bool,
        run: impl FnOnce(&mut Scope<'_>) -> Result<bool, rusqlite::Error>,
    ) -> Result<(bool, Effects), Lost> {
        let undoable = undoable || self.careful_batches > 0;
        if undoable {
            execute(&self.conn, "SAVEPOINT operation")?;
        }
        let changes_before = self.conn.total_changes();
        let mut scope = Scope {
            conn: &self.conn,
            clock: &*self.clock,
            now: self.now(),
            own_locks: &self.own_locks,
            effects: Effects::default(),
        };
        let kept = run(&mut scope)?;
        let effects = scope.effects;
        if self.conn.is_autocommit() {
            // The error took the whole transaction with it; nothing more may run in this batch.
            return Err(Lost::Storage("the transaction was rolled back by an error in it".to_owned()));
        }
        match (kept, undoable) {
            (true, true) => execute(&self.conn, "RELEASE operation")?,
            (false, true) => {
                execute(&self.conn, "ROLLBACK TO operation")?;
                execute(&self.conn, "RELEASE operation")?;
            }
            (false, false) if self.conn.total_changes() != changes_before => {
                return Err(Lost::RefusedLate);
            }
            _ => {}
        }
        Ok((kept, effects))
    }

    pub(crate) fn absorb(&mut self, batch: &mut Batch, effects: Effects) {
        for token in &effects.released {
            batch.early.remove(token);
        }
        self.look.turns |= effects.turns || effects.new_turns || effects.orphans;
        self.look.orphans |= effects.orphans;
        if effects.turns || effects.removed {
            self.passed_over = None;
        }
        self.look.work |= effects.work;
        batch.effects.absorb(effects);
    }

    /// The batch is durable: tells everybody, in the order in which they can use it.
    pub(crate) fn finish(&mut self, batch: Batch) {
        let Batch { mut done, assigned, late, no_turn, no_work, effects, look_again, operations, .. } = batch;
        let renewed = late.renewed(&effects.held);
        // A lock that had ended when somebody looked, and was renewed by a call from before its end, is held.
        for token in &effects.ended {
            self.own_locks.end(token);
        }
        for (token, at, lock_ms) in effects.held {
            self.own_locks.hold(token, at, lock_ms);
        }
        for token in &effects.released {
            self.own_locks.release(token);
        }
        for operation in &done {
            // The callback is the runtime's; what goes wrong in it is not the store's.
            if catch_unwind(AssertUnwindSafe(|| operation.committed())).is_err() {
                tracing::error!(target: "everturn::providers::sqlite", "checking an instance in panicked");
            }
        }
        self.look.turns |= look_again;
        // Whoever gets work begins with it while the others are told. What was renewed once is not held up for ever by
        // a disk that is always slow.
        self.hand_out(renewed, locks::half_spent);
        self.hand_out(assigned, locks::has_aged);
        self.shared.watches.bump(&effects.touched);
        done.sort_by_key(|operation| operation.order());
        done.into_iter().for_each(|operation| operation.answer());
        no_turn.into_iter().for_each(answer_nothing);
        no_work.into_iter().for_each(answer_nothing);
        metrics::histogram!("everturn_sqlite_batch_operations")
            .record(f64::from(u32::try_from(operations).unwrap_or(u32::MAX)));
    }

    /// Answers those whose work is assigned; whose lock is too far spent gets it renewed first.
    fn hand_out(&mut self, assigned: Assignments, is_spent: fn(Moment, Moment, u64) -> bool) {
        let now = self.now();
        for (waiter, turn) in assigned.turns {
            if is_spent(turn.at, now, turn.lock_ms) {
                self.late.turns.push((waiter, turn));
            } else {
                self.answer_turn(waiter, turn);
            }
        }
        for (waiter, work) in assigned.work {
            if is_spent(work.at, now, work.lock_ms) {
                self.late.work.push((waiter, work));
            } else {
                self.answer_work(waiter, work);
            }
        }
    }

    pub(crate) fn answer_turn(&self, waiter: TurnWaiter, turn: AssignedTurn) {
        let assigned = Assigned::Turn { token: turn.token.clone() };
        let guard = HandBackGuard::new(std::sync::Arc::clone(&self.mailbox), assigned);
        // Whoever does not listen any more gets nothing: dropping the answer hands the instance back.
        drop(waiter.reply.send(Ok(Some(TurnAnswer { turn, guard }))));
    }

    pub(crate) fn answer_work(&self, waiter: WorkWaiter, work: AssignedWork) {
        let assigned = Assigned::Work { token: work.token.clone(), claim: work.claim.clone() };
        let guard = HandBackGuard::new(std::sync::Arc::clone(&self.mailbox), assigned);
        // Whoever does not listen any more gets nothing: dropping the answer hands the activity back.
        drop(waiter.reply.send(Ok(Some(WorkAnswer { work, guard }))));
    }

    /// What was assigned in an earlier batch stays assigned, whatever becomes of this one.
    fn keep_late(&mut self, late: Assignments) {
        self.late.turns.extend(late.turns);
        self.late.work.extend(late.work);
    }

    /// Those whose assignment came to nothing wait on.
    pub(crate) fn wait_on(&mut self, assigned: Assignments) {
        self.look.turns |= !assigned.turns.is_empty();
        self.look.work |= !assigned.work.is_empty();
        for (waiter, _turn) in assigned.turns {
            self.turns.rejoin(waiter);
        }
        for (waiter, _work) in assigned.work {
            self.work.rejoin(waiter);
        }
    }

    /// The batch is lost: nothing of it happened. Tokens it gave out are void, operations run again one by one, and
    /// what fails then is told so.
    pub(crate) fn lose(&mut self, batch: Batch, reason: &str) {
        if !self.conn.is_autocommit()
            && let Err(error) = execute(&self.conn, "ROLLBACK")
        {
            tracing::error!(target: "everturn::providers::sqlite", %error, "rolling back a lost batch");
        }
        tracing::warn!(target: "everturn::providers::sqlite", reason, "a batch was lost");
        metrics::counter!("everturn_sqlite_batches_lost_total").increment(1);
        let Batch { todo, done, assigned, late, no_turn, no_work, alone, .. } = batch;
        self.wait_on(assigned);
        self.keep_late(late);
        self.forget_looks();
        if !alone {
            // Whoever waits looks again after a pause, or when one of the operations succeeds alone.
            self.look = Look::default();
            self.make_room();
        }
        self.lost_last = true;
        self.careful_batches = CAREFUL_BATCHES;
        for waiter in no_turn.into_iter().chain(self.turns.take_once()) {
            refuse(waiter, ProviderError::retryable(TurnWaiter::NAME, reason));
        }
        for waiter in no_work.into_iter().chain(self.work.take_once()) {
            refuse(waiter, ProviderError::retryable(WorkWaiter::NAME, reason));
        }
        self.break_if_panicking();
        let (answered, done) =
            if planted(Bug::LostBatchAnswered) { (done, Vec::new()) } else { (Vec::new(), done) };
        answered.into_iter().for_each(|operation| operation.answer());
        let mut operations: Vec<_> = done.into_iter().chain(todo).collect();
        if operations.is_empty() && !alone {
            // The batch was full of what it handed out. Those who wait behind it would wait as long as the store is out.
            operations.append(&mut self.pending);
        }
        if alone {
            operations.into_iter().for_each(|operation| self.give_up(operation, reason));
            return;
        }
        // Whoever else waits for the store is not made to wait for each of them.
        let deadline = self.clock.monotonic().saturating_add(self.bounds.busy_timeout);
        for operation in operations {
            if self.clock.monotonic() < deadline {
                self.run_alone(operation, deadline);
            } else {
                self.give_up(operation, reason);
            }
        }
    }

    /// The store could not. What nobody waits for is owed, and tried again when the store is back.
    pub(crate) fn give_up(&mut self, operation: Box<dyn Operation>, reason: &str) {
        if operation.is_owed() {
            self.owed.push(operation);
        } else {
            operation.fail(reason, true);
        }
    }

    /// The batch runs again, with a savepoint for every operation: nobody is told anything yet.
    pub(crate) fn run_again_carefully(&mut self, batch: Batch) {
        if let Err(error) = execute(&self.conn, "ROLLBACK") {
            self.lose(batch, &error.to_string());
            return;
        }
        self.careful_batches = CAREFUL_BATCHES;
        let Batch { todo, done, assigned, late, no_turn, no_work, .. } = batch;
        self.keep_late(late);
        let newer = std::mem::take(&mut self.pending);
        self.pending = done.into_iter().chain(todo).chain(newer).collect();
        self.wait_on(assigned);
        no_turn.into_iter().for_each(|waiter| self.turns.rejoin(waiter));
        no_work.into_iter().for_each(|waiter| self.work.rejoin(waiter));
        self.forget_looks();
        self.look = Look::EVERYWHERE;
    }

    fn run_alone(&mut self, operation: Box<dyn Operation>, deadline: Duration) {
        if let Err(error) = self.begin_alone(deadline) {
            self.give_up(operation, &error.to_string());
            return;
        }
        self.run_batch(Batch::alone(operation), &mut NoInlet);
    }
}

/// Nothing comes while the batch is open.
pub(crate) struct NoInlet;

impl Inlet for NoInlet {
    fn open(&mut self, _window: Duration) {}

    fn next(&mut self) -> Option<Vec<Letter>> {
        None
    }
}

fn execute(conn: &Connection, sql: &str) -> Result<(), rusqlite::Error> {
    conn.prepare_cached(sql)?.execute([]).map(|_| ())
}
