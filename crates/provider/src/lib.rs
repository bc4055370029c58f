//! The storage contract of Everturn.
//!
//! A [`Provider`] is storage, two queues with locks, and the checks that make a lock mean something. What it must do is
//! in the documentation of each method.
#![forbid(unsafe_code)]

mod clock;
#[doc(hidden)]
pub mod encoded;
mod error;
pub mod management;
pub mod memory;
mod plain_store;
mod plain_verbs;
mod provider;
pub mod store;
mod tags;
#[doc(hidden)]
pub mod testing;
mod types;
mod watch;

pub use clock::{Clock, ManualClock, SystemClock};
pub use error::ProviderError;
pub use management::ProviderAdmin;
pub use memory::MemoryProvider;
pub use plain_store::{status_of, store_of};
pub use provider::Provider;
pub use tags::TagFilter;
pub use types::{
    DispatcherCapabilityFilter, ExecutionMetadata, OrchestrationItem, ScheduledActivityIdentifier,
    SessionFetchConfig,
};
pub use watch::InstanceWatch;
