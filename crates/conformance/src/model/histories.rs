//! The operations that read one instance, and the one that appends past its turns.

use std::collections::{BTreeMap, HashMap};

use everturn_core::OrchestrationStatus;

use super::answer::Answer;
use super::op::Op;
use super::turns::history;
use super::world::World;

impl World {
    pub(super) async fn apply_to_histories(&mut self, op: &Op) -> Answer {
        let (store, provider) = (&self.store, &self.provider);
        match op {
            Op::AppendWithExecution { instance, execution, events } => {
                let events = history(instance, *execution, events);
                Answer::accepted(provider.append_with_execution(instance, *execution, events).await)
            }
            Op::Read { instance } => Answer::listed(provider.read(instance).await),
            Op::ReadWithExecution { instance, execution } => {
                Answer::listed(provider.read_with_execution(instance, *execution).await)
            }
            Op::ReadExecution { instance, execution: None } => Answer::listed(store.history(instance).await),
            Op::ReadExecution { instance, execution: Some(execution) } => {
                Answer::listed(store.history_of(instance, *execution).await)
            }
            Op::ReadStatus { instance } => Answer::of(store.read_status(instance).await, |status| {
                Answer::done_unless(status == OrchestrationStatus::NotFound, status)
            }),
            Op::ReadOrchestrationName { instance } => {
                Answer::found(store.read_orchestration_name(instance).await)
            }
            Op::ReadCustomStatus { instance, last_seen } => {
                Answer::found(store.read_custom_status(instance, *last_seen).await)
            }
            Op::ReadKvValue { instance, key } => Answer::found(store.read_kv_value(instance, key).await),
            Op::ReadKvValues { instance } => Answer::of(store.read_kv_values(instance).await, in_order),
            Op::ReadStats { instance } => Answer::found(store.read_stats(instance).await),
            Op::GetCustomStatus { instance, last_seen } => {
                Answer::found(provider.get_custom_status(instance, *last_seen).await)
            }
            Op::GetKvValue { instance, key } => Answer::found(provider.get_kv_value(instance, key).await),
            Op::GetKvAllValues { instance } => {
                Answer::of(provider.get_kv_all_values(instance).await, in_order)
            }
            Op::GetInstanceStats { instance } => Answer::found(provider.get_instance_stats(instance).await),
            other => unreachable!("{other:?} is not about one history"),
        }
    }
}

fn in_order(values: HashMap<String, String>) -> Answer {
    let values: BTreeMap<String, String> = values.into_iter().collect();
    Answer::done_unless(values.is_empty(), values)
}
