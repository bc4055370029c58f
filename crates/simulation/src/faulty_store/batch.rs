//! Calls that are committed together, or lost together.
//!
//! A call runs at once, in the open batch, and is answered when that batch has ended. The waiting callers end it: the first
//! one that finds its time over. What was read in a batch is also answered after its end, so that no caller learns of
//! something that is lost afterwards.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use everturn_provider::store::{CheckIn, Renewed, Swept};
use everturn_provider::testing::{Changes, Moment, SessionsBefore, TableAccess as _, Tables};
use everturn_provider::{Clock, MemoryProvider, ProviderError};
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};

use super::batch_fates::{BatchFate, BatchFates, LostBatch, Unanswered};

/// A memory provider whose calls are committed in batches.
#[derive(Debug)]
pub(super) struct BatchedMemory {
    pub(super) memory: Arc<MemoryProvider>,
    pub(super) clock: Arc<dyn Clock>,
    window: Duration,
    fates: Arc<dyn BatchFates>,
    state: Mutex<BatchState>,
    /// A fetch of turns may find something.
    pub(super) orchestrator_work: Notify,
    /// A fetch of work may find something.
    pub(super) worker_work: Notify,
}

#[derive(Debug, Default)]
struct BatchState {
    open: Option<OpenBatch>,
    /// The fate of the next batch, as far as it was asked for.
    next_fate: Option<BatchFate>,
}

/// What a batch must know until it ends.
struct OpenBatch {
    end: Arc<BatchEnd>,
    /// The tables as they were before, if the batch is going to be lost, and what the callers get that wait for it.
    loss: Option<(Box<Tables>, Unanswered)>,
    operations: usize,
    check_ins: Vec<CheckIn>,
    instances: BTreeSet<String>,
    notes: BatchNotes,
    /// How many of the turns that were answered early were committed in it.
    whole_turns: usize,
    /// Fetches that were dropped: they are undone even if the batch is lost.
    undone: Vec<Assigned>,
}

impl std::fmt::Debug for OpenBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenBatch").field("operations", &self.operations).finish_non_exhaustive()
    }
}

/// What a verb did that its batch must remember.
#[derive(Debug, Default)]
pub(super) struct BatchNotes {
    /// Instances that were locked or released. They are not offered again in the batch: no worker begins with what is
    /// not committed, and the worker that releases gets its answer before another one begins.
    pub(super) instances: BTreeSet<String>,
    /// Activities that were locked or released.
    pub(super) activities: BTreeSet<u64>,
    /// Locks that are answered after the commit: they count from then on.
    pub(super) locks: Vec<(String, Duration)>,
    /// Leases that are answered after the commit: they count from then on.
    pub(super) leases: Vec<NotedLease>,
    /// The tokens of turns that may be answered before the commit.
    pub(super) early: Vec<String>,
    /// The token of a turn that was committed.
    pub(super) committed: Option<String>,
}

/// The lease of a session that was claimed or renewed.
#[derive(Debug)]
pub(super) struct NotedLease {
    pub(super) session_id: String,
    pub(super) owner_id: String,
    pub(super) lasts: Duration,
}

/// A row that was assigned to a fetch.
#[derive(Debug, Clone)]
pub(super) struct Assigned {
    pub(super) token: String,
    pub(super) before: Option<Arc<SessionsBefore>>,
}

/// The end of a batch, for the calls that wait for it.
#[derive(Debug)]
pub(super) struct BatchEnd {
    due: Instant,
    fate: OnceLock<BatchFate>,
    ended: Notify,
}

impl BatchEnd {
    /// How the batch ended, if it did.
    pub(super) fn fate(&self) -> Option<BatchFate> {
        self.fate.get().copied()
    }

    async fn is_due(&self) {
        if Instant::now() < self.due {
            sleep_until(self.due).await;
        } else {
            // Tasks that are ready join.
            yield_now().await;
        }
    }

    fn set(&self, fate: BatchFate) {
        self.fate.get_or_init(|| fate);
        self.ended.notify_waiters();
    }
}

/// The answer of a verb.
pub(super) trait VerbAnswer {
    /// Whether the verb has changed anything that must be committed.
    fn has_changed(&self) -> bool;
}

impl<T> VerbAnswer for Result<T, ProviderError> {
    fn has_changed(&self) -> bool {
        self.is_ok()
    }
}

impl VerbAnswer for Renewed {
    fn has_changed(&self) -> bool {
        self.sessions > 0 || self.locks.iter().any(Result::is_ok)
    }
}

impl VerbAnswer for Swept {
    fn has_changed(&self) -> bool {
        self.sessions > 0
    }
}

/// What was read.
struct ReadAnswer<T>(T);

impl<T> VerbAnswer for ReadAnswer<T> {
    fn has_changed(&self) -> bool {
        false
    }
}

impl BatchedMemory {
    pub(super) fn new(
        memory: Arc<MemoryProvider>,
        clock: Arc<dyn Clock>,
        window: Duration,
        fates: Arc<dyn BatchFates>,
    ) -> Self {
        Self {
            memory,
            clock,
            window,
            fates,
            state: Mutex::default(),
            orchestrator_work: Notify::new(),
            worker_work: Notify::new(),
        }
    }

    /// Runs a verb and answers when it is committed.
    pub(super) async fn write<T: VerbAnswer>(
        &self,
        verb_name: &str,
        mut verb: impl FnMut(&mut Tables, Moment, &mut BatchNotes) -> T,
    ) -> Result<T, ProviderError> {
        loop {
            let (answer, batch) = self.run(true, |tables, now, _, notes| verb(tables, now, notes));
            let Some(batch) = batch else { return Ok(answer) };
            if is_committed(verb_name, self.end_of(&batch).await)? {
                return Ok(answer);
            }
        }
    }

    /// Reads, and answers when what was read is committed.
    pub(super) async fn read<T>(
        &self,
        verb_name: &str,
        mut verb: impl FnMut(&Tables, Moment) -> T,
    ) -> Result<T, ProviderError> {
        loop {
            let (ReadAnswer(answer), batch) =
                self.run(false, |tables, now, _, _| ReadAnswer(verb(tables, now)));
            let Some(batch) = batch else { return Ok(answer) };
            if is_committed(verb_name, self.end_of(&batch).await)? {
                return Ok(answer);
            }
        }
    }

    /// Runs a verb at the present time. It gets what the open batch has noted so far, and notes of its own to fill. If a
    /// batch is open afterwards, the answer counts only once that is committed.
    pub(super) fn run<T: VerbAnswer>(
        &self,
        may_open: bool,
        verb: impl FnOnce(&mut Tables, Moment, Option<&BatchNotes>, &mut BatchNotes) -> T,
    ) -> (T, Option<Arc<BatchEnd>>) {
        let mut state = self.state();
        let fate = (may_open && state.open.is_none())
            .then(|| *state.next_fate.get_or_insert_with(|| self.fates.next()));
        let mut notes = BatchNotes::default();
        let open = state.open.as_ref().map(|batch| &batch.notes);
        let ((answer, loss), changes) = self.memory.run_silently(|tables, now| {
            let loss = match fate {
                Some(BatchFate::Lost(unanswered)) => Some((Box::new(tables.clone()), unanswered)),
                _ => None,
            };
            (verb(tables, now, open, &mut notes), loss)
        });
        if answer.has_changed() {
            if fate.is_some() {
                state.next_fate = None;
                state.open = Some(OpenBatch::new(Instant::now() + self.window, loss));
            }
            if let Some(batch) = &mut state.open {
                batch.operations += 1;
            }
        }
        let end = self.absorb(state, changes, notes);
        (answer, end)
    }

    /// Keeps in the open batch what is announced after its commit, and announces the rest.
    fn absorb(
        &self,
        mut state: MutexGuard<'_, BatchState>,
        changes: Changes,
        notes: BatchNotes,
    ) -> Option<Arc<BatchEnd>> {
        let (orchestrator_queue, worker_queue) = (changes.orchestrator_queue, changes.worker_queue);
        let end = if let Some(batch) = &mut state.open {
            batch.absorb(changes, notes);
            let end = Arc::clone(&batch.end);
            drop(state);
            Some(end)
        } else {
            drop(state);
            self.memory.announce(changes);
            None
        };
        self.wake_fetches(orchestrator_queue, worker_queue);
        end
    }

    fn wake_fetches(&self, orchestrator_queue: bool, worker_queue: bool) {
        if orchestrator_queue {
            self.orchestrator_work.notify_waiters();
        }
        if worker_queue {
            self.worker_work.notify_waiters();
        }
    }

    /// Undoes a fetch that was dropped before its answer.
    pub(super) fn undo(&self, assigned: Assigned) {
        let mut state = self.state();
        let mut notes = BatchNotes::default();
        let ((), changes) = self.memory.run_silently(|tables, _| {
            notes.instances.extend(tables.instance_of(&assigned.token));
            notes.activities.extend(tables.activity_of(&assigned.token));
            tables.undo_fetch(&assigned.token, assigned.before.as_deref());
        });
        if let Some(batch) = &mut state.open {
            batch.undone.push(assigned);
        }
        self.absorb(state, changes, notes);
    }

    /// Waits for the end of a batch, and ends it when its time is over.
    pub(super) async fn end_of(&self, batch: &Arc<BatchEnd>) -> BatchFate {
        loop {
            let mut ended = pin!(batch.ended.notified());
            ended.as_mut().enable();
            if let Some(fate) = batch.fate() {
                return fate;
            }
            tokio::select! {
                biased;
                () = ended => {}
                () = batch.is_due() => self.end(batch),
            }
        }
    }

    /// Ends a batch, unless another caller does.
    fn end(&self, end: &Arc<BatchEnd>) {
        let mut state = self.state();
        let Some(mut batch) = state.open.take_if(|open| Arc::ptr_eq(&open.end, end)) else { return };
        match batch.loss.take() {
            None => self.commit(state, batch),
            Some((before, unanswered)) => self.lose(state, batch, *before, unanswered),
        }
    }

    fn commit(&self, state: MutexGuard<'_, BatchState>, batch: OpenBatch) {
        let BatchNotes { locks, leases, .. } = batch.notes;
        self.memory.inspect(|tables, now| {
            for (token, lasts) in &locks {
                tables.restart_lock(now, token, *lasts);
            }
            for NotedLease { session_id, owner_id, lasts } in &leases {
                tables.restart_lease(now, session_id, owner_id, *lasts);
            }
        });
        drop(state);
        self.fates.committed(batch.whole_turns);
        for check_in in batch.check_ins {
            // The caller that ends the batch must not fail for a check-in of another one.
            if catch_unwind(AssertUnwindSafe(|| check_in())).is_err() {
                tracing::error!("a check-in of a committed turn panicked; the batch goes on without it");
            }
        }
        batch.end.set(BatchFate::Committed);
        self.memory.announce(Changes { instances: batch.instances, ..Changes::default() });
    }

    fn lose(
        &self,
        state: MutexGuard<'_, BatchState>,
        batch: OpenBatch,
        before: Tables,
        unanswered: Unanswered,
    ) {
        self.memory.inspect(|tables, _| {
            tables.restore(before);
            for assigned in &batch.undone {
                tables.undo_fetch(&assigned.token, assigned.before.as_deref());
            }
        });
        drop(state);
        let (operations, early_tokens) = (batch.operations, batch.notes.early);
        self.fates.lost(&LostBatch { operations, early_tokens });
        batch.end.set(BatchFate::Lost(unanswered));
        // What was assigned in the batch is in the queues again.
        self.wake_fetches(true, true);
    }

    fn state(&self) -> MutexGuard<'_, BatchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the end of a batch means to a call that waited for it: whether it was committed, or runs again.
pub(super) fn is_committed(verb_name: &str, fate: BatchFate) -> Result<bool, ProviderError> {
    match fate {
        BatchFate::Committed => Ok(true),
        BatchFate::Lost(Unanswered::RunAgain) => Ok(false),
        BatchFate::Lost(Unanswered::Fail) => {
            Err(ProviderError::retryable(verb_name, "its batch could not be committed"))
        }
    }
}

impl OpenBatch {
    fn new(due: Instant, loss: Option<(Box<Tables>, Unanswered)>) -> Self {
        Self {
            end: Arc::new(BatchEnd { due, fate: OnceLock::new(), ended: Notify::new() }),
            loss,
            operations: 0,
            check_ins: Vec::new(),
            instances: BTreeSet::new(),
            notes: BatchNotes::default(),
            whole_turns: 0,
            undone: Vec::new(),
        }
    }

    fn absorb(&mut self, mut changes: Changes, mut notes: BatchNotes) {
        self.check_ins.append(&mut changes.check_ins);
        self.instances.append(&mut changes.instances);
        self.notes.instances.append(&mut notes.instances);
        self.notes.activities.append(&mut notes.activities);
        self.notes.locks.append(&mut notes.locks);
        self.notes.leases.append(&mut notes.leases);
        self.notes.early.append(&mut notes.early);
        if notes.committed.is_some_and(|token| self.notes.early.contains(&token)) {
            self.whole_turns += 1;
        }
    }
}
