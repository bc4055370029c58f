//! What becomes of the batches of a [`FaultyStore`](super::FaultyStore) in memory.

use std::fmt;

/// Decides which batches are lost.
pub trait BatchFates: fmt::Debug + Send + Sync {
    /// What is to become of the batch that opens now.
    fn next(&self) -> BatchFate;

    /// A batch was committed in which so many turns were fetched and committed.
    fn committed(&self, _whole_turns: usize) {}

    /// A batch was lost. Called before any caller gets an answer.
    fn lost(&self, batch: &LostBatch);
}

/// What becomes of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchFate {
    /// Everything in it happened.
    Committed,
    /// Nothing in it happened. Turns that were answered early have void locks.
    Lost(Unanswered),
}

/// What becomes of calls that were not answered when their batch was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unanswered {
    /// They run again, in a later batch.
    RunAgain,
    /// They fail with a retryable error.
    Fail,
}

/// A batch of which nothing happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostBatch {
    /// How many calls had changed something in it.
    pub operations: usize,
    /// The lock tokens of turns that had begun before the batch was to be committed. They are void.
    pub early_tokens: Vec<String>,
}

/// No batch is lost.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoLoss;

impl BatchFates for NoLoss {
    fn next(&self) -> BatchFate {
        BatchFate::Committed
    }

    fn lost(&self, _batch: &LostBatch) {}
}
