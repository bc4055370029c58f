//! The operations of the management side.

use everturn_provider::management::{InstanceFilter, PruneOptions};

use super::answer::Answer;
use super::op::Op;
use super::op_parts::Which;
use super::world::{BEGINNING_MS, World};

impl World {
    pub(super) async fn administer(&mut self, op: &Op) -> Answer {
        match op {
            Op::DeleteInstancesAtomic { .. }
            | Op::DeleteInstance { .. }
            | Op::DeleteInstanceBulk { .. }
            | Op::PruneExecutions { .. }
            | Op::PruneExecutionsBulk { .. } => self.remove(op).await,
            _ => self.inspect(op).await,
        }
    }

    async fn inspect(&self, op: &Op) -> Answer {
        let admin = self.admin();
        match op {
            Op::ListInstances => Answer::listed(admin.list_instances().await),
            Op::ListInstancesByStatus { status } => {
                Answer::listed(admin.list_instances_by_status(status).await)
            }
            Op::ListExecutions { instance } => Answer::listed(admin.list_executions(instance).await),
            Op::ReadHistory { instance } => Answer::listed(admin.read_history(instance).await),
            Op::ReadHistoryWithExecutionId { instance, execution } => {
                Answer::listed(admin.read_history_with_execution_id(instance, *execution).await)
            }
            Op::LatestExecutionId { instance } => {
                Answer::of(admin.latest_execution_id(instance).await, Answer::done)
            }
            Op::GetInstanceInfo { instance } => {
                Answer::of(admin.get_instance_info(instance).await, Answer::done)
            }
            Op::GetExecutionInfo { instance, execution } => {
                Answer::of(admin.get_execution_info(instance, *execution).await, Answer::done)
            }
            Op::GetSystemMetrics => Answer::of(admin.get_system_metrics().await, Answer::done),
            Op::GetQueueDepths => Answer::of(admin.get_queue_depths().await, Answer::done),
            Op::ListChildren { instance } => Answer::listed(admin.list_children(instance).await),
            Op::GetParentId { instance } => Answer::of(admin.get_parent_id(instance).await, Answer::done),
            Op::GetInstanceTree { instance } => {
                Answer::of(admin.get_instance_tree(instance).await, Answer::done)
            }
            other => unreachable!("{other:?} is not about looking"),
        }
    }

    async fn remove(&self, op: &Op) -> Answer {
        let admin = self.admin();
        match op {
            Op::DeleteInstancesAtomic { ids, force } => {
                let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
                Answer::of(admin.delete_instances_atomic(&ids, *force).await, Answer::done)
            }
            Op::DeleteInstance { instance, force } => {
                Answer::of(admin.delete_instance(instance, *force).await, Answer::done)
            }
            Op::DeleteInstanceBulk { which } => {
                Answer::of(admin.delete_instance_bulk(filter(which)).await, |deleted| {
                    Answer::done_unless(deleted.instances_deleted == 0, deleted)
                })
            }
            Op::PruneExecutions { instance, keep_last, ended_before } => {
                let options = options(*keep_last, *ended_before);
                Answer::of(admin.prune_executions(instance, options).await, Answer::done)
            }
            Op::PruneExecutionsBulk { which, keep_last, ended_before } => {
                let options = options(*keep_last, *ended_before);
                Answer::of(admin.prune_executions_bulk(filter(which), options).await, |pruned| {
                    Answer::done_unless(pruned.executions_deleted == 0, pruned)
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
