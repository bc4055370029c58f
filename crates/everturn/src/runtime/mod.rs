//! Running orchestrations and activities: [`Runtime`], its [`RuntimeOptions`], the [registries](registry) and
//! [observability].

mod activity_context;
mod activity_handler;
mod catch_panic;
mod deadline;
mod deferred_drop;
mod descriptor;
mod dispatcher;
mod gauges;
mod lock_keeper;
mod node;
pub mod observability;
mod options;
mod orchestration_handler;
mod pacing;
mod poison;
mod registered_handlers;
pub mod registry;
mod retrying;
#[expect(clippy::module_inception, reason = "it holds `Runtime`")]
mod runtime;
mod session_budget;
mod session_leases;
mod shared_by_store;
mod shutdown;
mod steps;
mod sweeper;
mod system_activities;
mod uncounted_attempts;
mod unfinished_work;
mod unregistered;
mod warm_cache;
mod worker;

/// The limits on what orchestrations and activities may use.
pub mod limits {
    pub use everturn_core::limits::{
        MAX_CUSTOM_STATUS_BYTES, MAX_KV_KEYS, MAX_KV_VALUE_BYTES, MAX_NAME_BYTES, MAX_TAG_NAME_BYTES,
        MAX_WORKER_TAGS,
    };
}

pub use activity_context::ActivityContext;
pub use activity_handler::{ActivityHandler, FnActivity};
pub use descriptor::OrchestrationDescriptor;
pub use everturn_core::{OrchestrationHandler, OrchestrationStatus, kind_of};
pub use observability::{LogFormat, ObservabilityConfig};
pub use options::{RuntimeOptions, ShadowReplay, UnregisteredBackoffConfig};
pub use orchestration_handler::FnOrchestration;
pub use registry::{OrchestrationRegistry, OrchestrationRegistryBuilder, VersionPolicy};
pub use runtime::Runtime;
