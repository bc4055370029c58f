//! A runtime with a client on the same store, and waits for conditions.

use std::sync::Arc;
use std::time::Duration;

use everturn::providers::Provider;
use everturn::runtime::registry::{ActivityRegistry, OrchestrationRegistry};
use everturn::runtime::{Runtime, UnregisteredBackoffConfig};
use everturn::{Client, ErrorDetails, Event, OrchestrationStatus, RuntimeOptions};
use everturn_proof::is_stress_run;
use everturn_provider::MemoryProvider;

/// Longer than any condition in these tests takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn memory() -> Arc<MemoryProvider> {
    Arc::new(MemoryProvider::new())
}

/// The shortest lock timeout that a runtime accepts.
const STRESS_LOCK: Duration = Duration::from_millis(200);
/// Renewal buffer for that lock timeout.
const STRESS_BUFFER: Duration = Duration::from_millis(100);

/// Applies the stress settings to every option that a test leaves at its default: no warm instances, shortest locks.
/// Session leases keep their defaults.
fn with_stress_settings(options: RuntimeOptions) -> RuntimeOptions {
    if !is_stress_run() {
        return options;
    }
    let usual = RuntimeOptions::default();
    // An option that the test sets is what the test is about.
    let lock = |(set, buffer), (usual, _)| {
        if set == usual { (STRESS_LOCK, STRESS_BUFFER) } else { (set, buffer) }
    };
    let of_instances = |options: &RuntimeOptions| {
        (options.orchestrator_lock_timeout, options.orchestrator_lock_renewal_buffer)
    };
    let of_work =
        |options: &RuntimeOptions| (options.worker_lock_timeout, options.worker_lock_renewal_buffer);
    let (orchestrator_lock_timeout, orchestrator_lock_renewal_buffer) =
        lock(of_instances(&options), of_instances(&usual));
    let (worker_lock_timeout, worker_lock_renewal_buffer) = lock(of_work(&options), of_work(&usual));
    let keeps_usual = options.warm_instances_max == usual.warm_instances_max;
    RuntimeOptions {
        warm_instances_max: if keeps_usual { 0 } else { options.warm_instances_max },
        orchestrator_lock_timeout,
        orchestrator_lock_renewal_buffer,
        worker_lock_timeout,
        worker_lock_renewal_buffer,
        ..options
    }
}

/// Options with short waits.
pub(crate) fn quick() -> RuntimeOptions {
    RuntimeOptions {
        orchestration_concurrency: 2,
        worker_concurrency: 4,
        dispatcher_min_poll_interval: Duration::from_millis(1),
        unregistered_backoff: UnregisteredBackoffConfig {
            base_delay: Duration::from_millis(5),
            max_delay: Duration::from_millis(20),
        },
        ..Default::default()
    }
}

pub(crate) struct NodeUnderTest {
    pub(crate) client: Client,
    pub(crate) runtime: Arc<Runtime>,
}

impl NodeUnderTest {
    pub(crate) async fn start(
        store: Arc<dyn Provider>,
        activities: ActivityRegistry,
        orchestrations: OrchestrationRegistry,
        options: RuntimeOptions,
    ) -> Self {
        let client = Client::new(Arc::clone(&store));
        let options = with_stress_settings(options);
        let runtime = Runtime::start_with_options(store, activities, orchestrations, options).await;
        Self { client, runtime }
    }

    pub(crate) async fn end_of(&self, instance: &str) -> OrchestrationStatus {
        self.client.wait_for_orchestration(instance, PATIENCE).await.unwrap()
    }

    pub(crate) async fn output_of(&self, instance: &str) -> String {
        match self.end_of(instance).await {
            OrchestrationStatus::Completed { output, .. } => output,
            other => panic!("{instance} did not complete: {other:?}"),
        }
    }

    pub(crate) async fn failure_of(&self, instance: &str) -> ErrorDetails {
        match self.end_of(instance).await {
            OrchestrationStatus::Failed { details, .. } => details,
            other => panic!("{instance} did not fail: {other:?}"),
        }
    }

    /// Waits until the instance's first turn is committed.
    pub(crate) async fn committed(&self, instance: &str) {
        until("the first turn is committed", async || !self.history(instance, 1).await.is_empty()).await;
    }

    pub(crate) async fn history(&self, instance: &str, execution_id: u64) -> Vec<Event> {
        self.client.read_execution_history(instance, execution_id).await.unwrap()
    }
}

/// Waits until a condition holds.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let waited = tokio::time::timeout(PATIENCE, async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    assert!(waited.await.is_ok(), "timed out waiting until {what}");
}

impl NodeUnderTest {
    /// Waits until the instance shows this custom status.
    pub(crate) async fn until_status(&self, instance: &str, wanted: &str) {
        let mut seen = 0;
        loop {
            let change =
                self.client.wait_for_status_change(instance, seen, Duration::from_millis(10), PATIENCE).await;
            match change.unwrap_or_else(|error| panic!("{instance} never showed '{wanted}': {error}")) {
                OrchestrationStatus::Running { custom_status, custom_status_version } => {
                    if custom_status.as_deref() == Some(wanted) {
                        return;
                    }
                    seen = custom_status_version;
                }
                other => panic!("{instance} ended before it showed '{wanted}': {other:?}"),
            }
        }
    }
}

/// A registry with one activity, which returns its input.
pub(crate) fn echo() -> ActivityRegistry {
    echo_as("Echo")
}

/// The same under another name.
pub(crate) fn echo_as(name: &str) -> ActivityRegistry {
    ActivityRegistry::builder().register(name, |_ctx, input: String| async move { Ok(input) }).build()
}
