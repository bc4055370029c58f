//! What the reference holds: it decides which operations are worth trying.

use super::op::INSTANCES;
use super::op_sequences::at_once;
use super::tracked_store::TrackedStore;

/// A summary of a store in memory, whose calls never wait.
#[derive(Debug, Clone)]
pub(super) struct StoreSummary {
    /// The instances that exist.
    pub(super) known: Vec<&'static str>,
    /// Some of them have ended.
    pub(super) has_ended: bool,
    /// Some of them have children.
    pub(super) has_children: bool,
    /// Some of them have old executions.
    pub(super) has_old_executions: bool,
    /// Some instance has keys.
    pub(super) has_keys: bool,
    /// Some instance has a custom status.
    pub(super) has_status: bool,
    /// Messages may wait to be fetched.
    pub(super) messages_wait: bool,
    /// Activities may wait to be fetched.
    pub(super) activities_wait: bool,
    /// Some session may be leased.
    pub(super) has_live_lease: bool,
    /// Some session may be idle and still leased.
    pub(super) has_idle_lease: bool,
    /// The lease of some idle session may be over.
    pub(super) has_dead_lease: bool,
}

impl StoreSummary {
    pub(super) fn at(tracked: &TrackedStore) -> Self {
        let (store, admin) = (tracked.store(), tracked.admin());
        let listed = at_once(admin.list_instances()).unwrap_or_default();
        let known: Vec<&'static str> =
            INSTANCES.into_iter().filter(|id| listed.iter().any(|listed| listed == id)).collect();
        let depths = at_once(admin.get_queue_depths()).unwrap_or_default();
        let has_status =
            |status| at_once(admin.list_instances_by_status(status)).is_ok_and(|ids| !ids.is_empty());
        let any_known = |holds: &dyn Fn(&str) -> bool| known.iter().any(|id| holds(id));
        let any_at_all = |holds: &dyn Fn(&str) -> bool| INSTANCES.into_iter().any(holds);
        Self {
            has_ended: has_status("Completed") || has_status("Failed"),
            has_children: any_at_all(&|id| at_once(admin.list_children(id)).is_ok_and(|ids| !ids.is_empty())),
            has_old_executions: any_known(&|id| {
                at_once(admin.list_executions(id)).is_ok_and(|ids| ids.len() > 1)
            }),
            has_keys: any_at_all(&|id| at_once(store.read_kv_values(id)).is_ok_and(|kv| !kv.is_empty())),
            has_status: any_at_all(&|id| matches!(at_once(store.read_custom_status(id, 0)), Ok(Some(_)))),
            messages_wait: depths.orchestrator_queue > 0 && !tracked.found_nothing,
            activities_wait: depths.worker_queue > 0,
            has_live_lease: tracked.leases_ms.iter().any(|end_ms| tracked.now_ms() < *end_ms),
            has_idle_lease: tracked.idle_leases_ms.iter().any(|end_ms| tracked.now_ms() < *end_ms),
            has_dead_lease: tracked.idle_leases_ms.iter().any(|end_ms| *end_ms <= tracked.now_ms()),
            known,
        }
    }
}

impl TrackedStore {
    /// The id that the next event of an execution would have. Only for a store in memory, whose calls never wait.
    pub(super) fn next_event_id(&self, instance: &str, execution: u64) -> u64 {
        let history = at_once(self.store().history_of(instance, execution)).unwrap_or_default();
        history.last().map_or(1, |event| event.event_id + 1)
    }
}
