//! The commit lane: operations that wait at the same time share one transaction, on a connection of their own.
//!
//! A batch is what waits when the lane is free: with a commit under way the next batch fills itself. It takes two round trips,
//! one that reads and locks ([`load`](crate::load)) and one that writes and commits ([`writes`](crate::writes)).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use everturn_provider::ProviderError;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::error::{ServerFailure, shown};
use crate::link::Link;
use crate::needs::Needs;
use crate::operation::{Operation, PendingOperation, Verb};
use crate::session::ServerSession;
use crate::shared::Shared;
use crate::unit_of_work::CommitEffects;
use crate::{load, writes};

/// How long an operation is tried that no caller waits for.
const OWED_FOR: Duration = Duration::from_secs(60);
/// How often a transaction is tried that the server has rolled back, before its operations run one by one.
const TRIES: usize = 3;

/// The queue of operations from callers to the lane.
#[derive(Default)]
pub(crate) struct CommitQueue {
    state: Mutex<CommitQueueState>,
    arrived: Notify,
}

#[derive(Default)]
struct CommitQueueState {
    waiting: VecDeque<Box<dyn Operation>>,
    is_closed: bool,
}

/// The queue accepts no more calls.
#[derive(Debug)]
pub(crate) struct LaneClosed;

impl CommitQueue {
    fn state(&self) -> MutexGuard<'_, CommitQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues an operation for a caller that waits until `deadline`.
    pub(crate) fn send<V: Verb>(
        &self,
        verb: Arc<V>,
        deadline: Instant,
        reply: oneshot::Sender<Result<V::Answer, ProviderError>>,
    ) -> Result<(), LaneClosed> {
        self.push(Box::new(PendingOperation::new(verb, deadline, Some(reply))))
    }

    /// Queues an operation that no caller waits for.
    pub(crate) fn send_owed<V: Verb>(&self, verb: V) {
        let deadline = Instant::now() + OWED_FOR;
        // After the provider is closed its locks expire by themselves.
        drop(self.push(Box::new(PendingOperation::new(Arc::new(verb), deadline, None))));
    }

    fn push(&self, operation: Box<dyn Operation>) -> Result<(), LaneClosed> {
        let mut state = self.state();
        if state.is_closed {
            return Err(LaneClosed);
        }
        state.waiting.push_back(operation);
        drop(state);
        self.arrived.notify_one();
        Ok(())
    }

    /// Accepts no more calls; the lane ends after the operations that are queued.
    pub(crate) fn close(&self) {
        self.state().is_closed = true;
        self.arrived.notify_one();
    }

    /// The next batch; `None` if the queue is closed and empty.
    async fn next_batch(&self, operations_max: usize, bytes_max: usize) -> Option<Vec<Box<dyn Operation>>> {
        loop {
            {
                let mut state = self.state();
                let (mut batch, mut bytes) = (Vec::new(), 0);
                while let Some(operation) = state.waiting.front() {
                    bytes += operation.payload_bytes();
                    if batch.len() >= operations_max || (bytes > bytes_max && !batch.is_empty()) {
                        break;
                    }
                    batch.extend(state.waiting.pop_front());
                }
                if !batch.is_empty() {
                    return Some(batch);
                }
                if state.is_closed {
                    return None;
                }
            }
            self.arrived.notified().await;
        }
    }
}

/// What runs the operations.
pub(crate) struct CommitLane {
    pub(crate) queue: Arc<CommitQueue>,
    pub(crate) link: Link,
    pub(crate) shared: Arc<Shared>,
    pub(crate) operations_max: usize,
    pub(crate) bytes_max: usize,
}

/// Why a batch was not committed.
struct BatchFailure {
    failure: ServerFailure,
    /// The server may have committed it although there was no answer.
    is_unknown: bool,
    message: String,
}

impl CommitLane {
    /// Runs until the queue is closed and empty.
    pub(crate) async fn run(mut self) {
        while let Some(batch) = self.queue.next_batch(self.operations_max, self.bytes_max).await {
            self.run_batch(batch).await;
        }
        self.shared.close();
    }

    /// Runs a batch until each of its operations has an answer.
    async fn run_batch(&mut self, mut batch: Vec<Box<dyn Operation>>) {
        // The order of operations that wait for each other stays.
        batch.sort_by_key(|operation| operation.order());
        let mut todo = VecDeque::from([batch]);
        let mut tries = 0;
        while let Some(mut batch) = todo.pop_front() {
            let now = Instant::now();
            let (expired, left): (Vec<_>, Vec<_>) =
                batch.into_iter().partition(|operation| operation.deadline() <= now && tries > 0);
            let timed_out = |name: &str| {
                ProviderError::retryable(
                    name,
                    "the server did not answer in time; the call may have taken effect",
                )
            };
            expired.into_iter().for_each(|operation| operation.fail(&timed_out));
            batch = left;
            let Some(deadline) = batch.iter().map(|operation| operation.deadline()).max() else { continue };
            let Some(session) = self.link.session(deadline).await else {
                continue_with(&mut todo, batch);
                tries += 1;
                continue;
            };
            match self.commit(&session, &mut batch).await {
                Ok(effects) => {
                    batch.iter().for_each(|operation| operation.committed());
                    self.shared.apply(effects);
                    batch.into_iter().for_each(|operation| operation.answer());
                    tries = 0;
                }
                Err(BatchFailure { failure, is_unknown, message }) => {
                    tries += 1;
                    if failure == ServerFailure::Connection || session.run("ROLLBACK").await.is_err() {
                        self.link.drop_session(&session);
                    }
                    if is_unknown {
                        batch.iter_mut().for_each(|operation| operation.note_unknown());
                    }
                    tracing::warn!(target: "everturn::providers::postgres", error = %message, operations = batch.len(),
                        "a batch was not committed; trying again");
                    match (failure, batch.len()) {
                        (ServerFailure::Content, 1) => {
                            let refused = |name: &str| ProviderError::permanent(name, message.clone());
                            batch.into_iter().for_each(|operation| operation.fail(&refused));
                        }
                        (ServerFailure::Content, _) => {
                            todo.extend(batch.into_iter().map(|operation| vec![operation]))
                        }
                        (ServerFailure::Transaction, 2..) if tries >= TRIES => {
                            todo.extend(batch.into_iter().map(|operation| vec![operation]));
                        }
                        (ServerFailure::Transaction | ServerFailure::Connection, _) => {
                            continue_with(&mut todo, batch)
                        }
                    }
                }
            }
        }
    }

    async fn commit(
        &self,
        session: &ServerSession,
        batch: &mut [Box<dyn Operation>],
    ) -> Result<CommitEffects, BatchFailure> {
        let mut needs = Needs::default();
        batch.iter().for_each(|operation| operation.needs(&mut needs));
        let failed = |error: tokio_postgres::Error, may_be_committed: bool| {
            let failure = ServerFailure::of(&error);
            let is_unknown = may_be_committed && failure == ServerFailure::Connection;
            BatchFailure { failure, is_unknown, message: shown(&error) }
        };
        let mut unit =
            load::load(session, &needs, &self.shared).await.map_err(|error| failed(error, false))?;
        if needs.receivers.iter().any(|id| unit.key_of(id).is_none()) {
            // Its row was deleted between the statement that makes missing rows and the one that locks them.
            let message = "an instance was deleted while a message to it was stored".to_owned();
            return Err(BatchFailure { failure: ServerFailure::Transaction, is_unknown: false, message });
        }
        batch.iter_mut().for_each(|operation| operation.run(&mut unit));
        unit.finish();
        writes::write(session, &unit).await.map_err(|error| failed(error, true))?;
        Ok(std::mem::take(&mut unit.effects))
    }
}

fn continue_with(todo: &mut VecDeque<Vec<Box<dyn Operation>>>, batch: Vec<Box<dyn Operation>>) {
    todo.push_front(batch);
}
