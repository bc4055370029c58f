//! What a runtime counted so far.

use std::sync::atomic::{AtomicU64, Ordering};

/// One list names each counter once: the public figure and the atomic behind it.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What a runtime counted so far, for tests and for applications without a metrics recorder.
        #[derive(Debug, Default, Clone, PartialEq, Eq)]
        pub struct MetricsSnapshot {
            $($(#[$doc])* pub $name: u64,)*
        }

        /// The counters behind a [`MetricsSnapshot`].
        #[derive(Debug, Default)]
        pub(super) struct Counters {
            $(pub(super) $name: AtomicU64,)*
        }

        impl Counters {
            pub(super) fn snapshot(&self) -> MetricsSnapshot {
                MetricsSnapshot { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    /// Executions begun.
    orch_starts,
    /// Executions ended, however they ended.
    orch_completions,
    /// Executions failed.
    orch_failures,
    /// Of those, by the user's code.
    orch_application_errors,
    /// Of those, by the engine or its store.
    orch_infrastructure_errors,
    /// Of those, because the code does not fit the history.
    orch_configuration_errors,
    /// Instances given up as poison.
    orch_poison,
    /// Activities that returned `Ok`.
    activity_success,
    /// Activities that returned `Err` or panicked.
    activity_app_errors,
    /// Activities that the engine or its store failed.
    activity_infra_errors,
    /// Activities that failed for their set-up.
    activity_config_errors,
    /// Activities given up as poison.
    activity_poison,
    /// Batches taken by orchestration dispatchers.
    orch_dispatcher_items_fetched,
    /// Activities taken by workers.
    worker_dispatcher_items_fetched,
    /// Executions continued as new.
    orch_continue_as_new,
    /// Calls of sub-orchestrations.
    suborchestration_calls,
    /// Errors of the provider.
    provider_errors,
}

/// Counts one occurrence.
pub(super) fn bump(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
