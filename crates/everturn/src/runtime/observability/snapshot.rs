//! The counters of a runtime.

use std::sync::atomic::{AtomicU64, Ordering};

/// Names each counter once, for the public snapshot and for the atomics behind it.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The counters of a runtime, for tests and for applications without a metrics recorder.
        #[derive(Debug, Default, Clone, PartialEq, Eq)]
        pub struct MetricsSnapshot {
            $($(#[$doc])* pub $name: u64,)*
        }

        /// The counters behind a [`MetricsSnapshot`].
        #[derive(Debug, Default)]
        pub(super) struct MetricCounters {
            $(pub(super) $name: AtomicU64,)*
        }

        impl MetricCounters {
            pub(super) fn snapshot(&self) -> MetricsSnapshot {
                MetricsSnapshot { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    /// Executions started.
    orch_starts,
    /// Executions that ended: completed, failed or continued as new.
    orch_completions,
    /// Executions that failed.
    orch_failures,
    /// Failures by the user's code.
    orch_application_errors,
    /// Failures by the engine or the store.
    orch_infrastructure_errors,
    /// Failures because the code does not match the history.
    orch_configuration_errors,
    /// Instances that failed because their messages were tried too often.
    orch_poison,
    /// Activities that returned `Ok`.
    activity_success,
    /// Activities that returned `Err` or panicked.
    activity_app_errors,
    /// Activities that failed because of the engine or the store.
    activity_infra_errors,
    /// Activities that failed because of their configuration.
    activity_config_errors,
    /// Activities that failed because they were tried too often.
    activity_poison,
    /// Turns fetched by dispatchers.
    orch_dispatcher_items_fetched,
    /// Activities fetched by workers.
    worker_dispatcher_items_fetched,
    /// Executions that continued as new.
    orch_continue_as_new,
    /// Calls of sub-orchestrations.
    suborchestration_calls,
    /// Operations of the store that failed. A lost lock is an answer, not a failure.
    provider_errors,
    /// Messages for instances that were never started.
    messages_dead_lettered,
}

/// Increments a counter.
pub(super) fn bump(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
