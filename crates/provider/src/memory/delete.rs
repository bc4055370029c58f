//! Removing instances with all their rows.

use std::collections::BTreeSet;

use super::tables::Tables;
use crate::error::ProviderError;
use crate::management::{DeleteInstanceResult, InstanceFilter};

const OPERATION: &str = "delete_instances_atomic";
/// The limit of a bulk operation that sets none.
pub(super) const DEFAULT_BULK_LIMIT: usize = 1000;

impl Tables {
    /// Removes these instances, all or none.
    pub fn delete_instances_atomic(
        &mut self,
        ids: &[String],
        force: bool,
    ) -> Result<DeleteInstanceResult, ProviderError> {
        let doomed: BTreeSet<&str> = ids.iter().map(String::as_str).collect();
        if !force && let Some(id) = doomed.iter().find(|id| self.is_under_way(id)) {
            return Err(ProviderError::still_running(OPERATION, format!("instance {id} is still running")));
        }
        for id in &doomed {
            if let Some(child) = self.list_children(id).iter().find(|child| !doomed.contains(child.as_str()))
            {
                let message = format!("{id} has the child {child}, which the tree traversal did not list");
                return Err(ProviderError::permanent(OPERATION, message));
            }
        }
        let mut result =
            DeleteInstanceResult { instances_deleted: ids.len() as u64, ..DeleteInstanceResult::default() };
        for id in doomed {
            self.delete_rows(id, &mut result);
        }
        Ok(result)
    }

    fn delete_rows(&mut self, id: &str, result: &mut DeleteInstanceResult) {
        self.instances.remove(id);
        let executions = self.executions.remove(id).unwrap_or_default();
        result.executions_deleted += executions.len() as u64;
        result.events_deleted +=
            executions.values().map(|execution| execution.events.len() as u64).sum::<u64>();
        self.instance_locks.remove(id);
        self.instance_delays.remove(id);
        self.kv.remove(id);
        self.custom_statuses.remove(id);
        self.stamps.remove(id);
        let before = self.orchestrator_queue.len() + self.worker_queue.len();
        self.orchestrator_queue.retain(|_, message| message.instance != id);
        self.worker_queue.retain(|_, activity| !activity.is_of(id));
        let left = self.orchestrator_queue.len() + self.worker_queue.len();
        result.queue_messages_deleted += (before - left) as u64;
        self.changes.instances.insert(id.to_owned());
    }

    /// Removes the ended roots that match, the longest ended first, each with its descendants. A tree of which any
    /// instance is running is skipped.
    pub fn delete_instance_bulk(
        &mut self,
        filter: &InstanceFilter,
    ) -> Result<DeleteInstanceResult, ProviderError> {
        let mut roots: Vec<(Option<u64>, Vec<String>)> = self
            .instances
            .iter()
            .filter(|(id, row)| row.parent_instance_id.is_none() && self.matches(id, filter))
            .map(|(id, _)| (self.completed_at_ms(id), self.tree(id)))
            .filter(|(_, tree)| !tree.iter().any(|id| self.is_under_way(id)))
            .collect();
        // Equal times stay ordered by id.
        roots.sort_by_key(|(completed_at_ms, _)| *completed_at_ms);
        roots.truncate(bulk_limit(filter));
        let ids: Vec<String> = roots.into_iter().flat_map(|(_, tree)| tree).collect();
        self.delete_instances_atomic(&ids, false)
    }

    /// Whether the instance matches all conditions that the filter sets.
    pub(super) fn matches(&self, instance: &str, filter: &InstanceFilter) -> bool {
        let is_listed =
            filter.instance_ids.as_ref().is_none_or(|ids| ids.iter().any(|listed| listed == instance));
        let has_ended = filter.completed_before.is_none_or(|cut_off_ms| {
            self.completed_at_ms(instance).is_some_and(|completed_at_ms| completed_at_ms < cut_off_ms)
        });
        is_listed && has_ended
    }

    /// Whether the instance has an execution and has not ended: one that continued as new goes on.
    fn is_under_way(&self, instance: &str) -> bool {
        self.status(instance).is_some_and(|status| !status.is_terminal())
    }

    fn completed_at_ms(&self, instance: &str) -> Option<u64> {
        self.current_execution(instance)?.completed_at_ms
    }

    /// An instance and all its descendants, the root first.
    fn tree(&self, root: &str) -> Vec<String> {
        let mut ids = vec![root.to_owned()];
        let mut next = 0;
        while let Some(parent) = ids.get(next).cloned() {
            ids.extend(self.list_children(&parent));
            next += 1;
        }
        ids
    }
}

/// How many instances a bulk operation may take.
pub(super) fn bulk_limit(filter: &InstanceFilter) -> usize {
    filter.limit.map_or(DEFAULT_BULK_LIMIT, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}
