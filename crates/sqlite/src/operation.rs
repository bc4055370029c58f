//! Operations: what callers ask of the writer. Each happens completely or not at all.

use std::collections::HashSet;
use std::sync::Arc;

use everturn_provider::{Clock, ProviderError};
use rusqlite::{Connection, ErrorCode};
use tokio::sync::oneshot;

use crate::clock_reading::ClockReading;
use crate::locks::{OwnLocks, RenewedLocks};
use crate::owners::OwnerId;
use crate::parked_fetches::ParkedWorkFetch;
use crate::totals::TotalsChange;
use crate::unreadable::{RowPlace, RowReads};

/// The order of operations in a batch: calls of lock holders run first, so that no other operation takes over what they
/// hold. Assignments to parked fetches follow after all operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum BatchOrder {
    /// Extends a lock or a lease.
    Renewal,
    /// Uses a lock.
    LockHolder,
    /// Needs no lock.
    NewWork,
}

/// Why an operation did not happen.
#[derive(Debug)]
pub(crate) enum VerbFailure {
    /// The operation is refused: what it wrote is undone, other operations are not affected. The writer fills in the
    /// operation's name.
    Refused(ProviderError),
    /// The store failed: the whole batch is lost.
    Storage(rusqlite::Error),
}

impl From<ProviderError> for VerbFailure {
    fn from(error: ProviderError) -> Self {
        Self::Refused(error)
    }
}

impl From<rusqlite::Error> for VerbFailure {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::ConstraintViolation | ErrorCode::TooBig | ErrorCode::TypeMismatch) => {
                Self::Refused(ProviderError::permanent("", error.to_string()).with_source(error))
            }
            // Damage of the file, too: SQLite refuses every further write of the transaction.
            Some(_) => Self::Storage(error),
            // Not an error of SQLite but of the value: a column holds something else than it should.
            None => Self::Refused(ProviderError::damaged("", error.to_string()).with_source(error)),
        }
    }
}

/// The error of a read as callers see it.
pub(crate) fn storage_error(operation: &str, error: rusqlite::Error) -> ProviderError {
    if matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)) {
        return ProviderError::damaged(operation, error.to_string()).with_source(error);
    }
    match VerbFailure::from(error) {
        VerbFailure::Refused(mut refused) => {
            refused.operation = operation.to_owned();
            refused
        }
        VerbFailure::Storage(error) => {
            ProviderError::retryable(operation, error.to_string()).with_source(error)
        }
    }
}

/// What the writer must know of an operation besides its answer. Discarded if the operation was refused.
#[derive(Default)]
pub(crate) struct Effects {
    /// An instance became ready, and its oldest message is the newest of all messages.
    pub(crate) new_turns: bool,
    /// Instances became ready; the oldest message of all of them.
    pub(crate) turns: Option<i64>,
    /// There are orphaned messages to delete.
    pub(crate) orphans: bool,
    /// An activity became ready.
    pub(crate) work: bool,
    /// A row that may be assigned in this batch was deleted.
    pub(crate) removed: bool,
    /// Rows are left in the garbage list.
    pub(crate) garbage: bool,
    /// Many rows were deleted: pages of the file may be free.
    pub(crate) freed: bool,
    /// How the totals change.
    pub(crate) totals: TotalsChange,
    /// Instances whose turn ended: not assigned again before the commit.
    pub(crate) ended_turns: HashSet<i64>,
    /// Instances whose watches fire.
    pub(crate) touched: Vec<String>,
    /// Locks that were taken or renewed, with their length in milliseconds.
    pub(crate) held: Vec<(String, ClockReading, u64)>,
    /// Locks that were released.
    pub(crate) released: Vec<String>,
    /// Locks that have expired.
    pub(crate) ended: Vec<String>,
    /// Fetches to park.
    pub(crate) fetches: Vec<ParkedWorkFetch>,
}

impl Effects {
    /// An instance became ready whose oldest message is `ready_seq`.
    pub(crate) fn turn_is_ready(&mut self, ready_seq: Option<i64>) {
        self.turns = self.turns.into_iter().chain(ready_seq).min();
    }

    pub(crate) fn absorb(&mut self, other: Self) {
        self.new_turns |= other.new_turns;
        self.turn_is_ready(other.turns);
        self.orphans |= other.orphans;
        self.work |= other.work;
        self.removed |= other.removed;
        self.garbage |= other.garbage;
        self.freed |= other.freed;
        self.totals.add(other.totals);
        self.ended_turns.extend(other.ended_turns);
        self.touched.extend(other.touched);
        self.held.extend(other.held);
        self.released.extend(other.released);
        self.ended.extend(other.ended);
        self.fetches.extend(other.fetches);
    }
}

/// Where an operation runs: the open transaction, and what the operation may know.
pub(crate) struct Scope<'a> {
    pub(crate) conn: &'a Connection,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) now: ClockReading,
    pub(crate) own_locks: &'a OwnLocks,
    /// The locks that were renewed in this transaction.
    pub(crate) renewed: &'a RenewedLocks,
    /// The owner of the locks that are taken here.
    pub(crate) owner: Option<OwnerId>,
    /// How rows are read that no caller asked for.
    pub(crate) rows: RowReads<'a>,
    pub(crate) effects: Effects,
}

impl Scope<'_> {
    /// Changes one row completely or not at all, unless it is passed over because it cannot be read. Returns why the row
    /// refused the change: it is damaged, and does not keep others from being changed.
    pub(crate) fn change_row(
        &mut self,
        place: RowPlace,
        change: impl FnOnce(&mut Self) -> Result<(), VerbFailure>,
    ) -> Result<Option<ProviderError>, VerbFailure> {
        if self.rows.passes_over(place) {
            return Ok(None);
        }
        self.rows.at(place);
        self.conn.prepare_cached("SAVEPOINT one")?.execute([])?;
        let refused = match change(self) {
            Ok(()) => None,
            Err(VerbFailure::Refused(error)) => {
                self.conn.prepare_cached("ROLLBACK TO one")?.execute([])?;
                Some(error)
            }
            Err(storage) => return Err(storage),
        };
        self.conn.prepare_cached("RELEASE one")?.execute([])?;
        self.rows.done();
        Ok(refused)
    }
}

/// One kind of operation.
pub(crate) trait Verb: Send + Sync + 'static {
    /// What the caller gets.
    type Answer: Send + 'static;
    /// Its name in errors.
    const NAME: &'static str;
    /// Its place in a batch.
    const ORDER: BatchOrder;

    /// Whether it may be refused after it began to write, so that it needs a savepoint. The others check everything first.
    const WRITES_BEFORE_REFUSAL: bool = false;

    /// How much it writes, roughly.
    fn payload_bytes(&self) -> usize {
        0
    }

    /// Executes it in the open transaction. Runs again if the batch was lost.
    fn run(&self, scope: &mut Scope<'_>) -> Result<Self::Answer, VerbFailure>;

    /// Called when it is durable, before any caller is answered.
    fn committed(&self, _answer: &Self::Answer) {}
}

/// An operation as the writer sees it.
pub(crate) trait Operation: Send {
    fn order(&self) -> BatchOrder;
    fn payload_bytes(&self) -> usize;
    fn writes_before_refusal(&self) -> bool;
    /// Executes it and keeps the outcome. Returns `false` if it was refused and what it wrote must be undone.
    fn run(&mut self, scope: &mut Scope<'_>) -> Result<bool, rusqlite::Error>;
    /// It is durable.
    fn committed(&self);
    /// Sends the outcome to the caller.
    fn answer(self: Box<Self>);
    /// Whether it must happen although no caller waits for its answer.
    fn is_owed(&self) -> bool;
    /// It could not read what it needs, although it ran alone. Returns how often.
    fn note_unreadable(&mut self) -> u32;
    /// Tells the caller that the store failed.
    fn fail(self: Box<Self>, message: &str, retryable: bool);
}

/// A verb in the command queue or in a batch, with the way to its caller.
///
/// A caller that waits keeps the verb as well, and so frees what it allocated: many callers wait for the writer.
pub(crate) struct PendingOperation<V: Verb> {
    verb: Arc<V>,
    outcome: Option<Result<V::Answer, ProviderError>>,
    reply: Option<oneshot::Sender<Result<V::Answer, ProviderError>>>,
    /// How often it could not read what it needs.
    unreadable: u32,
}

impl<V: Verb> PendingOperation<V> {
    pub(crate) fn new(verb: V, reply: Option<oneshot::Sender<Result<V::Answer, ProviderError>>>) -> Self {
        Self { verb: Arc::new(verb), outcome: None, reply, unreadable: 0 }
    }

    /// An operation of a caller that keeps the verb, too.
    pub(crate) fn called(verb: &Arc<V>, reply: oneshot::Sender<Result<V::Answer, ProviderError>>) -> Self {
        Self { verb: Arc::clone(verb), outcome: None, reply: Some(reply), unreadable: 0 }
    }
}

impl<V: Verb> Operation for PendingOperation<V> {
    fn order(&self) -> BatchOrder {
        V::ORDER
    }

    fn payload_bytes(&self) -> usize {
        self.verb.payload_bytes()
    }

    fn writes_before_refusal(&self) -> bool {
        V::WRITES_BEFORE_REFUSAL
    }

    fn run(&mut self, scope: &mut Scope<'_>) -> Result<bool, rusqlite::Error> {
        let outcome = match self.verb.run(scope) {
            Ok(answer) => Ok(answer),
            Err(VerbFailure::Refused(mut error)) => {
                error.operation = V::NAME.to_owned();
                Err(error)
            }
            Err(VerbFailure::Storage(error)) => return Err(error),
        };
        let done = outcome.is_ok();
        self.outcome = Some(outcome);
        Ok(done)
    }

    fn committed(&self) {
        if let Some(Ok(answer)) = &self.outcome {
            self.verb.committed(answer);
        }
    }

    fn answer(self: Box<Self>) {
        let Self { verb, outcome, reply, .. } = *self;
        // Before the answer, so that the caller has the last one.
        drop(verb);
        if let (Some(reply), Some(outcome)) = (reply, outcome) {
            // A caller that no longer listens gets no answer; what was done stays done.
            drop(reply.send(outcome));
        }
    }

    fn is_owed(&self) -> bool {
        self.reply.is_none()
    }

    fn note_unreadable(&mut self) -> u32 {
        self.unreadable = self.unreadable.saturating_add(1);
        self.unreadable
    }

    fn fail(self: Box<Self>, message: &str, retryable: bool) {
        let error = if retryable {
            ProviderError::retryable(V::NAME, message)
        } else {
            ProviderError::permanent(V::NAME, message)
        };
        if let Some(reply) = self.reply {
            // A caller that no longer listens gets no answer.
            drop(reply.send(Err(error)));
        }
    }
}
