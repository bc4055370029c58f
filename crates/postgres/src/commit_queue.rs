//! The queue of operations from callers to the commit lane, and those of them that wait to be tried again.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use everturn_provider::ProviderError;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout_at};

use crate::operation::{Operation, PendingOperation, Verb};

/// How long an operation is tried that no caller waits for.
const OWED_FOR: Duration = Duration::from_secs(60);

/// The queue of operations from callers to the lane.
#[derive(Default)]
pub(crate) struct CommitQueue {
    state: Mutex<CommitQueueState>,
    arrived: Notify,
}

#[derive(Default)]
struct CommitQueueState {
    waiting: VecDeque<QueuedOperation>,
    /// Operations that failed, with the time from which on they are tried again.
    failed: VecDeque<(Instant, QueuedOperation)>,
    /// The last batch was of operations that had failed: new ones are next.
    was_retry: bool,
    is_closed: bool,
}

/// An operation, and how it fared so far.
pub(crate) struct QueuedOperation {
    pub(crate) operation: Box<dyn Operation>,
    /// How often it was tried in vain.
    pub(crate) failures: u32,
    /// It has a transaction of its own, so that the others do not fail with it.
    pub(crate) is_alone: bool,
}

/// The queue accepts no more calls.
#[derive(Debug)]
pub(crate) struct LaneClosed;

impl CommitQueueState {
    /// The next batch: new operations and those that failed in turn, so that neither wait for all of the others.
    fn take(&mut self, operations_max: usize, bytes_max: usize) -> Vec<QueuedOperation> {
        let mut batch = self.take_alone();
        if batch.is_empty() {
            let now = Instant::now();
            let (ready, later) = std::mem::take(&mut self.failed)
                .into_iter()
                .partition::<VecDeque<_>, _>(|(at, failed)| *at <= now && !failed.is_alone);
            self.failed = later;
            ready.into_iter().rev().for_each(|(_, failed)| self.waiting.push_front(failed));
            self.was_retry = false;
            let mut bytes = 0;
            while let Some(next) = self.waiting.front() {
                bytes += next.operation.payload_bytes();
                if batch.len() >= operations_max || (bytes > bytes_max && !batch.is_empty()) {
                    break;
                }
                batch.extend(self.waiting.pop_front());
            }
        }
        batch
    }

    /// The next operation that failed and is tried alone, unless new ones must come first.
    fn take_alone(&mut self) -> Vec<QueuedOperation> {
        if self.was_retry && !self.waiting.is_empty() {
            return Vec::new();
        }
        let now = Instant::now();
        let place = self.failed.iter().position(|(at, failed)| *at <= now && failed.is_alone);
        let taken = place.and_then(|place| self.failed.remove(place));
        self.was_retry = taken.is_some();
        taken.map(|(_, failed)| failed).into_iter().collect()
    }

    fn next_try(&self) -> Option<Instant> {
        self.failed.iter().map(|(at, _)| *at).min()
    }
}

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
        state.waiting.push_back(QueuedOperation { operation, failures: 0, is_alone: false });
        drop(state);
        self.arrived.notify_one();
        Ok(())
    }

    /// Queues operations that failed, behind those that failed before them, to be tried again after `pause`. Accepted even when
    /// the queue is closed.
    pub(crate) fn try_again(&self, operations: Vec<QueuedOperation>, pause: Duration) {
        let at = Instant::now() + pause;
        self.state().failed.extend(operations.into_iter().map(|operation| (at, operation)));
    }

    /// Accepts no more calls; the lane ends after the operations that are queued.
    pub(crate) fn close(&self) {
        self.state().is_closed = true;
        self.arrived.notify_one();
    }

    /// The lane has ended: returns the operations that it leaves.
    pub(crate) fn end(&self) -> Vec<Box<dyn Operation>> {
        let mut state = self.state();
        state.is_closed = true;
        let failed: Vec<_> = state.failed.drain(..).map(|(_, failed)| failed).collect();
        let left = state.waiting.drain(..).chain(failed);
        left.map(|queued| queued.operation).collect()
    }

    /// The next batch; `None` if the queue is closed and empty.
    pub(crate) async fn next_batch(
        &self,
        operations_max: usize,
        bytes_max: usize,
    ) -> Option<Vec<QueuedOperation>> {
        loop {
            let next_try = {
                let mut state = self.state();
                let batch = state.take(operations_max, bytes_max);
                if !batch.is_empty() {
                    return Some(batch);
                }
                let next_try = state.next_try();
                if state.is_closed && next_try.is_none() {
                    return None;
                }
                next_try
            };
            match next_try {
                // Either way there is something to look at.
                Some(at) => drop(timeout_at(at, self.arrived.notified()).await),
                None => self.arrived.notified().await,
            }
        }
    }
}
