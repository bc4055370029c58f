//! The state that all tasks of one runtime share.

use std::sync::Arc;

use everturn_core::{SemverRange, WorkItem};
use everturn_provider::store::{Feature, FetchedWork, HandlerView, LockKind, Stamp, Store};
use everturn_provider::{Clock, DispatcherCapabilityFilter};
use tokio::sync::Semaphore;

use super::deferred_drop::DeferredDrops;
use super::lock_keeper::LockKeeper;
use super::observability::MetricsProvider;
use super::options::RuntimeOptions;
use super::registered_handlers::RegisteredHandlers;
use super::registry::{ActivityRegistry, OrchestrationRegistry};
use super::session_budget::SessionBudget;
use super::steps::{Steps, TakenWork};
use super::uncounted_attempts::UncountedAttempts;
use super::unfinished_work::UnfinishedWork;
use super::warm_cache::WarmCache;
use super::worker::running::RunningActivities;

/// The state that all tasks of one runtime share.
pub(crate) struct Node {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) orchestrations: OrchestrationRegistry,
    /// The user's activities and the built-in ones.
    pub(crate) activities: ActivityRegistry,
    /// What the store asks for handlers, if it does.
    pub(crate) handlers: Option<Arc<dyn HandlerView>>,
    pub(crate) options: RuntimeOptions,
    pub(crate) metrics: Option<Arc<MetricsProvider>>,
    /// The executions that this runtime can replay.
    pub(crate) filter: DispatcherCapabilityFilter,
    pub(crate) supported_range: SemverRange,
    pub(crate) locks: LockKeeper,
    pub(crate) unfinished: UnfinishedWork,
    pub(crate) uncounted: UncountedAttempts,
    pub(crate) warm: WarmCache,
    pub(crate) steps: Steps,
    /// How many turns may run the user's code at the same time.
    pub(crate) turn_slots: Semaphore,
    pub(crate) deferred_drops: DeferredDrops,
    pub(crate) running: RunningActivities,
    pub(crate) sessions: SessionBudget,
    pub(crate) runtime_id: String,
    /// Owner of this runtime's sessions if the node has no name. Random, and long enough to be unique.
    session_owner: String,
}

impl Node {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        activities: ActivityRegistry,
        orchestrations: OrchestrationRegistry,
        options: RuntimeOptions,
        metrics: Option<Arc<MetricsProvider>>,
        deferred_drops: DeferredDrops,
    ) -> Self {
        let supported_range =
            options.supported_replay_versions.clone().unwrap_or_else(SemverRange::default_for_current_build);
        let handlers = store.supports(Feature::HandlerLookup).then(|| {
            let (orchestrations, activities) = (orchestrations.clone(), activities.clone());
            Arc::new(RegisteredHandlers { orchestrations, activities }) as Arc<dyn HandlerView>
        });
        Self {
            running: RunningActivities::on(store.identity()),
            uncounted: UncountedAttempts::on(store.identity()),
            store,
            orchestrations,
            activities,
            handlers,
            metrics,
            filter: DispatcherCapabilityFilter { supported_engine_versions: vec![supported_range.clone()] },
            supported_range,
            locks: LockKeeper::default(),
            unfinished: UnfinishedWork::default(),
            steps: Steps::default(),
            turn_slots: Semaphore::new(options.orchestration_concurrency.min(Semaphore::MAX_PERMITS)),
            warm: WarmCache::new(options.warm_instances_max, options.warm_bytes_max),
            deferred_drops,
            sessions: SessionBudget::new(options.max_sessions_per_runtime),
            runtime_id: format!("{:04x}", options.clock.random_u128() as u16),
            session_owner: format!("{:032x}", options.clock.random_u128()),
            options,
        }
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        self.options.clock.as_ref()
    }

    /// Whether this runtime has the handler of an activity.
    pub(crate) fn has_activity(&self, item: &WorkItem) -> bool {
        match item {
            WorkItem::ActivityExecute { name, .. } => self.activities.resolves(name, None),
            _ => false,
        }
    }

    /// Work that a worker goes on with.
    pub(crate) fn taken(&self, work: FetchedWork) -> TakenWork {
        let lock_timeout = self.options.worker_lock_timeout;
        let under_way = self.unfinished.begin(LockKind::WorkItem, &work.lock_token, lock_timeout);
        TakenWork { work, under_way }
    }

    /// A new random stamp.
    pub(crate) fn new_stamp(&self) -> Stamp {
        Stamp(self.clock().random_u128() as u64)
    }

    /// The supported engine versions as text.
    pub(crate) fn supported_range_text(&self) -> String {
        format!(">={}, <={}", self.supported_range.min, self.supported_range.max)
    }

    /// The id of an orchestration slot.
    pub(crate) fn dispatcher_id(&self, slot: usize) -> String {
        format!("orch-{slot}-{}", self.runtime_id)
    }

    /// The id of a worker slot.
    pub(crate) fn worker_id(&self, slot: usize) -> String {
        let node = self.options.worker_node_id.as_ref().unwrap_or(&self.runtime_id);
        format!("work-{slot}-{node}")
    }

    /// Owner of a worker slot's sessions: the node, if it has a name, else the slot.
    pub(crate) fn session_owner(&self, slot: usize) -> String {
        match &self.options.worker_node_id {
            Some(node) => node.clone(),
            None => format!("work-{slot}-{}", self.session_owner),
        }
    }

    /// The session owners of all worker slots, each once.
    pub(crate) fn session_owners(&self) -> Vec<String> {
        let mut owners: Vec<String> =
            (0..self.options.worker_concurrency).map(|slot| self.session_owner(slot)).collect();
        owners.dedup();
        owners
    }
}
