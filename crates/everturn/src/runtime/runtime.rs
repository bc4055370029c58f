//! Starting and stopping a runtime.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use everturn_core::current_build_version;
use everturn_provider::Provider;
use everturn_provider::store::{ExecutionRead, Store};

use super::deferred_drop::{DeferredDropTask, deferred_drops};
use super::descriptor::OrchestrationDescriptor;
use super::dispatcher::execution_start::ExecutionStart;
use super::node::Node;
use super::observability::{MetricsSnapshot, ObservabilityHandle};
use super::options::RuntimeOptions;
use super::registry::{ActivityRegistry, OrchestrationRegistry};
use super::shutdown::RuntimeTasks;
use super::system_activities::with_system_activities;
use super::{dispatcher, gauges, session_leases, sweeper, worker};
use crate::providers::instrumented::InstrumentedProvider;

/// How long shutdown waits for work under way by default.
const DEFAULT_GRACE: Duration = Duration::from_secs(1);

/// Runs orchestrations and activities on a store until it is shut down.
///
/// Several runtimes may share one store, in one process or in several.
pub struct Runtime {
    /// `None` after shutdown, so that the store is released.
    node: Mutex<Option<Arc<Node>>>,
    observability: Option<ObservabilityHandle>,
    tasks: RuntimeTasks,
}

impl Runtime {
    /// Starts a runtime on an in-memory SQLite store, for experiments and tests. Its data is lost when it ends.
    #[cfg(feature = "sqlite")]
    pub async fn start(activities: ActivityRegistry, orchestrations: OrchestrationRegistry) -> Arc<Self> {
        #[expect(clippy::expect_used, reason = "the signature has no error, and memory is all this needs")]
        let store = everturn_sqlite::SqliteProvider::new_in_memory().await.expect("a store in memory opens");
        Self::start_with_store(Arc::new(store), activities, orchestrations).await
    }

    /// Starts a runtime with default options on `store`.
    pub async fn start_with_store(
        store: Arc<dyn Provider>,
        activities: ActivityRegistry,
        orchestrations: OrchestrationRegistry,
    ) -> Arc<Self> {
        Self::start_with_options(store, activities, orchestrations, RuntimeOptions::default()).await
    }

    /// Starts a runtime with `options` on `store`.
    ///
    /// # Panics
    /// If the options contradict each other, see [`RuntimeOptions::validate`].
    pub async fn start_with_options(
        store: Arc<dyn Provider>,
        activities: ActivityRegistry,
        orchestrations: OrchestrationRegistry,
        options: RuntimeOptions,
    ) -> Arc<Self> {
        options.validate();
        let activities = with_system_activities(&activities, &options.clock);
        tracing::info!(target: "everturn::runtime", version = %current_build_version(),
            provider = %store.name(), provider_version = %store.version(), "runtime starting");
        let observability = ObservabilityHandle::init(&options.observability)
            .inspect_err(
                |error| tracing::warn!(target: "everturn::runtime", %error, "preparing metrics failed; running without metrics"),
            )
            .ok();
        let metrics = observability.as_ref().map(|handle| Arc::clone(handle.metrics_provider()));
        let store: Arc<dyn Store> = Arc::new(InstrumentedProvider::new(store, metrics.clone()));
        let (deferred_drops, drop_task) = deferred_drops();
        let node = Arc::new(Node::new(store, activities, orchestrations, options, metrics, deferred_drops));
        tracing::info!(target: "everturn::runtime", supported_range = %node.supported_range_text(),
            runtime_id = %node.runtime_id, "replaying executions of these engine versions");
        let tasks = RuntimeTasks::new();
        start_background_tasks(&tasks, &node, drop_task);
        start_slots(&tasks, &node);
        Arc::new(Self { node: Mutex::new(Some(node)), observability, tasks })
    }

    /// Stops fetching, lets work under way finish for `timeout_ms` (1000 by default), aborts the rest, and returns when
    /// every task of this runtime has ended. Aborted work returns to its queue, and does not count as an attempt; if the
    /// store does not take it back within a second, it waits until its lock expires.
    ///
    /// May be called several times, also concurrently; the shortest timeout applies. With 0 it can run outside an async
    /// runtime.
    pub async fn shutdown(self: Arc<Self>, timeout_ms: Option<u64>) {
        let grace = timeout_ms.map_or(DEFAULT_GRACE, Duration::from_millis);
        self.tasks.end_slots(grace).await;
        if let Some(node) = self.node() {
            node.warm.close();
        }
        self.tasks.end_background().await;
        let node = self.node.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(node);
        if let Some(observability) = &self.observability {
            observability.shutdown().await;
        }
    }

    /// Name, version and parent of an instance; `None` if it is unknown, or after shutdown.
    pub async fn get_orchestration_descriptor(&self, instance: &str) -> Option<OrchestrationDescriptor> {
        let read = || {
            let (node, instance) = (self.node()?, instance.to_owned());
            Some(async move { node.store.read_execution(&ExecutionRead::latest(instance)).await.ok() })
        };
        let latest = self.tasks.run_short_task(read).await?;
        let start = latest.history.iter().find_map(ExecutionStart::from_event)?;
        let version = start.version_text().to_owned();
        let (parent_instance, parent_id) = start.parent.map(|parent| (parent.instance, parent.id)).unzip();
        Some(OrchestrationDescriptor { name: start.name, version, parent_instance, parent_id })
    }

    /// The counters of this runtime; `None` if it runs without metrics.
    pub fn metrics_snapshot(&self) -> Option<MetricsSnapshot> {
        self.observability.as_ref().map(ObservabilityHandle::metrics_snapshot)
    }

    /// The metrics of this runtime; `None` if it runs without metrics.
    pub fn observability_handle(&self) -> Option<&ObservabilityHandle> {
        self.observability.as_ref()
    }

    /// How many waiting instances are in memory, so that their next turn needs no replay; 0 after shutdown.
    pub fn warm_instances(&self) -> usize {
        self.node().map_or(0, |node| node.warm.len())
    }

    fn node(&self) -> Option<Arc<Node>> {
        self.node.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Starts the tasks that serve the slots.
fn start_background_tasks(tasks: &RuntimeTasks, node: &Arc<Node>, drop_task: DeferredDropTask) {
    tasks.spawn_until_stopped(drop_task.run(tasks.stop_background()));
    let (store, unfinished) = (Arc::clone(&node.store), node.unfinished.clone());
    tasks.spawn_until_stopped(unfinished.abandon_after(tasks.stop_background(), store));
    let (store, locks, uncounted) = (Arc::clone(&node.store), node.locks.clone(), node.uncounted.clone());
    tasks.spawn_background("lock renewal", move || locks.clone().run(Arc::clone(&store), uncounted.clone()));
    let (store, owners, options) = (Arc::clone(&node.store), node.session_owners(), node.options.clone());
    tasks.spawn_background("session lease", move || {
        session_leases::run(Arc::clone(&store), owners.clone(), options.clone())
    });
    let (store, metrics, options) = (Arc::clone(&node.store), node.metrics.clone(), node.options.clone());
    tasks.spawn_background("sweep", move || {
        sweeper::run(Arc::clone(&store), metrics.clone(), options.clone())
    });
    if let Some(metrics) = &node.metrics {
        let (store, metrics) = (Arc::clone(&node.store), Arc::clone(metrics));
        let every = node.options.observability.gauge_poll_interval;
        tasks.spawn_background("gauge", move || gauges::run(Arc::clone(&store), Arc::clone(&metrics), every));
    }
}

/// Starts the tasks that fetch and run work.
fn start_slots(tasks: &RuntimeTasks, node: &Arc<Node>) {
    for slot in 0..node.options.orchestration_concurrency {
        let (node, stop) = (Arc::clone(node), tasks.stop_fetching());
        tasks.spawn_slot(move || dispatcher::run_slot(Arc::clone(&node), slot, stop.clone()));
    }
    for slot in 0..node.options.worker_concurrency {
        let (node, stop, alive) = (Arc::clone(node), tasks.stop_fetching(), tasks.slot_alive());
        tasks.spawn_slot(move || worker::run_slot(Arc::clone(&node), slot, alive.clone(), stop.clone()));
    }
}
