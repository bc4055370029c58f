//! What the writer and the provider's callers both see.

use std::sync::atomic::{AtomicBool, AtomicU64};

use crate::watches::Watches;

/// What the writer and the provider's callers both see.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) watches: Watches,
    /// Transactions that wrote something and were committed.
    pub(crate) commits: AtomicU64,
    /// The writer may sleep for good: nobody waits for work.
    pub(crate) dozes: AtomicBool,
}
