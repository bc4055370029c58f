//! Storage: the contract every provider keeps, and the providers that come with Everturn.

pub mod instrumented;

/// What a provider says when it cannot do what it was asked.
pub mod error {
    pub use everturn_provider::ProviderError;
}

/// The provider that keeps everything in memory, for tests.
pub mod memory {
    pub use everturn_provider::MemoryProvider;
}

/// The embedded provider: one SQLite file, no server.
#[cfg(feature = "sqlite")]
pub mod sqlite {
    pub use everturn_sqlite::{SqliteError, SqliteOptions, SqliteProvider, Synchronous};
}

pub use everturn_provider::management;

pub use everturn_core::{KvEntry, SemverRange, WorkItem, current_build_version};
pub use everturn_provider::management::{
    DeleteInstanceResult, ExecutionInfo, InstanceFilter, InstanceInfo, InstanceTree, PruneOptions,
    PruneResult, QueueDepths, SystemMetrics,
};
pub use everturn_provider::{
    CheckIn, Clock, DispatcherCapabilityFilter, ExecutionMetadata, FetchedTurn, InstanceWatch, LentInstance,
    LockKind, LockRenewal, ManualClock, OrchestrationItem, Provider, ProviderAdmin, ProviderError,
    ScheduledActivityIdentifier, SessionFetchConfig, Stamp, SystemClock, TagFilter, TurnCommit, WarmView,
    status_of,
};
