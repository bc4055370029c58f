//! What the engine asks of its storage.
//!
//! [`Store`] has one method per verb. Each verb takes a request struct from the file of the same name, so that a later
//! option changes no signature. Providers keep one file per verb, too: a search for `commit_turn` finds the trait, every
//! provider, its caller, its metric and its conformance tests.
//!
//! Ways into and out of this trait:
//!
//! - [`store_of`](crate::store_of) makes a store of any [`Provider`](crate::Provider): the provider's own, or an adapter.
//! - Every `Store` answers the plain verbs of [`Provider`](crate::Provider) through one blanket implementation.
//! - [`StoreLayer`] wraps a store: a wrapper lists only the verbs that it changes.

mod abandon_turn;
mod commit_step;
mod commit_turn;
mod fetch_turns;
mod fetch_work;
mod handlers;
mod identity;
mod layer;
mod messages;
mod raw_writes;
mod reads;
mod renew;
mod session_places;
mod settle_work;
mod submit;
mod sweep;
mod warm;

use std::any::Any;
use std::collections::HashMap;

use async_trait::async_trait;
use everturn_core::limits::DEFAULT_PAYLOAD_BYTES_MAX;
use everturn_core::{OrchestrationStatus, SystemStats};

pub use abandon_turn::TurnAbandon;
pub use commit_step::{EndedWork, NextWork, StepAnswer, StepCommit, StepDecline};
pub use commit_turn::{CheckIn, ExecutionUpdate, TurnCommit};
pub use fetch_turns::{FetchedTurn, TurnFetch};
pub use fetch_work::{FetchedWork, WorkFetch};
pub use handlers::{HandlerKey, HandlerKind, HandlerView};
pub use identity::StoreIdentity;
pub use layer::StoreLayer;
pub use messages::{MessageNotes, NewMessage, NewWork, ParentLink};
pub use raw_writes::RawWrites;
pub use reads::{CustomStatus, ExecutionRead, OrchestrationName, StoredExecution};
pub use renew::{LockKind, LockRenewal, Renewal, Renewed, SessionRenewal};
pub use session_places::{SessionPlace, SessionPlaces, SessionRoom};
pub use settle_work::{Settlement, SettlementKind};
pub use submit::{Receipt, Submission};
pub use sweep::{DeadLetter, Sweep, Swept};
pub use warm::{LentInstance, Stamp, WarmView};

use crate::error::ProviderError;
use crate::management::ProviderAdmin;
use crate::watch::InstanceWatch;

/// What a store may be able to do beyond the plain contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Feature {
    /// Keeps a [`Stamp`] per instance, so that a runtime can keep instances in memory between their turns.
    WarmInstances,
    /// Answers a submitted start with [`Receipt::Created`] or [`Receipt::Existing`], and a cancellation that was not kept
    /// with [`Receipt::Dropped`].
    StartReceipts,
    /// Keeps the [`MessageNotes`] of a message.
    MessageNotes,
    /// Dead-letters messages that have waited too long for a start of their instance.
    DeadLetters,
    /// Asks the [`SessionPlaces`] of a runtime when it assigns an activity, so that no session is claimed that the runtime
    /// cannot serve.
    SessionPlaces,
    /// Keeps work that one runtime lacks the handler for ready for runtimes that have it.
    HandlerLookup,
    /// Judges a renewal by the moment at which it was called: one that was called in time extends the lock however late it
    /// is executed and answered, unless another holder took the lock over meanwhile.
    LateRenewals,
    /// Commits a turn together with the activities whose outcomes it was taken on: [`Store::commit_step`].
    FusedSteps,
}

impl Feature {
    /// All features that there are.
    pub const ALL: &'static [Self] = &[
        Self::WarmInstances,
        Self::StartReceipts,
        Self::MessageNotes,
        Self::DeadLetters,
        Self::SessionPlaces,
        Self::HandlerLookup,
        Self::LateRenewals,
        Self::FusedSteps,
    ];
}

/// The bounds of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreLimits {
    /// The largest payload that client and runtime let through, in UTF-8 bytes.
    pub payload_bytes_max: usize,
}

impl StoreLimits {
    /// The bounds of a store that takes payloads of this size.
    pub fn new(payload_bytes_max: usize) -> Self {
        Self { payload_bytes_max }
    }
}

impl Default for StoreLimits {
    fn default() -> Self {
        Self::new(DEFAULT_PAYLOAD_BYTES_MAX)
    }
}

/// Storage, two queues with locks, and nothing else: a store never decides what an orchestration does.
///
/// Any returned future may be dropped at any await; the store is then as before the call or as after it. Work that was
/// assigned to a dropped fetch returns to its queue.
#[async_trait]
pub trait Store: Any + Send + Sync {
    /// Name of the store, for logs.
    fn name(&self) -> &str;

    /// Version of the store, for logs.
    fn version(&self) -> &str;

    /// Which data this store reads and writes; `None` if other stores of this process may share it unknown to this one.
    fn identity(&self) -> Option<StoreIdentity> {
        None
    }

    /// Whether this store has a feature. A request may use the feature's fields only if it has.
    fn supports(&self, _feature: Feature) -> bool {
        false
    }

    /// The store's bounds.
    fn limits(&self) -> StoreLimits {
        StoreLimits::default()
    }

    /// The store's time in milliseconds since the epoch: visibility, lock expiry and fire times go by it.
    fn now_ms(&self) -> u64;

    /// Locks up to [`turns_max`](TurnFetch::turns_max) instances, those with the oldest visible messages first, and
    /// returns each with its visible messages. A warm instance comes without its history. Waits up to
    /// [`poll_timeout`](TurnFetch::poll_timeout) for the first one.
    async fn fetch_turns(&self, fetch: &TurnFetch) -> Result<Vec<FetchedTurn>, ProviderError>;

    /// Writes everything a turn decided, deletes the fetched messages and releases the lock; or changes nothing.
    ///
    /// Fails with [`ProviderError::lock_lost`] if the token is unknown or expired, and with
    /// [`ProviderError::history_moved`] if the turn builds on another commit than the stored one.
    async fn commit_turn(&self, commit: &TurnCommit) -> Result<(), ProviderError>;

    /// Commits a fused step: removes the ended activities, writes everything the turn decided, and locks the next activities
    /// for their workers; or declines and writes nothing. Declines unless the stamp is the one that the turn builds on, the
    /// instance is neither locked nor delayed, none of its messages is visible, and every ended activity is locked by its
    /// token. A call that repeats a committed one is answered as committed, with the activities that are still locked for its
    /// workers.
    async fn commit_step(&self, step: &StepCommit) -> Result<StepAnswer, ProviderError> {
        let _ = step;
        Ok(StepAnswer::Declined(StepDecline::NotSupported))
    }

    /// Releases the lock of an instance, which can be fetched again now or after a delay.
    ///
    /// Fails with [`ProviderError::lock_lost`] if the token is unknown or expired.
    async fn abandon_turn(&self, abandon: &TurnAbandon) -> Result<(), ProviderError>;

    /// Locks up to [`work_max`](WorkFetch::work_max) activities that this worker may take, the oldest first. Waits up to
    /// [`poll_timeout`](WorkFetch::poll_timeout) for the first one.
    async fn fetch_work(&self, fetch: &WorkFetch) -> Result<Vec<FetchedWork>, ProviderError>;

    /// Ends a fetched activity: deletes it and enqueues its completion, or returns it to the queue.
    ///
    /// Fails with [`ProviderError::lock_lost`] if the token is unknown or expired, or the activity is gone; then nothing
    /// is enqueued.
    async fn settle_work(&self, settlement: &Settlement) -> Result<(), ProviderError>;

    /// Extends locks and session leases; one answer per lock, in order.
    async fn renew(&self, renewal: &Renewal) -> Result<Renewed, ProviderError>;

    /// Puts what clients send into the orchestrator queue: all messages of a submission or none; one receipt each.
    /// Never creates an instance. A cancellation is kept only if its instance exists or a start of it is queued.
    async fn submit(&self, submission: &Submission) -> Result<Vec<Receipt>, ProviderError>;

    /// Removes what has expired and is not needed any more: sessions without queued activities, messages for instances that
    /// were never started.
    async fn sweep(&self, sweep: &Sweep) -> Result<Swept, ProviderError>;

    /// The status of an instance as of its last committed turn.
    async fn read_status(&self, instance: &str) -> Result<OrchestrationStatus, ProviderError>;

    /// One execution with its history; no events for an unknown one. Takes no lock.
    async fn read_execution(&self, read: &ExecutionRead) -> Result<StoredExecution, ProviderError>;

    /// The custom status of an instance, if its version is greater than `last_seen_version`.
    async fn read_custom_status(
        &self,
        instance: &str,
        last_seen_version: u64,
    ) -> Result<Option<CustomStatus>, ProviderError>;

    /// A key of the instance's key-value store as of the last committed turn.
    async fn read_kv_value(&self, instance: &str, key: &str) -> Result<Option<String>, ProviderError>;

    /// All keys of the instance's key-value store as of the last committed turn.
    async fn read_kv_values(&self, instance: &str) -> Result<HashMap<String, String>, ProviderError>;

    /// Size of the instance's current execution; `None` for an unknown instance.
    async fn read_stats(&self, instance: &str) -> Result<Option<SystemStats>, ProviderError>;

    /// Name and version of an instance's orchestration; `None` for an unknown instance.
    async fn read_orchestration_name(
        &self,
        instance: &str,
    ) -> Result<Option<OrchestrationName>, ProviderError>;

    /// A watch that fires when clients can see a change of this instance: an outcome, a custom status, a value of its
    /// key-value store, its deletion. May also fire spuriously.
    fn watch(&self, instance: &str) -> InstanceWatch {
        let _ = instance;
        InstanceWatch::polling()
    }

    /// The management side of this store, if it has one.
    fn admin(&self) -> Option<&dyn ProviderAdmin> {
        None
    }

    /// Writes that bypass the engine, for tests and tools; `None` if this store has none.
    fn raw_writes(&self) -> Option<&dyn RawWrites> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::Feature;

    /// The feature that was added after this one. A new feature does not compile before it has its place here.
    fn next(feature: Feature) -> Option<Feature> {
        match feature {
            Feature::WarmInstances => Some(Feature::StartReceipts),
            Feature::StartReceipts => Some(Feature::MessageNotes),
            Feature::MessageNotes => Some(Feature::DeadLetters),
            Feature::DeadLetters => Some(Feature::SessionPlaces),
            Feature::SessionPlaces => Some(Feature::HandlerLookup),
            Feature::HandlerLookup => Some(Feature::LateRenewals),
            Feature::LateRenewals => Some(Feature::FusedSteps),
            Feature::FusedSteps => None,
        }
    }

    #[test]
    fn the_list_of_features_is_complete() {
        let all: Vec<_> = std::iter::successors(Some(Feature::WarmInstances), |last| next(*last)).collect();
        assert_eq!(all, Feature::ALL);
    }
}
