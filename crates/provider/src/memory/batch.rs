//! Calls that are committed together, or lost together.
//!
//! A call is carried out at once, in the open batch, and answered when that batch has ended. Nobody but those who wait
//! ends it: the first of them for whom its time is over does. What was read in a batch is told after its end too, so
//! nobody is told of what a loss takes back.

use std::collections::BTreeSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, OnceLock};

use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};

use super::batches::{BatchFate, Batches, LostBatch, Unanswered};
use super::hand_back::Assigned;
use super::tables::{ChangedHands, Changes, Held, Moment, Tables};
use super::{MemoryProvider, locked};
use crate::error::ProviderError;
use crate::store::{CheckIn, Renewed, Swept};

/// Everything under the mutex: the tables, and the batch that was begun in them.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) tables: Tables,
    open: Option<OpenBatch>,
    /// The fate of the next batch, as far as it was asked for.
    next_fate: Option<BatchFate>,
}

/// What a batch must know until it ends.
struct OpenBatch {
    ending: Arc<Ending>,
    /// The tables as they were before, if the batch is going to be lost, and what those hear who wait for it.
    loss: Option<(Box<Tables>, Unanswered)>,
    operations: usize,
    check_ins: Vec<CheckIn>,
    instances: BTreeSet<String>,
    held: Vec<Held>,
    early_tokens: Vec<String>,
    /// How many turns of those have ended in it too.
    whole_turns: usize,
    /// Nobody waits for these, so they are not lost with the batch.
    handed_back: Vec<Assigned>,
}

impl fmt::Debug for OpenBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenBatch").field("operations", &self.operations).finish_non_exhaustive()
    }
}

impl OpenBatch {
    /// Keeps what is told after the commit; what is left is told at once.
    fn absorb(&mut self, changes: &mut Changes) {
        self.check_ins.append(&mut changes.check_ins.0);
        self.instances.append(&mut changes.instances);
        self.held.append(&mut changes.held);
        self.early_tokens.append(&mut changes.early);
        if changes.written.take().is_some_and(|token| self.early_tokens.contains(&token)) {
            self.whole_turns += 1;
        }
    }
}

/// The end of a batch, for those who wait for it.
#[derive(Debug)]
pub(super) struct Ending {
    due: Instant,
    fate: OnceLock<BatchFate>,
    ended: Notify,
}

impl Ending {
    /// How the batch ended, if it did.
    pub(super) fn fate(&self) -> Option<BatchFate> {
        self.fate.get().copied()
    }

    async fn is_due(&self) {
        if Instant::now() < self.due {
            sleep_until(self.due).await;
        } else {
            // Those who are ready join.
            yield_now().await;
        }
    }

    fn end(&self, fate: BatchFate) {
        self.fate.get_or_init(|| fate);
        self.ended.notify_waiters();
    }
}

/// The answer of a verb.
pub(super) trait Answer {
    /// Whether the verb has changed anything that must be committed.
    fn has_changed(&self) -> bool;
}

impl<T> Answer for Result<T, ProviderError> {
    fn has_changed(&self) -> bool {
        self.is_ok()
    }
}

impl Answer for Renewed {
    fn has_changed(&self) -> bool {
        self.sessions > 0 || self.locks.iter().any(Result::is_ok)
    }
}

impl Answer for Swept {
    fn has_changed(&self) -> bool {
        self.sessions > 0
    }
}

/// What was read.
struct Seen<T>(T);

impl<T> Answer for Seen<T> {
    fn has_changed(&self) -> bool {
        false
    }
}

impl MemoryProvider {
    /// Carries a verb out and answers when that is committed.
    pub(super) async fn write<T: Answer>(
        &self,
        operation: &str,
        mut verb: impl FnMut(&mut Tables, Moment) -> T,
    ) -> Result<T, ProviderError> {
        loop {
            let (answer, batch) = self.run(true, &mut verb);
            let Some(batch) = batch else { return Ok(answer) };
            if self.is_committed(operation, &batch).await? {
                return Ok(answer);
            }
        }
    }

    /// Answers with what is committed.
    pub(super) async fn look<T>(
        &self,
        operation: &str,
        mut verb: impl FnMut(&Tables, Moment) -> T,
    ) -> Result<T, ProviderError> {
        loop {
            let (Seen(answer), batch) = self.run(false, |tables, now| Seen(verb(tables, now)));
            let Some(batch) = batch else { return Ok(answer) };
            if self.is_committed(operation, &batch).await? {
                return Ok(answer);
            }
        }
    }

    /// Runs a verb on the tables as they are at this moment, committed or not.
    pub(super) fn with_tables<T>(&self, verb: impl FnOnce(&mut Tables) -> T) -> T {
        self.run(false, |tables, _| Seen(verb(tables))).0.0
    }

    /// Runs a verb at the present time. If a batch is open by then, the answer counts only once it is committed.
    pub(super) fn run<T: Answer>(
        &self,
        may_open: bool,
        verb: impl FnOnce(&mut Tables, Moment) -> T,
    ) -> (T, Option<Arc<Ending>>) {
        let mut state = locked(&self.state);
        let opening = match &self.batches {
            Some(batches) if may_open && state.open.is_none() => Some(state.opening(batches)),
            _ => None,
        };
        let now = self.moment();
        let answer = verb(&mut state.tables, now);
        if answer.has_changed() {
            if opening.is_some() {
                state.next_fate = None;
                state.open = opening;
            }
            if let Some(batch) = &mut state.open {
                batch.operations += 1;
            }
        }
        let (changes, ending) = state.changes();
        drop(state);
        self.announce(changes);
        (answer, ending)
    }

    /// Gives work back that nobody took.
    pub(super) fn hand_back(&self, assigned: Assigned) {
        let mut state = locked(&self.state);
        state.tables.hand_back(&assigned);
        if let Some(batch) = &mut state.open {
            batch.handed_back.push(assigned);
        }
        let (changes, _) = state.changes();
        drop(state);
        self.announce(changes);
    }

    /// Waits for the end of a batch: whether it was committed, or what was done in it must be done again.
    pub(super) async fn is_committed(
        &self,
        operation: &str,
        batch: &Arc<Ending>,
    ) -> Result<bool, ProviderError> {
        is_committed(operation, self.end_of(batch).await)
    }

    /// Waits for the end of a batch, and ends it when its time is over.
    pub(super) async fn end_of(&self, batch: &Arc<Ending>) -> BatchFate {
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

    /// Ends a batch, unless somebody else does.
    fn end(&self, ending: &Arc<Ending>) {
        let mut state = locked(&self.state);
        let Some(batch) = state.open.take_if(|open| Arc::ptr_eq(&open.ending, ending)) else { return };
        let OpenBatch { loss, operations, check_ins, instances, held, early_tokens, handed_back, .. } = batch;
        let whole_turns = batch.whole_turns;
        let now = self.moment();
        let Some((before, unanswered)) = loss else {
            state.tables.count_from(now, &held);
            state.tables.changed_hands = ChangedHands::default();
            drop(state);
            if let Some(batches) = &self.batches {
                batches.fates.committed(whole_turns);
            }
            for check_in in check_ins {
                // Whoever ends the batch is not to blame for what goes wrong in it.
                if catch_unwind(AssertUnwindSafe(|| check_in())).is_err() {
                    tracing::error!("checking an instance in panicked");
                }
            }
            ending.end(BatchFate::Committed);
            self.announce(Changes { instances, ..Changes::default() });
            return;
        };
        state.tables.go_back_to(*before);
        for assigned in &handed_back {
            state.tables.hand_back(assigned);
        }
        // There was no batch yet, so nothing has changed hands.
        let _ = state.changes();
        drop(state);
        if let Some(batches) = &self.batches {
            batches.fates.lost(&LostBatch { operations, early_tokens });
        }
        ending.end(BatchFate::Lost(unanswered));
        // What had been handed out is there again.
        self.announce(Changes { orchestrator_queue: true, worker_queue: true, ..Changes::default() });
    }
}

/// What the end of a batch means to those who waited for it.
pub(super) fn is_committed(operation: &str, fate: BatchFate) -> Result<bool, ProviderError> {
    match fate {
        BatchFate::Committed => Ok(true),
        BatchFate::Lost(Unanswered::RunAgain) => Ok(false),
        BatchFate::Lost(Unanswered::Fail) => {
            Err(ProviderError::retryable(operation, "its batch could not be committed"))
        }
    }
}

impl State {
    /// A batch that may be opened now.
    fn opening(&mut self, batches: &Batches) -> OpenBatch {
        let fate = *self.next_fate.get_or_insert_with(|| batches.fates.next());
        let loss = match fate {
            BatchFate::Committed => None,
            BatchFate::Lost(unanswered) => Some((Box::new(self.tables.clone()), unanswered)),
        };
        let due = Instant::now() + batches.window;
        OpenBatch {
            ending: Arc::new(Ending { due, fate: OnceLock::new(), ended: Notify::new() }),
            loss,
            operations: 0,
            check_ins: Vec::new(),
            instances: BTreeSet::new(),
            held: Vec::new(),
            early_tokens: Vec::new(),
            whole_turns: 0,
            handed_back: Vec::new(),
        }
    }

    /// What the last verb set in motion, and the batch that it waits for.
    fn changes(&mut self) -> (Changes, Option<Arc<Ending>>) {
        let mut changes = std::mem::take(&mut self.tables.changes);
        if let Some(batch) = &mut self.open {
            batch.absorb(&mut changes);
            return (changes, Some(Arc::clone(&batch.ending)));
        }
        self.tables.changed_hands = ChangedHands::default();
        (changes, None)
    }
}
