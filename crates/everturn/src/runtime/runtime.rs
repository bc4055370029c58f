//! Starting and stopping a runtime.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use everturn_core::current_build_version;
use everturn_provider::Provider;

use super::descriptor::OrchestrationDescriptor;
use super::dispatcher::standing::{ParentLink, StartFacts, start_facts};
use super::graveyard::{Gravedigger, graveyard};
use super::node::Node;
use super::observability::{MetricsSnapshot, ObservabilityHandle};
use super::options::RuntimeOptions;
use super::registry::{ActivityRegistry, OrchestrationRegistry};
use super::shutdown::RuntimeTasks;
use super::system_activities::with_system_activities;
use super::{dispatcher, gauges, session_leases, worker};
use crate::providers::instrumented::InstrumentedProvider;

/// How long shutdown waits for work in hand unless told otherwise.
const DEFAULT_GRACE: Duration = Duration::from_secs(1);

/// Runs orchestrations and activities on a store, until it is shut down.
///
/// Several runtimes may share one store, in one process or in many.
pub struct Runtime {
    /// Gone after shutdown, so that nothing of the store is held any more.
    node: Mutex<Option<Arc<Node>>>,
    observability: Option<ObservabilityHandle>,
    tasks: RuntimeTasks,
}

impl Runtime {
    /// Starts a runtime on a store in memory, for trying things out: it forgets everything when it ends.
    #[cfg(feature = "sqlite")]
    pub async fn start(activities: ActivityRegistry, orchestrations: OrchestrationRegistry) -> Arc<Self> {
        #[expect(clippy::expect_used, reason = "the signature has no error, and memory is all this needs")]
        let store = everturn_sqlite::SqliteProvider::new_in_memory().await.expect("a store in memory opens");
        Self::start_with_store(Arc::new(store), activities, orchestrations).await
    }

    /// Starts a runtime with default options.
    pub async fn start_with_store(
        store: Arc<dyn Provider>,
        activities: ActivityRegistry,
        orchestrations: OrchestrationRegistry,
    ) -> Arc<Self> {
        Self::start_with_options(store, activities, orchestrations, RuntimeOptions::default()).await
    }

    /// Starts a runtime.
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
                |error| tracing::warn!(target: "everturn::runtime", %error, "running without metrics"),
            )
            .ok();
        let metrics = observability.as_ref().map(|handle| Arc::clone(handle.metrics_provider()));
        let store: Arc<dyn Provider> = Arc::new(InstrumentedProvider::new(store, metrics.clone()));
        if let Some(metrics) = &metrics {
            gauges::refresh(store.as_ref(), metrics).await;
        }
        let (graveyard, gravedigger) = graveyard();
        let node = Arc::new(Node::new(store, activities, orchestrations, options, metrics, graveyard));
        tracing::info!(target: "everturn::runtime", supported_range = %node.supported_range_text(),
            runtime_id = %node.runtime_id, "capability filter set");
        let tasks = RuntimeTasks::new();
        start_servants(&tasks, &node, gravedigger);
        start_slots(&tasks, &node);
        Arc::new(Self { node: Mutex::new(Some(node)), observability, tasks })
    }

    /// Stops fetching, lets work in hand finish for `timeout_ms` (1000 by default), aborts the rest, and returns when
    /// no task of this runtime is left. What was aborted is done again by whoever gets its lock next.
    ///
    /// May be called several times, also at the same time; the shortest wait rules. With 0 it needs no async runtime
    /// around it.
    pub async fn shutdown(self: Arc<Self>, timeout_ms: Option<u64>) {
        let grace = timeout_ms.map_or(DEFAULT_GRACE, Duration::from_millis);
        self.tasks.end_slots(grace).await;
        if let Some(node) = self.node() {
            node.warm.close();
        }
        self.tasks.end_servants().await;
        let node = self.node.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(node);
        if let Some(observability) = &self.observability {
            observability.shutdown().await;
        }
    }

    /// What an instance runs; `None` if it is unknown, or after shutdown.
    pub async fn get_orchestration_descriptor(&self, instance: &str) -> Option<OrchestrationDescriptor> {
        let read = || {
            let (node, instance) = (self.node()?, instance.to_owned());
            Some(async move { node.store.read(&instance).await.ok() })
        };
        let history = self.tasks.errand(read).await?;
        let StartFacts { name, version, parent } = history.iter().find_map(start_facts)?;
        let (parent_instance, parent_id) = match parent {
            Some(ParentLink { instance, id, .. }) => (Some(instance), Some(id)),
            None => (None, None),
        };
        Some(OrchestrationDescriptor { name, version, parent_instance, parent_id })
    }

    /// What was counted so far; `None` if this runtime counts nothing.
    pub fn metrics_snapshot(&self) -> Option<MetricsSnapshot> {
        self.observability.as_ref().map(ObservabilityHandle::metrics_snapshot)
    }

    /// What this runtime reports through; `None` if it counts nothing.
    pub fn observability_handle(&self) -> Option<&ObservabilityHandle> {
        self.observability.as_ref()
    }

    /// How many waiting instances are in memory now, so that their next turn needs no replay; 0 after shutdown.
    pub fn warm_instances(&self) -> usize {
        self.node().map_or(0, |node| node.warm.len())
    }

    fn node(&self) -> Option<Arc<Node>> {
        self.node.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Starts what serves the slots.
fn start_servants(tasks: &RuntimeTasks, node: &Arc<Node>, gravedigger: Gravedigger) {
    tasks.spawn_finisher(gravedigger.run(tasks.stop_serving()));
    let (store, locks) = (Arc::clone(&node.store), node.locks.clone());
    tasks.spawn_servant(move || locks.clone().run(Arc::clone(&store)));
    let (store, owners, options) = (Arc::clone(&node.store), node.session_owners(), node.options.clone());
    tasks.spawn_servant(move || session_leases::run(Arc::clone(&store), owners.clone(), options.clone()));
    if let Some(metrics) = &node.metrics {
        let (store, metrics) = (Arc::clone(&node.store), Arc::clone(metrics));
        let every = node.options.observability.gauge_poll_interval;
        tasks.spawn_servant(move || gauges::run(Arc::clone(&store), Arc::clone(&metrics), every));
    }
}

/// Starts what fetches and runs work.
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
