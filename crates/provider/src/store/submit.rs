//! Request and answer of [`Store::submit`](super::Store::submit).

use super::messages::NewMessage;

/// What a client sends: starts, signals, queue messages, cancellations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Submission {
    /// The messages; all of them are enqueued or none.
    pub messages: Vec<NewMessage>,
}

impl Submission {
    /// One message.
    pub fn of(message: impl Into<NewMessage>) -> Self {
        Self { messages: vec![message.into()] }
    }

    /// Several messages.
    pub fn of_all(messages: Vec<NewMessage>) -> Self {
        Self { messages }
    }
}

/// What became of a submitted message.
///
/// ```
/// # use everturn_provider::{MemoryProvider, ProviderError};
/// use everturn_provider::store::{Receipt, Store, Submission};
/// # use everturn_core::WorkItem;
/// # fn start(instance: &str) -> WorkItem {
/// #     WorkItem::StartOrchestration {
/// #         instance: instance.into(), orchestration: "order".into(), input: String::new(), version: None,
/// #         parent_instance: None, parent_id: None, parent_execution_id: None, execution_id: 1,
/// #     }
/// # }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), ProviderError> {
/// let store = MemoryProvider::new();
/// assert_eq!(store.submit(&Submission::of(start("order-42"))).await?, [Receipt::Created]);
/// assert_eq!(store.submit(&Submission::of(start("order-42"))).await?, [Receipt::Existing]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Receipt {
    /// It is in the queue. A store without [`Feature::StartReceipts`](super::Feature::StartReceipts) answers this to
    /// starts, too.
    Queued,
    /// A start of a new instance: no instance had this id, and no other start of it was queued.
    Created,
    /// A start for an id that is taken, by an instance or by a start that was queued before. The runtime ignores it.
    Existing,
    /// A cancellation for an id that no instance has and of which no start is queued: it was not kept, so that it does
    /// not cancel an instance that gets this id later.
    Dropped,
}
