//! Operations: what callers ask of the commit lane. Each happens completely or not at all.

use std::sync::Arc;

use everturn_provider::ProviderError;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::needs::Needs;
use crate::unit_of_work::UnitOfWork;

/// The order of operations in a batch: calls of lock holders run first, so that no other operation takes over what they
/// hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum BatchOrder {
    /// Extends a lock or a lease.
    Renewal,
    /// Uses a lock.
    LockHolder,
    /// Needs no lock.
    NewWork,
}

/// How an operation runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Run {
    /// For the first time, or again after a transaction that was rolled back.
    First,
    /// Again: it may have been committed before, because the connection was lost while the server committed.
    Again,
}

/// One kind of operation.
pub(crate) trait Verb: Send + Sync + 'static {
    /// What the caller gets.
    type Answer: Send + 'static;
    /// Its name in errors.
    const NAME: &'static str;
    /// Its place in a batch.
    const ORDER: BatchOrder;

    /// How much it writes, roughly.
    fn payload_bytes(&self) -> usize {
        0
    }

    /// The rows that it needs.
    fn needs(&self, needs: &mut Needs);

    /// Decides what it changes, or is refused and has changed nothing.
    fn run(&self, unit: &mut UnitOfWork, run: Run) -> Result<Self::Answer, ProviderError>;

    /// Called when it is durable, before any caller is answered.
    fn committed(&self, _answer: &Self::Answer) {}
}

/// An operation as the lane sees it.
pub(crate) trait Operation: Send {
    fn order(&self) -> BatchOrder;
    fn payload_bytes(&self) -> usize;
    fn needs(&self, needs: &mut Needs);
    /// Runs it and keeps the outcome.
    fn run(&mut self, unit: &mut UnitOfWork);
    /// It may have been committed although there was no answer.
    fn note_unknown(&mut self);
    /// Whether that was noted.
    fn is_unknown(&self) -> bool;
    /// It is durable.
    fn committed(&self);
    /// Sends the outcome to the caller.
    fn answer(self: Box<Self>);
    /// When the caller gives up.
    fn deadline(&self) -> Instant;
    /// Tells the caller that the store failed.
    fn fail(self: Box<Self>, error: &dyn Fn(&str) -> ProviderError);
}

/// A verb on its way through the lane, with the way to its caller.
pub(crate) struct PendingOperation<V: Verb> {
    verb: Arc<V>,
    run: Run,
    outcome: Option<Result<V::Answer, ProviderError>>,
    reply: Option<oneshot::Sender<Result<V::Answer, ProviderError>>>,
    deadline: Instant,
}

impl<V: Verb> PendingOperation<V> {
    /// An operation without a `reply` happens whether or not its caller still waits.
    pub(crate) fn new(
        verb: Arc<V>,
        deadline: Instant,
        reply: Option<oneshot::Sender<Result<V::Answer, ProviderError>>>,
    ) -> Self {
        Self { verb, run: Run::First, outcome: None, reply, deadline }
    }
}

impl<V: Verb> Operation for PendingOperation<V> {
    fn order(&self) -> BatchOrder {
        V::ORDER
    }

    fn payload_bytes(&self) -> usize {
        self.verb.payload_bytes()
    }

    fn needs(&self, needs: &mut Needs) {
        self.verb.needs(needs);
    }

    fn run(&mut self, unit: &mut UnitOfWork) {
        self.outcome = Some(self.verb.run(unit, self.run).map_err(|mut error| {
            error.operation = V::NAME.to_owned();
            error
        }));
    }

    fn note_unknown(&mut self) {
        self.run = Run::Again;
    }

    fn is_unknown(&self) -> bool {
        self.run == Run::Again
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

    fn deadline(&self) -> Instant {
        self.deadline
    }

    fn fail(self: Box<Self>, error: &dyn Fn(&str) -> ProviderError) {
        if let Some(reply) = self.reply {
            // A caller that no longer listens gets no answer.
            drop(reply.send(Err(error(V::NAME))));
        }
    }
}
