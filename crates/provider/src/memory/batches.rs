//! What becomes of batches, for whoever makes a provider that works in them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::MemoryProvider;

/// Decides what becomes of each batch of a [`MemoryProvider`]: a testing aid.
pub trait BatchFates: fmt::Debug + Send + Sync {
    /// What is to become of the batch that opens now.
    fn next(&self) -> BatchFate;

    /// A batch was committed, in which so many turns were begun and committed.
    fn committed(&self, _whole_turns: usize) {}

    /// A batch was lost. Told before anybody can notice.
    fn lost(&self, batch: &LostBatch);
}

/// What becomes of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchFate {
    /// Everything in it happened.
    Committed,
    /// Nothing in it happened. Those who were not answered are told what is said here; those who were answered early
    /// find that their lock is void.
    Lost(Unanswered),
}

/// What becomes of calls whose batch was lost before they were answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unanswered {
    /// They are made again, in a later batch.
    RunAgain,
    /// They fail with an error that trying again may help.
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

/// How a provider works in batches.
#[derive(Debug)]
pub(super) struct Batches {
    pub(super) window: Duration,
    pub(super) fates: Arc<dyn BatchFates>,
}

impl MemoryProvider {
    /// Commits calls together, as a store does for which a commit is dear: a testing aid.
    ///
    /// The first call that changes something opens a batch, which is committed `window` later; of no time at all
    /// everybody else who is ready still joins. Answers are given after the commit, except that a turn of an instance
    /// that its runtime holds in memory may begin before. A batch can be lost: `fates` says which.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::time::Duration;
    /// use everturn_provider::MemoryProvider;
    /// use everturn_provider::memory::NoLoss;
    ///
    /// let provider = MemoryProvider::new().with_batches(Duration::from_millis(1), Arc::new(NoLoss));
    /// ```
    #[must_use]
    pub fn with_batches(mut self, window: Duration, fates: Arc<dyn BatchFates>) -> Self {
        self.batches = Some(Batches { window, fates });
        self
    }
}
