//! The one that writes: a plain struct that takes letters and works them off in batches.
//!
//! It owns the only writing connection. A batch is one transaction; each operation in it
//! happens whole or not at all. Nothing is
//! answered before its commit, except a turn of an instance that its runtime holds in memory at a committed position:
//! such a turn has no effect except through its own commit, which comes later, through the same writer.
//!
//! There is no thread in here: see `writer_thread` for the one around it.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use everturn_core::{Bug, planted};
use everturn_provider::{Clock, ProviderError};
use rusqlite::{Connection, ErrorCode};
use tokio::sync::oneshot;

use crate::batch::{Assignments, Batch, Lost};
use crate::checkpoint;
use crate::due::{self, FutureLocks};
use crate::error::SqliteError;
use crate::locks::OwnLocks;
use crate::mailbox::Mailbox;
use crate::moment::Moment;
use crate::offers::Front;
use crate::operation::Operation;
use crate::shared::Shared;
use crate::waiters::{Line, TurnWaiter, Waiter, WorkWaiter};

/// How often another process's commits are looked for while somebody waits.
const FOREIGN_LOOK: Duration = Duration::from_millis(250);
/// At least this often the clocks are read again while somebody waits: they may have been set.
pub(crate) const CLOCK_LOOK: Duration = Duration::from_secs(1);
/// However busy the writer is, so long after a commit it knows what becomes due.
const DUE_UNKNOWN_MAX: Duration = Duration::from_millis(1);
/// How long after another process's commit the writer leaves gaps for it.
const FOREIGN_PRESENCE: Duration = Duration::from_secs(1);
/// Pause before the file is tried again while another process has it.
pub(crate) const BUSY_PAUSE: Duration = Duration::from_micros(500);
/// How long those who wait are left alone after a lost batch: the store may be out for a while.
const LOST_PAUSE: Duration = Duration::from_millis(100);
/// A commit that is cheaper than this is not worth waiting for company.
const CHEAP_SYNC: Duration = Duration::from_micros(50);
/// Bounds of the wait for the commits of turns that began early.
const WINDOW_MIN: Duration = Duration::from_micros(100);
const WINDOW_MAX: Duration = Duration::from_micros(300);

/// A read with the writer's connection.
pub(crate) type Reading = Box<dyn FnOnce(&Connection) + Send>;

/// What callers send.
pub(crate) enum Letter {
    /// An operation.
    Call(Box<dyn Operation>),
    /// A dispatcher waits for an instance.
    FetchTurn(TurnWaiter),
    /// A worker waits for an activity.
    FetchWork(WorkWaiter),
    /// A waiter leaves.
    Withdraw(u64),
    /// The clock was moved.
    Poke,
    /// Somebody watches an instance: the writer, if it slept for good, looks for other processes' commits from now on.
    Watched,
    /// A read that needs the writer's connection, between batches.
    Read(Reading),
    /// The log into the database file.
    Checkpoint(oneshot::Sender<Result<(), SqliteError>>),
}

/// What happens while a batch is open: more letters may come.
pub(crate) trait Inlet {
    /// Letters are awaited for this long from now.
    fn open(&mut self, window: Duration);
    /// The letters that came; `None` when the window is over.
    fn next(&mut self) -> Option<Vec<Letter>>;
}

/// What a step of the writer came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// There is nothing to do.
    Idle,
    /// Another process has the file: try again after [`BUSY_PAUSE`].
    Busy,
    /// A batch was worked off.
    Done,
}

/// Bounds of a batch, and of the wait for another process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) operations_max: usize,
    pub(crate) payload_bytes_max: usize,
    pub(crate) busy_timeout: Duration,
}

/// What is worth a look: hints, never the truth.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Look {
    pub(crate) turns: bool,
    pub(crate) orphans: bool,
    pub(crate) work: bool,
    pub(crate) time: bool,
}

impl Look {
    pub(crate) const EVERYWHERE: Self = Self { turns: true, orphans: true, work: true, time: true };
}

pub(crate) struct Writer {
    pub(crate) conn: Connection,
    pub(crate) clock: Arc<dyn Clock>,
    /// Where hand-backs of its answers go. Not a handle of the provider: the writer keeps nobody alive.
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) bounds: Bounds,
    pub(crate) pending: Vec<Box<dyn Operation>>,
    /// What must still happen when the store is back.
    pub(crate) owed: Vec<Box<dyn Operation>>,
    pub(crate) turns: Line<TurnWaiter>,
    pub(crate) work: Line<WorkWaiter>,
    pub(crate) look: Look,
    pub(crate) own_locks: OwnLocks,
    pub(crate) future_locks: FutureLocks,
    /// Ready instances at the front of the queue that none of the waiters can replay.
    pub(crate) passed_over: Option<Front>,
    /// Instances whose rows cannot be fetched, so that each is reported once.
    pub(crate) reported: HashSet<i64>,
    /// How many more batches give every operation a savepoint.
    pub(crate) careful_batches: u32,
    /// The last batch was lost.
    pub(crate) lost_last: bool,
    /// The last batch was full before everybody was served.
    pub(crate) offer_owed: bool,
    pub(crate) expiry_deferred: u32,
    /// Answers whose lock was too far spent by the time they could be given.
    pub(crate) late: Assignments,
    /// Up to when what has become due was woken.
    pub(crate) woken_ms: i64,
    /// When something becomes due next, as of the last look ahead.
    pub(crate) next_due_ms: Option<i64>,
    /// Since when something earlier may have come.
    pub(crate) due_unknown_since: Option<Duration>,
    reads: Vec<Reading>,
    checkpoints: Vec<oneshot::Sender<Result<(), SqliteError>>>,
    checkpointer: Option<checkpoint::Checkpointer>,
    data_version: i64,
    foreign_seen: Option<Duration>,
    sync: Duration,
    busy_rounds: u32,
    idle_ticks: u32,
    /// When everything was last looked at, by the monotonic clock.
    pub(crate) looked_at: Duration,
    panics: u32,
    broken: Option<String>,
}

impl Writer {
    /// A writer over an opened database; `in_file` says that other processes may share it.
    pub(crate) fn new(
        conn: Connection,
        in_file: bool,
        clock: Arc<dyn Clock>,
        mailbox: Arc<Mailbox>,
        shared: Arc<Shared>,
        bounds: Bounds,
    ) -> Result<Self, rusqlite::Error> {
        let data_version = data_version(&conn)?;
        Ok(Self {
            conn,
            clock,
            mailbox,
            shared,
            bounds,
            pending: Vec::new(),
            owed: Vec::new(),
            turns: Line::default(),
            work: Line::default(),
            look: Look::EVERYWHERE,
            own_locks: OwnLocks::default(),
            future_locks: FutureLocks::default(),
            passed_over: None,
            reported: HashSet::new(),
            careful_batches: 0,
            lost_last: false,
            offer_owed: false,
            expiry_deferred: 0,
            late: Assignments::default(),
            woken_ms: i64::MIN,
            next_due_ms: None,
            due_unknown_since: Some(Duration::ZERO),
            reads: Vec::new(),
            checkpoints: Vec::new(),
            checkpointer: in_file.then(checkpoint::Checkpointer::default),
            data_version,
            foreign_seen: None,
            sync: Duration::ZERO,
            busy_rounds: 0,
            idle_ticks: 0,
            looked_at: Duration::ZERO,
            panics: 0,
            broken: None,
        })
    }

    /// Takes a letter; what it asks for happens in the next step.
    pub(crate) fn accept(&mut self, letter: Letter) {
        match letter {
            Letter::Call(operation) => match &self.broken {
                Some(reason) => operation.fail(reason, false),
                None => self.pending.push(operation),
            },
            Letter::FetchTurn(waiter) => match &self.broken {
                Some(reason) => refuse(waiter, ProviderError::permanent(TurnWaiter::NAME, reason.clone())),
                None => {
                    self.turns.join(waiter);
                    self.look.turns = true;
                }
            },
            Letter::FetchWork(waiter) => match &self.broken {
                Some(reason) => refuse(waiter, ProviderError::permanent(WorkWaiter::NAME, reason.clone())),
                None => {
                    self.work.join(waiter);
                    self.look.work = true;
                }
            },
            Letter::Withdraw(id) => {
                self.turns.withdraw(id);
                self.work.withdraw(id);
            }
            Letter::Poke => self.look = Look::EVERYWHERE,
            Letter::Watched => {}
            Letter::Read(read) => self.reads.push(read),
            Letter::Checkpoint(reply) => self.checkpoints.push(reply),
        }
    }

    /// How long the writer can be left alone: `None` until a letter comes.
    pub(crate) fn next_wake(&mut self) -> Option<Duration> {
        if self.has_work() || self.mailbox.has_letters() {
            return Some(Duration::ZERO);
        }
        let in_file = self.checkpointer.is_some();
        if self.lost_last {
            return Some(LOST_PAUSE);
        }
        let nobody_waits = self.turns.is_empty() && self.work.is_empty();
        // Said before the watches are asked: whoever watches from now on wakes the writer.
        self.shared.dozes.store(nobody_waits, Ordering::SeqCst);
        if nobody_waits {
            return (in_file && self.shared.watches.is_watched()).then_some(FOREIGN_LOOK);
        }
        self.look_ahead();
        let now = self.now();
        let by_monotonic = self.next_deadline().map(|deadline| deadline.saturating_sub(now.monotonic));
        let by_wall = self.next_due_ms.map(|due_ms| due::until(due_ms, now));
        let due = [by_wall, by_monotonic].into_iter().flatten().min();
        let longest = if in_file { FOREIGN_LOOK } else { CLOCK_LOOK };
        Some(due.unwrap_or(longest).min(longest))
    }

    /// Nothing came for as long as [`next_wake`](Self::next_wake) said: looks for what came by itself.
    pub(crate) fn tick(&mut self) {
        if self.checkpointer.is_some()
            && let Ok(version) = data_version(&self.conn)
        {
            self.note_version(version);
        }
        self.idle_ticks += 1;
        let lost_last = std::mem::take(&mut self.lost_last);
        self.pending.append(&mut self.owed);
        let ticks_per_look = if self.checkpointer.is_some() { 4 } else { 1 };
        if self.idle_ticks >= ticks_per_look || lost_last || self.is_due(self.now()) {
            self.idle_ticks = 0;
            self.look = Look::EVERYWHERE;
        }
    }

    /// Finds out when something becomes due next. Done while nobody waits for an answer.
    pub(crate) fn look_ahead(&mut self) {
        if let Err(error) = self.find_next_due() {
            // Whatever it is comes with the look that is taken every second.
            tracing::warn!(target: "everturn::providers::sqlite", %error, "cannot look ahead");
        }
    }

    fn find_next_due(&mut self) -> Result<(), rusqlite::Error> {
        if self.due_unknown_since.is_some() {
            // A clock that was set back makes earlier moments count again.
            self.woken_ms = self.woken_ms.min(self.now().wall_ms);
            self.next_due_ms = due::next(&self.conn, self.woken_ms)?;
            self.due_unknown_since = None;
        }
        Ok(())
    }

    /// However busy the writer is, what time brings is noticed soon. Inside a batch: an error here, even of a read, may
    /// have ended the transaction.
    pub(crate) fn look_ahead_in_time(&mut self) -> Result<(), rusqlite::Error> {
        let now = self.now().monotonic;
        if self.due_unknown_since.is_some_and(|since| now.saturating_sub(since) >= DUE_UNKNOWN_MAX) {
            self.find_next_due()?;
        }
        Ok(())
    }

    /// Something that becomes due may have come.
    pub(crate) fn note_unknown_due(&mut self) {
        let now = self.now().monotonic;
        self.due_unknown_since.get_or_insert(now);
    }

    /// Whether time has brought something.
    pub(crate) fn is_due(&self, now: Moment) -> bool {
        self.next_due_ms.is_some_and(|due_ms| due_ms <= now.wall_ms)
            || self.next_deadline().is_some_and(|deadline| deadline <= now.monotonic)
    }

    /// When the next lock ends that is judged by the monotonic clock.
    fn next_deadline(&self) -> Option<Duration> {
        [self.own_locks.next_deadline(), self.future_locks.next_end()].into_iter().flatten().min()
    }

    pub(crate) fn now(&self) -> Moment {
        Moment::of(&*self.clock)
    }

    pub(crate) fn has_work(&self) -> bool {
        !self.pending.is_empty()
            // After a lost batch they wait for the pause like everybody else.
            || (!self.late.is_empty() && !self.lost_last)
            || (!self.turns.is_empty() && (self.look.turns || self.look.time))
            || (!self.work.is_empty() && (self.look.work || self.look.time))
            || !self.reads.is_empty()
            || !self.checkpoints.is_empty()
    }

    /// How long a batch waits for the commits of turns that began early.
    pub(crate) fn window(&self) -> Duration {
        if self.sync < CHEAP_SYNC { Duration::ZERO } else { self.sync.clamp(WINDOW_MIN, WINDOW_MAX) }
    }

    /// Whether to pause between batches: another process is at work on the file.
    pub(crate) fn leaves_gap(&self) -> bool {
        self.foreign_seen.is_some_and(|seen| self.clock.monotonic().saturating_sub(seen) < FOREIGN_PRESENCE)
    }

    /// Works off one batch, and whatever goes between two.
    pub(crate) fn step(&mut self, inlet: &mut dyn Inlet) -> Step {
        self.serve_between();
        if !self.has_work() {
            return Step::Idle;
        }
        match self.begin() {
            Ok(true) => {}
            Ok(false) => return self.busy(),
            Err(error) => {
                let mut batch = Batch::default();
                batch.todo.extend(self.pending.drain(..));
                self.lose(batch, &error.to_string());
                return Step::Done;
            }
        }
        self.run_batch(Batch::default(), inlet);
        Step::Done
    }

    /// Runs the batch in the transaction that was begun, and ends it one way or the other.
    pub(crate) fn run_batch(&mut self, mut batch: Batch, inlet: &mut dyn Inlet) {
        let ran = catch_unwind(AssertUnwindSafe(|| {
            self.fill(&mut batch, inlet)?;
            self.commit(&mut batch)
        }));
        match ran {
            Ok(Ok(())) => {
                self.panics = 0;
                if std::mem::take(&mut self.lost_last) {
                    // The store is back: whoever waits may have missed what came meanwhile.
                    self.look = Look::EVERYWHERE;
                    self.pending.append(&mut self.owed);
                }
                self.finish(batch);
            }
            Ok(Err(Lost::Storage(reason))) => self.lose(batch, &reason),
            Ok(Err(Lost::RefusedLate)) => self.run_again_carefully(batch),
            Err(_panic) => {
                self.panics += 1;
                self.lose(batch, "the writer panicked");
            }
        }
        if let Some(checkpointer) = &mut self.checkpointer {
            checkpointer.after_batch(&self.conn);
        }
    }

    /// A batch was lost: the log may be what takes the room that was missing.
    pub(crate) fn make_room(&mut self) {
        if planted(Bug::NoRoomMade) {
            return;
        }
        if let Some(checkpointer) = &mut self.checkpointer {
            checkpointer.after_loss(&self.conn);
        }
    }

    fn begin(&mut self) -> Result<bool, rusqlite::Error> {
        match self.conn.prepare_cached("BEGIN IMMEDIATE")?.execute([]) {
            Ok(_) => {
                self.busy_rounds = 0;
                Ok(true)
            }
            Err(error) if is_busy(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Another process has the file. Callers wait for it only so long.
    fn busy(&mut self) -> Step {
        self.busy_rounds = self.busy_rounds.saturating_add(1);
        if BUSY_PAUSE.saturating_mul(self.busy_rounds) >= self.bounds.busy_timeout {
            self.busy_rounds = 0;
            self.fail_waiting("the database is locked by another process");
        }
        Step::Busy
    }

    fn fail_waiting(&mut self, reason: &str) {
        for operation in std::mem::take(&mut self.pending) {
            self.give_up(operation, reason);
        }
        for waiter in self.turns.take_once() {
            refuse(waiter, ProviderError::retryable(TurnWaiter::NAME, reason));
        }
        for waiter in self.work.take_once() {
            refuse(waiter, ProviderError::retryable(WorkWaiter::NAME, reason));
        }
    }

    fn commit(&mut self, batch: &mut Batch) -> Result<(), Lost> {
        if self.conn.total_changes() == batch.changes_before {
            // Nothing was written, so there is nothing to wait for.
            self.conn.prepare_cached("ROLLBACK")?.execute([])?;
            return Ok(());
        }
        let began = self.clock.monotonic();
        let mut rounds = 0_u32;
        loop {
            match self.conn.prepare_cached("COMMIT")?.execute([]) {
                Ok(_) => break,
                Err(error)
                    if is_busy(&error)
                        && !self.conn.is_autocommit()
                        && BUSY_PAUSE.saturating_mul(rounds) < self.bounds.busy_timeout =>
                {
                    rounds = rounds.saturating_add(1);
                    std::thread::sleep(BUSY_PAUSE);
                }
                Err(error) => return Err(error.into()),
            }
        }
        let took = self.clock.monotonic().saturating_sub(began);
        self.note_unknown_due();
        self.sync = (self.sync * 7 + took) / 8;
        self.shared.commits.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Reads the file's version inside the transaction: if it moved, what was known of the tables is no longer true.
    pub(crate) fn look_for_foreign_commits(&mut self) -> Result<(), rusqlite::Error> {
        if self.checkpointer.is_some() {
            let version = data_version(&self.conn)?;
            self.note_version(version);
        }
        Ok(())
    }

    /// What earlier looks found is no longer true.
    pub(crate) fn forget_looks(&mut self) {
        self.woken_ms = i64::MIN;
        self.next_due_ms = None;
        self.note_unknown_due();
        self.passed_over = None;
    }

    fn note_version(&mut self, version: i64) {
        if version != self.data_version {
            self.data_version = version;
            self.foreign_seen = Some(self.clock.monotonic());
            self.look = Look::EVERYWHERE;
            self.forget_looks();
            self.shared.watches.bump_all();
        }
    }

    /// Reads and checkpoints go between batches: inside one they would see what is not committed.
    fn serve_between(&mut self) {
        for read in std::mem::take(&mut self.reads) {
            // A reader that panics answers nobody; its caller notices.
            drop(catch_unwind(AssertUnwindSafe(|| read(&self.conn))));
        }
        for reply in std::mem::take(&mut self.checkpoints) {
            let done = if self.checkpointer.is_some() { checkpoint::truncate(&self.conn) } else { Ok(()) };
            // A caller that no longer listens gets no answer; the checkpoint is done.
            drop(reply.send(done));
        }
    }

    /// Two panics in a row: whatever is wrong does not go away, and a writer that cannot be trusted must not write.
    pub(crate) fn break_if_panicking(&mut self) {
        if self.panics < 2 || self.broken.is_some() {
            return;
        }
        let reason = "the writer panicked twice in a row and takes no more work; see the log".to_owned();
        tracing::error!(target: "everturn::providers::sqlite", reason);
        for operation in self.pending.drain(..) {
            operation.fail(&reason, false);
        }
        for waiter in self.turns.take_all() {
            refuse(waiter, ProviderError::permanent(TurnWaiter::NAME, reason.clone()));
        }
        for waiter in self.work.take_all() {
            refuse(waiter, ProviderError::permanent(WorkWaiter::NAME, reason.clone()));
        }
        self.broken = Some(reason);
    }

    /// Begins a transaction for one operation alone; waits for another process if it must.
    pub(crate) fn begin_alone(&mut self, deadline: Duration) -> Result<(), rusqlite::Error> {
        loop {
            match self.conn.prepare_cached("BEGIN IMMEDIATE")?.execute([]) {
                Ok(_) => return Ok(()),
                Err(error) if is_busy(&error) && self.clock.monotonic() < deadline => {
                    std::thread::sleep(BUSY_PAUSE);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The provider is closing: nobody waits any more.
    pub(crate) fn dismiss_waiters(&mut self) {
        let late = std::mem::take(&mut self.late);
        // Their locks are freed by whoever opens the file next.
        late.turns.into_iter().for_each(|(waiter, _)| answer_nothing(waiter));
        late.work.into_iter().for_each(|(waiter, _)| answer_nothing(waiter));
        self.turns.take_all().into_iter().for_each(answer_nothing);
        self.work.take_all().into_iter().for_each(answer_nothing);
    }

    /// No more letters come: closes the database.
    pub(crate) fn close(mut self) -> Result<(), SqliteError> {
        self.dismiss_waiters();
        if self.checkpointer.is_some() {
            // What cannot be moved now stays in the log, which is as safe.
            drop(checkpoint::truncate(&self.conn));
        }
        self.conn.flush_prepared_statement_cache();
        self.conn.close().map_err(|(_conn, error)| SqliteError::sqlite("closing the database", error))
    }
}

/// Whether another process is in the way.
pub(crate) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

fn data_version(conn: &Connection) -> Result<i64, rusqlite::Error> {
    conn.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))
}

/// Tells a waiter why it gets nothing.
pub(crate) fn refuse<W: Waiter>(waiter: W, error: ProviderError) {
    // A waiter that left wants no answer.
    drop(waiter.reply().send(Err(error)));
}

/// Tells a waiter that there is nothing.
pub(crate) fn answer_nothing<W: Waiter>(waiter: W) {
    // A waiter that left wants no answer.
    drop(waiter.reply().send(Ok(None)));
}

#[cfg(test)]
mod tests;
