//! Operations: what callers ask of the writer. Each happens whole or not at all.

use std::collections::HashSet;

use everturn_core::{Bug, planted};
use everturn_provider::{Clock, ProviderError};
use rusqlite::{Connection, ErrorCode};
use tokio::sync::oneshot;

use crate::locks::OwnLocks;
use crate::moment::Moment;

/// The order of a batch: whoever holds something first, so that nobody takes it meanwhile; then new work; fetches,
/// which are no operations but waiters, last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Order {
    Renewal,
    Holder,
    Newcomer,
}

/// Why an operation did not happen.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It may not: what it wrote is undone, nobody else is hurt. The operation's name is filled in later.
    Refused(ProviderError),
    /// The store could not: the whole batch is lost.
    Storage(rusqlite::Error),
}

impl From<ProviderError> for Failure {
    fn from(error: ProviderError) -> Self {
        Self::Refused(error)
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::ConstraintViolation | ErrorCode::TooBig | ErrorCode::TypeMismatch) => {
                Self::Refused(ProviderError::permanent("", error.to_string()).with_source(error))
            }
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                Self::Refused(ProviderError::damaged("", error.to_string()).with_source(error))
            }
            Some(_) => Self::Storage(error),
            // Not SQLite but the value: a column that holds something else than it should.
            None => Self::Refused(ProviderError::damaged("", error.to_string()).with_source(error)),
        }
    }
}

/// A storage error as callers see it.
pub(crate) fn storage_error(operation: &str, error: rusqlite::Error) -> ProviderError {
    match Failure::from(error) {
        Failure::Refused(mut refused) => {
            refused.operation = operation.to_owned();
            refused
        }
        Failure::Storage(error) => ProviderError::retryable(operation, error.to_string()).with_source(error),
    }
}

/// What an operation did that others want to know. Kept only if the operation was.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// An instance became ready, its oldest message being the newest of all.
    pub(crate) new_turns: bool,
    /// An instance became ready whose messages may be older than others'.
    pub(crate) turns: bool,
    /// Messages that nobody will ever read wait to be taken away.
    pub(crate) orphans: bool,
    /// An activity became ready.
    pub(crate) work: bool,
    /// A row that may be assigned in this batch was deleted.
    pub(crate) removed: bool,
    /// Instances whose turn ended: not offered again before the commit.
    pub(crate) ended_turns: HashSet<i64>,
    /// Instances whose state changed.
    pub(crate) touched: Vec<String>,
    /// Locks that are held on, with their length.
    pub(crate) held: Vec<(String, Moment, u64)>,
    /// Locks that are no longer held.
    pub(crate) released: Vec<String>,
    /// Locks that have ended.
    pub(crate) ended: Vec<String>,
}

impl Effects {
    pub(crate) fn absorb(&mut self, other: Self) {
        self.new_turns |= other.new_turns;
        self.turns |= other.turns;
        self.orphans |= other.orphans;
        self.work |= other.work;
        self.removed |= other.removed;
        self.ended_turns.extend(other.ended_turns);
        self.touched.extend(other.touched);
        self.held.extend(other.held);
        self.released.extend(other.released);
        self.ended.extend(other.ended);
    }
}

/// Where an operation runs: the open transaction, and what it may know.
pub(crate) struct Scope<'a> {
    pub(crate) conn: &'a Connection,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) now: Moment,
    pub(crate) own_locks: &'a OwnLocks,
    pub(crate) effects: Effects,
}

/// One kind of operation.
pub(crate) trait Verb: Send + 'static {
    /// What the caller gets.
    type Answer: Send + 'static;
    /// Its name in errors.
    const NAME: &'static str;
    /// Its place in a batch.
    const ORDER: Order;

    /// Whether it may be refused after it began to write, so that it needs a savepoint to go back to. The others check
    /// everything first.
    const WRITES_BEFORE_REFUSAL: bool = false;

    /// How much it writes, roughly.
    fn payload_bytes(&self) -> usize {
        0
    }

    /// Does it. May run again if the batch was lost.
    fn run(&self, scope: &mut Scope<'_>) -> Result<Self::Answer, Failure>;

    /// Called when it is durable, before anybody is told.
    fn committed(&self) {}
}

/// An operation as the writer sees it.
pub(crate) trait Operation: Send {
    fn order(&self) -> Order;
    fn payload_bytes(&self) -> usize;
    fn writes_before_refusal(&self) -> bool;
    /// Does it and keeps the outcome; `false` if it was refused and what it wrote must go.
    fn run(&mut self, scope: &mut Scope<'_>) -> Result<bool, rusqlite::Error>;
    /// It is durable.
    fn committed(&self);
    /// Tells the caller the outcome.
    fn answer(self: Box<Self>);
    /// Whether it must happen although nobody waits for its answer.
    fn is_owed(&self) -> bool;
    /// Tells the caller that the store could not.
    fn fail(self: Box<Self>, message: &str, retryable: bool);
}

/// A verb on its way, with the caller's address.
pub(crate) struct Call<V: Verb> {
    verb: V,
    outcome: Option<Result<V::Answer, ProviderError>>,
    reply: Option<oneshot::Sender<Result<V::Answer, ProviderError>>>,
}

impl<V: Verb> Call<V> {
    pub(crate) fn new(verb: V, reply: Option<oneshot::Sender<Result<V::Answer, ProviderError>>>) -> Self {
        Self { verb, outcome: None, reply }
    }

    fn tell(self, outcome: Result<V::Answer, ProviderError>) {
        if let Some(reply) = self.reply {
            // A caller that no longer listens gets no answer; what was done stays done.
            drop(reply.send(outcome));
        }
    }
}

impl<V: Verb> Operation for Call<V> {
    fn order(&self) -> Order {
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
            Err(Failure::Refused(mut error)) => {
                error.operation = V::NAME.to_owned();
                Err(error)
            }
            Err(Failure::Storage(error)) => return Err(error),
        };
        let done = outcome.is_ok();
        match self.reply.take_if(|_| planted(Bug::AnsweredBeforeCommit)) {
            Some(reply) => drop(reply.send(outcome)),
            None => self.outcome = Some(outcome),
        }
        Ok(done)
    }

    fn committed(&self) {
        if matches!(self.outcome, Some(Ok(_))) {
            self.verb.committed();
        }
    }

    fn answer(mut self: Box<Self>) {
        if let Some(outcome) = self.outcome.take() {
            self.tell(outcome);
        }
    }

    fn is_owed(&self) -> bool {
        self.reply.is_none()
    }

    fn fail(self: Box<Self>, message: &str, retryable: bool) {
        let error = if retryable {
            ProviderError::retryable(V::NAME, message)
        } else {
            ProviderError::permanent(V::NAME, message)
        };
        self.tell(Err(error));
    }
}
