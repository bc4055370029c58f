//! The writer: takes commands and executes them in batches, one transaction per batch.
//!
//! It owns the only connection that writes. Callers are answered after the commit of their batch, with one exception: a
//! fetch may get a turn of an instance that its runtime holds in memory at a committed position before the commit. Such a
//! turn has no effect except through its own commit, which comes later through the same writer.
//!
//! The parts: [`connection`] is the connection with its transaction, [`batch`] what one transaction holds, [`fair_share`]
//! which operations it takes, [`assignment`] serves parked fetches, [`schedule`] knows when to wake up, [`garbage_pace`] when
//! to remove garbage, [`shrink_pace`] when to give free pages back to the disk, [`outage`] and [`lost_batch`] what to do while
//! the store fails, [`passed_over`] while a row cannot be read, [`other_processes`] watches the file and [`foreign_commits`]
//! acts on what it sees. No thread is in here: [`thread`] and [`task`] drive the writer.

mod assignment;
mod batch;
mod connection;
mod fair_share;
mod foreign_commits;
mod garbage_pace;
mod lost_batch;
pub(crate) mod other_processes;
mod outage;
mod passed_over;
mod schedule;
mod shrink_pace;
pub(crate) mod task;
pub(crate) mod thread;

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use everturn_provider::Clock;
use rusqlite::Connection;
use tokio::sync::oneshot;

use self::batch::{Assignments, WriterBatch};
use self::connection::WriteConnection;
use self::garbage_pace::GarbagePace;
use self::other_processes::{FileUsers, OtherProcesses};
use self::outage::{LOST_PAUSE, WriterOutage};
use self::schedule::{WakeSchedule, WorkHints};
use self::shrink_pace::ShrinkPace;
use crate::checkpoint::{self, Checkpointer};
use crate::command_queue::{Command, CommandQueue, CommandSource, Reading};
use crate::error::SqliteError;
use crate::garbage;
use crate::operation::{Operation, PendingOperation};
use crate::parked_fetches::{ParkedFetches, answer_none, fail_for_good};
use crate::reader_gate::ReaderGate;
use crate::stale_locks::{ReleaseFound, StaleLocks};
use crate::store_guard::StoreGuard;
use crate::unreadable::RowPlace;
use crate::watches::InstanceWatches;

/// Pause between two looks at watched instances that another process may have changed.
const WATCH_LOOK: Duration = Duration::from_millis(1);

/// What the writer and the provider's callers both see.
#[derive(Debug, Default)]
pub(crate) struct WriterShared {
    pub(crate) watches: InstanceWatches,
    pub(crate) guard: StoreGuard,
    pub(crate) readers: Arc<ReaderGate>,
    /// Transactions that wrote something and were committed.
    pub(crate) commits: AtomicU64,
    /// No fetch is parked: the writer may sleep until a command comes.
    pub(crate) idle: AtomicBool,
}

impl WriterShared {
    /// Whether a fetch or a watch waits for commits of others.
    pub(crate) fn awaits_commits(&self) -> bool {
        !self.idle.load(Ordering::SeqCst) || self.watches.is_watched()
    }
}

/// Limits of a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchLimits {
    pub(crate) operations_max: usize,
    pub(crate) payload_bytes_max: usize,
}

/// What a step of the writer did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriterStep {
    /// There is nothing to do.
    Idle,
    /// Another process has the file locked.
    Busy,
    /// A batch was executed.
    Done,
}

pub(crate) struct Writer {
    db: WriteConnection,
    /// Where unread answers return their work. Not a handle of the provider: the writer must not keep it alive.
    commands: Arc<CommandQueue>,
    shared: Arc<WriterShared>,
    limits: BatchLimits,
    /// Operations for the next batch.
    pending: Vec<Box<dyn Operation>>,
    /// The last batch had no room for any operation that needs no lock, and one waits.
    newcomer_owed: bool,
    fetches: ParkedFetches,
    /// Assignments of an earlier batch: too much of their lock was spent when they could be answered.
    late: Assignments,
    /// Damaged instances that were logged, so that each is logged once.
    reported: HashSet<i64>,
    schedule: WakeSchedule,
    outage: WriterOutage,
    garbage: GarbagePace,
    shrinking: ShrinkPace,
    others: OtherProcesses,
    /// Another provider of this process has committed, or a client watches: the writer looks before the next transaction.
    look_wanted: bool,
    reads: Vec<Reading>,
    checkpoints: Vec<oneshot::Sender<Result<(), SqliteError>>>,
    /// `None` for a database in memory.
    checkpointer: Option<Checkpointer>,
}

impl Writer {
    /// A writer over an opened database; `users` are the providers that have the same file open, if it is in one.
    pub(crate) fn new(
        conn: Connection,
        users: Option<FileUsers>,
        clock: Arc<dyn Clock>,
        busy_timeout: Duration,
        commands: Arc<CommandQueue>,
        shared: Arc<WriterShared>,
        limits: BatchLimits,
    ) -> Result<Self, rusqlite::Error> {
        let in_file = users.is_some();
        let others = OtherProcesses::new(&conn, users)?;
        let mut db = WriteConnection::new(conn, clock, busy_timeout);
        db.owner = others.own_id();
        let mut garbage = GarbagePace::default();
        if garbage::is_there(&db.conn)? {
            garbage.note(db.now());
        }
        let shrinking = ShrinkPace::new(&db.conn, in_file, db.now())?;
        Ok(Self {
            db,
            commands,
            shared,
            limits,
            pending: Vec::new(),
            newcomer_owed: false,
            fetches: ParkedFetches::default(),
            late: Assignments::default(),
            reported: HashSet::new(),
            schedule: WakeSchedule::default(),
            outage: WriterOutage::default(),
            garbage,
            shrinking,
            others,
            look_wanted: false,
            reads: Vec::new(),
            checkpoints: Vec::new(),
            checkpointer: in_file.then(Checkpointer::default),
        })
    }

    /// Takes no work and writes nothing: the file was opened for reading.
    pub(crate) fn only_read(&mut self, reason: String) {
        self.outage.break_with(reason);
        self.checkpointer = None;
    }

    /// The writer is a task: it never waits for readers, which share its thread.
    pub(crate) fn never_wait(&mut self) {
        if let Some(checkpointer) = &mut self.checkpointer {
            checkpointer.never_wait();
        }
    }

    /// Releases locks of processes that no longer run, in the first batch.
    pub(crate) fn release_stale(&mut self, found: StaleLocks) {
        if !found.is_empty() {
            self.pending.push(Box::new(PendingOperation::new(ReleaseFound(found), None)));
        }
    }

    /// Takes a command; the next step executes it.
    pub(crate) fn accept(&mut self, command: Command) {
        match command {
            Command::Run(operation) => match self.refusal() {
                Some(reason) => operation.fail(reason, false),
                None => self.pending.push(operation),
            },
            Command::FetchTurn(fetch) => match self.refusal() {
                Some(reason) => fail_for_good(fetch, reason),
                None => {
                    // Published before the fetch looks: a commit of another provider that comes later wakes the writer.
                    self.shared.idle.store(false, Ordering::SeqCst);
                    self.fetches.turns.park(fetch);
                    self.schedule.hints.turns = true;
                }
            },
            Command::FetchWork(fetch) => match self.refusal() {
                Some(reason) => fail_for_good(fetch, reason),
                None => {
                    self.shared.idle.store(false, Ordering::SeqCst);
                    self.fetches.work.park(fetch);
                    self.schedule.hints.work = true;
                }
            },
            Command::CancelFetch(id) => self.fetches.cancel(id),
            Command::PassOver { key, instance, reason } => {
                self.pass_over(RowPlace::Instance(key), Some(instance), &reason);
            }
            Command::Wake => self.schedule.hints = WorkHints::ALL,
            // The next step does what is to be done.
            Command::ReadersLeft => {}
            // Not now: a batch may be open, and an error of a read could end its transaction. A stream of new watches leaves
            // no pause in which the writer would look by itself.
            Command::CommittedElsewhere | Command::Watched => self.look_wanted = true,
            Command::Read(read) => self.reads.push(read),
            Command::Checkpoint(reply) => self.checkpoints.push(reply),
        }
    }

    /// How long the writer can sleep; `None` until a command comes.
    pub(crate) fn next_wake(&mut self) -> Option<Duration> {
        if self.look_wanted || self.has_work() || self.commands.has_commands() {
            return Some(Duration::ZERO);
        }
        if self.outage.is_under_way() {
            return Some(LOST_PAUSE);
        }
        if self.shared.watches.needs_look() {
            return Some(WATCH_LOOK);
        }
        let idle = self.fetches.is_empty();
        // Published before the watches are read: a client that watches later wakes the writer.
        self.shared.idle.store(idle, Ordering::SeqCst);
        let look = self.others.look_interval(self.db.clock.monotonic());
        let now = self.db.now();
        let garbage =
            [self.garbage.until_due(now), self.shrinking.until_due(now)].into_iter().flatten().min();
        let put_off = self.outage.until_next(self.db.clock.monotonic());
        if idle {
            let watches = self.others.are_possible() && self.shared.watches.is_watched();
            return [watches.then_some(look), garbage, put_off].into_iter().flatten().min();
        }
        self.look_ahead();
        let due = self.schedule.until_due(&self.db.own_locks, self.db.now());
        let tried_again = self.db.unreadable.until_next(self.db.clock.monotonic());
        [due, garbage, put_off, tried_again, Some(look)].into_iter().flatten().min()
    }

    /// Finds out when something becomes due next. Done while no caller waits for an answer.
    #[inline]
    fn look_ahead(&mut self) {
        if let Err(error) = self.schedule.find_next_due(&self.db.conn, self.db.now()) {
            tracing::warn!(target: "everturn::providers::sqlite", %error,
                "cannot read when the next timer or lock is due; it is noticed up to a second late");
        }
    }

    /// No command came for as long as [`next_wake`](Self::next_wake) said: looks for work that came by itself.
    pub(crate) fn tick(&mut self) {
        // A failed look is repeated with the next tick.
        drop(self.look_for_foreign_commits());
        self.garbage.tick();
        let was_out = self.outage.end();
        let now = self.db.now();
        self.outage.release_owed(&mut self.pending, now.monotonic);
        let tries_again = self.db.unreadable.take_due(now.monotonic);
        let must_look = was_out || tries_again || self.schedule.is_due(&self.db.own_locks, now);
        self.schedule.tick(now, must_look);
    }

    pub(crate) fn has_work(&self) -> bool {
        let hints = &self.schedule.hints;
        !self.pending.is_empty()
            // After a lost batch they wait for the pause, as parked fetches do.
            || (!self.late.is_empty() && !self.outage.is_under_way())
            || (!self.fetches.turns.is_empty() && (hints.turns || hints.time))
            || (!self.fetches.work.is_empty() && (hints.work || hints.time))
            || !self.reads.is_empty()
            || !self.checkpoints.is_empty()
    }

    /// Whether to pause between batches: another process works on the file.
    pub(crate) fn leaves_gap(&self) -> bool {
        self.others.need_gaps(&*self.db.clock)
    }

    /// Executes reads and checkpoints, then one batch.
    #[inline(always)]
    pub(crate) fn step(&mut self, source: &mut dyn CommandSource) -> WriterStep {
        if self.look_wanted {
            // A failed look is repeated with the next tick.
            drop(self.look_for_foreign_commits());
        }
        if !self.reads.is_empty() || !self.checkpoints.is_empty() {
            self.serve_between_batches();
        }
        if let Some(checkpointer) = &mut self.checkpointer {
            checkpointer.empty_unread(&self.db.conn, &self.shared.readers);
        }
        if self.shared.watches.needs_look() {
            // If it fails, the watches fire, and their clients look for themselves.
            drop(self.look_at_watched());
        }
        self.look_for_dead_owners();
        self.fail_if_refused();
        self.sweep_garbage_if_due();
        self.shrink_if_idle();
        if !self.has_work() {
            // What it waited for the file with may be gone: a fetch that was cancelled.
            self.others.note_not_busy();
            return WriterStep::Idle;
        }
        match self.db.begin() {
            Ok(true) => {
                self.others.note_not_busy();
                self.run_batch(WriterBatch::default(), source);
                WriterStep::Done
            }
            Ok(false) => {
                if self.others.note_busy(self.db.busy_timeout()) {
                    self.fail_waiting_callers("the database is locked by another process");
                }
                WriterStep::Busy
            }
            Err(error) => {
                self.others.note_not_busy();
                let mut batch = WriterBatch::default();
                batch.todo.extend(self.pending.drain(..));
                self.lose(batch, &error.to_string());
                WriterStep::Done
            }
        }
    }

    fn fail_waiting_callers(&mut self, reason: &str) {
        for operation in std::mem::take(&mut self.pending) {
            self.outage.give_up(operation, reason);
        }
        self.fetches.fail_once(reason);
        // A slice of the garbage may have been among the operations.
        self.garbage.note(self.db.now());
    }

    /// Executes reads and checkpoints. Inside a batch a read would see what is not committed.
    fn serve_between_batches(&mut self) {
        for read in std::mem::take(&mut self.reads) {
            // A read that panics sends no answer, which its caller notices.
            drop(catch_unwind(AssertUnwindSafe(|| read(&self.db.conn))));
        }
        for reply in std::mem::take(&mut self.checkpoints) {
            let done = if self.checkpointer.is_some() { checkpoint::truncate(&self.db.conn) } else { Ok(()) };
            // A caller that no longer listens gets no answer; the checkpoint is done.
            drop(reply.send(done));
        }
    }

    /// The provider is closing: answers all parked fetches.
    pub(crate) fn dismiss_fetches(&mut self) {
        let late = std::mem::take(&mut self.late);
        // Their locks are released with the others of this provider.
        late.turns.into_iter().for_each(|(fetch, _)| answer_none(fetch));
        late.work.into_iter().for_each(|(fetch, _)| answer_none(fetch));
        self.fetches.answer_none_to_all();
    }

    /// No more commands come: closes the database.
    pub(crate) fn close(mut self) -> Result<(), SqliteError> {
        self.dismiss_fetches();
        self.shared.readers.open();
        if self.refusal().is_none() {
            // What cannot be released now is released by others, or when the file is next opened.
            drop(self.leave());
            if self.checkpointer.is_some() {
                // What cannot be moved now stays in the log, which is as safe.
                drop(checkpoint::truncate(&self.db.conn));
            }
        }
        self.db.conn.flush_prepared_statement_cache();
        self.db.conn.close().map_err(|(_conn, error)| SqliteError::sqlite("closing the database", error))
    }
}

#[cfg(test)]
mod tests;
