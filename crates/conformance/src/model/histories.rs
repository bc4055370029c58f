//! The operations that read one instance, and the one that appends past its turns.

use std::collections::{BTreeMap, HashMap};

use everturn_core::OrchestrationStatus;

use super::answer::ComparedAnswer;
use super::op::Op;
use super::tracked_store::TrackedStore;
use super::turns::history;

impl TrackedStore {
    pub(super) async fn apply_to_histories(&mut self, op: &Op) -> ComparedAnswer {
        let (store, provider) = (&self.store, &self.provider);
        match op {
            Op::AppendWithExecution { instance, execution, events } => {
                let events = history(instance, *execution, events);
                ComparedAnswer::accepted(provider.append_with_execution(instance, *execution, events).await)
            }
            Op::Read { instance } => ComparedAnswer::listed(provider.read(instance).await),
            Op::ReadWithExecution { instance, execution } => {
                ComparedAnswer::listed(provider.read_with_execution(instance, *execution).await)
            }
            Op::ReadExecution { instance, execution: None } => {
                ComparedAnswer::listed(store.history(instance).await)
            }
            Op::ReadExecution { instance, execution: Some(execution) } => {
                ComparedAnswer::listed(store.history_of(instance, *execution).await)
            }
            Op::ReadStatus { instance } => ComparedAnswer::of(store.read_status(instance).await, |status| {
                ComparedAnswer::done_unless(status == OrchestrationStatus::NotFound, status)
            }),
            Op::ReadOrchestrationName { instance } => {
                ComparedAnswer::found(store.read_orchestration_name(instance).await)
            }
            Op::ReadCustomStatus { instance, last_seen } => {
                ComparedAnswer::found(store.read_custom_status(instance, *last_seen).await)
            }
            Op::ReadKvValue { instance, key } => {
                ComparedAnswer::found(store.read_kv_value(instance, key).await)
            }
            Op::ReadKvValues { instance } => {
                ComparedAnswer::of(store.read_kv_values(instance).await, in_order)
            }
            Op::ReadStats { instance } => ComparedAnswer::found(store.read_stats(instance).await),
            Op::GetCustomStatus { instance, last_seen } => {
                ComparedAnswer::found(provider.get_custom_status(instance, *last_seen).await)
            }
            Op::GetKvValue { instance, key } => {
                ComparedAnswer::found(provider.get_kv_value(instance, key).await)
            }
            Op::GetKvAllValues { instance } => {
                ComparedAnswer::of(provider.get_kv_all_values(instance).await, in_order)
            }
            Op::GetInstanceStats { instance } => {
                ComparedAnswer::found(provider.get_instance_stats(instance).await)
            }
            other => unreachable!("{other:?} is not about one history"),
        }
    }
}

fn in_order(values: HashMap<String, String>) -> ComparedAnswer {
    let values: BTreeMap<String, String> = values.into_iter().collect();
    ComparedAnswer::done_unless(values.is_empty(), values)
}
