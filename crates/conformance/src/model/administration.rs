//! The operations of the management side.

use everturn_provider::management::{InstanceFilter, PruneOptions};

use super::answer::ComparedAnswer;
use super::op::Op;
use super::op_parts::Which;
use super::tracked_store::{BEGINNING_MS, TrackedStore};

impl TrackedStore {
    pub(super) async fn administer(&mut self, op: &Op) -> ComparedAnswer {
        match op {
            Op::DeleteInstancesAtomic { .. }
            | Op::DeleteInstance { .. }
            | Op::DeleteInstanceBulk { .. }
            | Op::PruneExecutions { .. }
            | Op::PruneExecutionsBulk { .. } => self.remove(op).await,
            _ => self.inspect(op).await,
        }
    }

    async fn inspect(&self, op: &Op) -> ComparedAnswer {
        let admin = self.admin();
        match op {
            Op::ListInstances => ComparedAnswer::listed(admin.list_instances().await),
            Op::ListInstancesByStatus { status } => {
                ComparedAnswer::listed(admin.list_instances_by_status(status).await)
            }
            Op::ListExecutions { instance } => ComparedAnswer::listed(admin.list_executions(instance).await),
            Op::ReadHistory { instance } => ComparedAnswer::listed(admin.read_history(instance).await),
            Op::ReadHistoryWithExecutionId { instance, execution } => {
                ComparedAnswer::listed(admin.read_history_with_execution_id(instance, *execution).await)
            }
            Op::LatestExecutionId { instance } => {
                ComparedAnswer::of(admin.latest_execution_id(instance).await, ComparedAnswer::done)
            }
            Op::GetInstanceInfo { instance } => {
                ComparedAnswer::of(admin.get_instance_info(instance).await, ComparedAnswer::done)
            }
            Op::GetExecutionInfo { instance, execution } => {
                ComparedAnswer::of(admin.get_execution_info(instance, *execution).await, ComparedAnswer::done)
            }
            Op::GetSystemMetrics => {
                ComparedAnswer::of(admin.get_system_metrics().await, ComparedAnswer::done)
            }
            Op::GetQueueDepths => ComparedAnswer::of(admin.get_queue_depths().await, ComparedAnswer::done),
            Op::ListChildren { instance } => ComparedAnswer::listed(admin.list_children(instance).await),
            Op::GetParentId { instance } => {
                ComparedAnswer::of(admin.get_parent_id(instance).await, ComparedAnswer::done)
            }
            Op::GetInstanceTree { instance } => {
                ComparedAnswer::of(admin.get_instance_tree(instance).await, ComparedAnswer::done)
            }
            other => unreachable!("{other:?} is not about looking"),
        }
    }

    async fn remove(&self, op: &Op) -> ComparedAnswer {
        let admin = self.admin();
        match op {
            Op::DeleteInstancesAtomic { ids, force } => {
                let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
                ComparedAnswer::of(admin.delete_instances_atomic(&ids, *force).await, ComparedAnswer::done)
            }
            Op::DeleteInstance { instance, force } => {
                ComparedAnswer::of(admin.delete_instance(instance, *force).await, ComparedAnswer::done)
            }
            Op::DeleteInstanceBulk { which } => {
                ComparedAnswer::of(admin.delete_instance_bulk(filter(which)).await, |deleted| {
                    ComparedAnswer::done_unless(deleted.instances_deleted == 0, deleted)
                })
            }
            Op::PruneExecutions { instance, keep_last, ended_before } => {
                let options = options(*keep_last, *ended_before);
                ComparedAnswer::of(admin.prune_executions(instance, options).await, ComparedAnswer::done)
            }
            Op::PruneExecutionsBulk { which, keep_last, ended_before } => {
                let options = options(*keep_last, *ended_before);
                ComparedAnswer::of(admin.prune_executions_bulk(filter(which), options).await, |pruned| {
                    ComparedAnswer::done_unless(pruned.executions_deleted == 0, pruned)
                })
            }
            other => unreachable!("{other:?} is not about removing"),
        }
    }
}

fn filter(which: &Which) -> InstanceFilter {
    InstanceFilter {
        instance_ids: which.ids.as_ref().map(|ids| ids.iter().map(|id| (*id).to_owned()).collect()),
        completed_before: which.ended_before.map(|ms| BEGINNING_MS + ms),
        limit: which.limit,
    }
}

fn options(keep_last: Option<u32>, ended_before: Option<u64>) -> PruneOptions {
    PruneOptions { keep_last, completed_before: ended_before.map(|ms| BEGINNING_MS + ms) }
}
