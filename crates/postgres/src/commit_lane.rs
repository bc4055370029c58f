//! The commit lane: operations that wait at the same time share one transaction, on a connection of their own.
//!
//! A batch is what waits when the lane is free: with a commit under way the next batch fills itself. It takes two round trips,
//! one that reads and locks ([`load`](crate::load)) and one that writes and commits ([`writes`](crate::writes)).
//!
//! A batch that fails returns to the queue, where each of its operations is tried until its own deadline. One that fails because
//! of what it contains, or because another transaction holds one of its rows, fails with all that are in its batch: from then
//! on each of them has a transaction of its own.

use std::sync::Arc;
use std::time::Duration;

use everturn_provider::ProviderError;
use tokio::time::Instant;

use crate::callbacks::{guarded, guarded_future};
use crate::commit_queue::{CommitQueue, QueuedOperation};
use crate::error::{ExchangeError, ServerFailure};
use crate::link::Link;
use crate::needs::Needs;
use crate::retry::{RareWarning, pause_after};
use crate::session::ServerSession;
use crate::shared::Shared;
use crate::unit_of_work::CommitEffects;
use crate::{load, writes};

/// How often a transaction is tried that the server has rolled back, before its operations run one by one.
const TRIES: u32 = 3;

/// The error of a call that did not end in time.
pub(crate) fn timed_out(operation: &str) -> ProviderError {
    let message = "the server did not answer in time; whether the call took effect is not known";
    ProviderError::retryable(operation, message)
}

/// What runs the operations.
pub(crate) struct CommitLane {
    pub(crate) queue: Arc<CommitQueue>,
    pub(crate) link: Link,
    pub(crate) shared: Arc<Shared>,
    pub(crate) operations_max: usize,
    pub(crate) bytes_max: usize,
    pub(crate) warning: RareWarning,
}

/// Why a batch was not committed.
struct BatchFailure {
    failure: ServerFailure,
    /// The server may have committed it although there was no answer.
    is_unknown: bool,
    message: String,
}

impl BatchFailure {
    fn of(error: &ExchangeError, may_be_committed: bool) -> Self {
        let failure = error.failure();
        let is_unknown = may_be_committed && failure == ServerFailure::Connection;
        Self { failure, is_unknown, message: error.to_string() }
    }
}

impl CommitLane {
    /// Runs until the queue is closed and empty.
    pub(crate) async fn run(mut self) {
        while let Some(batch) = self.queue.next_batch(self.operations_max, self.bytes_max).await {
            self.run_batch(batch).await;
        }
    }

    /// Tries a batch once. Each of its operations is answered, or returns to the queue.
    async fn run_batch(&mut self, mut batch: Vec<QueuedOperation>) {
        // The order of operations that wait for each other stays.
        batch.sort_by_key(|queued| queued.operation.order());
        let session = loop {
            batch = self.left_in_time(batch);
            let deadline = batch.iter().map(|queued| queued.operation.deadline()).min();
            let Some(deadline) = deadline else { return };
            if let Some(session) = self.link.session(deadline).await {
                break session;
            }
        };
        let Some(committed) = guarded_future("a batch", self.commit(&session, &mut batch)).await else {
            self.link.drop_session(&session);
            let message = "an operation panicked: this is a bug".to_owned();
            self.note_failure(batch, ServerFailure::Content, &message);
            return;
        };
        match committed {
            Ok(effects) => {
                let was_unknown = batch.iter().any(|queued| queued.operation.is_unknown());
                for queued in &batch {
                    guarded("putting an instance back into memory", || queued.operation.committed());
                }
                self.shared.apply(effects);
                if was_unknown {
                    self.shared.look_everywhere();
                }
                for queued in batch {
                    guarded("answering a call", || queued.operation.answer());
                }
            }
            Err(BatchFailure { failure, is_unknown, message }) => {
                self.link.roll_back(&session, failure).await;
                if is_unknown {
                    batch.iter_mut().for_each(|queued| queued.operation.note_unknown());
                }
                self.note_failure(batch, failure, &message);
            }
        }
    }

    /// Answers the operations whose deadline is over, and returns the others.
    fn left_in_time(&self, batch: Vec<QueuedOperation>) -> Vec<QueuedOperation> {
        let now = Instant::now();
        let (expired, left): (Vec<_>, Vec<_>) =
            batch.into_iter().partition(|queued| queued.operation.deadline() <= now);
        self.fail(expired, &timed_out);
        left
    }

    /// Answers operations with an error.
    fn fail(&self, operations: Vec<QueuedOperation>, error: &dyn Fn(&str) -> ProviderError) {
        if operations.iter().any(|queued| queued.operation.is_unknown()) {
            // One of them may have taken effect, and no client was notified.
            self.shared.look_everywhere();
        }
        for queued in operations {
            guarded("answering a call", || queued.operation.fail(error));
        }
    }

    /// A batch was not committed: its operations are tried again, or fail.
    fn note_failure(&mut self, mut batch: Vec<QueuedOperation>, failure: ServerFailure, message: &str) {
        if let Some(left_out) = self.warning.is_due() {
            tracing::warn!(target: "everturn::providers::postgres", error = message, operations = batch.len(), left_out,
                "a batch was not committed; trying again");
        }
        let is_single = batch.len() == 1;
        if failure == ServerFailure::Content && is_single {
            return self.fail(batch, &|name| ProviderError::permanent(name, message.to_owned()));
        }
        for queued in &mut batch {
            queued.failures = queued.failures.saturating_add(1);
            queued.is_alone |= match failure {
                ServerFailure::Content | ServerFailure::Blocked => true,
                ServerFailure::Transaction => queued.failures >= TRIES,
                ServerFailure::Connection => false,
            };
        }
        let is_others_fault =
            matches!(failure, ServerFailure::Content | ServerFailure::Blocked) && !is_single;
        let failures = batch.iter().map(|queued| queued.failures).max().unwrap_or(1);
        let pause = if is_others_fault { Duration::ZERO } else { pause_after(failures) };
        self.queue.try_again(batch, pause);
    }

    async fn commit(
        &self,
        session: &ServerSession,
        batch: &mut [QueuedOperation],
    ) -> Result<CommitEffects, BatchFailure> {
        let mut needs = Needs::default();
        batch.iter().for_each(|queued| queued.operation.needs(&mut needs));
        let loaded = session.within(load::load(session, &needs, &self.shared)).await;
        let mut unit = loaded.map_err(|error| BatchFailure::of(&error, false))?;
        if needs.receivers.iter().any(|id| unit.key_of(id).is_none()) {
            // Its row was deleted between the statement that makes missing rows and the one that locks them.
            let message = "an instance was deleted while a message to it was stored".to_owned();
            return Err(BatchFailure { failure: ServerFailure::Transaction, is_unknown: false, message });
        }
        batch.iter_mut().for_each(|queued| queued.operation.run(&mut unit));
        unit.finish();
        let written = session.within(writes::write(session, &unit)).await;
        written.map_err(|error| BatchFailure::of(&error, true))?;
        Ok(std::mem::take(&mut unit.effects))
    }
}

impl Drop for CommitLane {
    /// However the lane ends, no caller waits for it any more.
    fn drop(&mut self) {
        let ended = |name: &str| {
            ProviderError::retryable(
                name,
                "the provider was closed; whether the call took effect is not known",
            )
        };
        for operation in self.queue.end() {
            guarded("answering a call", || operation.fail(&ended));
        }
        self.shared.close();
    }
}
