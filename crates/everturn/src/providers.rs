//! Storage: the providers of Everturn, and the traits for providers of your own.
//!
//! [`Provider`] is the plain contract: one item at a time, easy to implement. [`store::Store`] is what the engine calls; a
//! provider can implement it instead for speed. [`store_of`] makes a store of any provider.

pub mod instrumented;
mod open;

pub use open::open;

/// Errors of providers.
pub mod error {
    pub use everturn_provider::ProviderError;
}

/// The provider that keeps its data in memory, for tests.
pub mod memory {
    pub use everturn_provider::MemoryProvider;
}

/// The embedded provider: one SQLite file, no server.
#[cfg(feature = "sqlite")]
pub mod sqlite {
    pub use everturn_sqlite::{SqliteError, SqliteOptions, SqliteProvider, Synchronous};
}

/// The provider for several machines: a PostgreSQL database.
#[cfg(feature = "postgres")]
pub mod postgres {
    pub use everturn_postgres::{PostgresError, PostgresOptions, PostgresProvider};
}

pub use everturn_provider::{management, store};

pub use everturn_core::{KvEntry, SemverRange, WorkItem, current_build_version};
pub use everturn_provider::management::{
    DeleteInstanceResult, ExecutionInfo, InstanceFilter, InstanceInfo, InstanceTree, PruneOptions,
    PruneResult, QueueDepths, SystemMetrics,
};
pub use everturn_provider::{
    Clock, DispatcherCapabilityFilter, ExecutionMetadata, InstanceWatch, ManualClock, OrchestrationItem,
    Provider, ProviderAdmin, ProviderError, ScheduledActivityIdentifier, SessionFetchConfig, SystemClock,
    TagFilter, status_of, store_of,
};
