//! Which operations that look, append, delete and prune are tried next.

use proptest::option::weighted;
use proptest::prelude::{Just, Strategy, any};
use proptest::sample::{select, subsequence};

use super::choices::{Choice, events, execution, known_instance, moment_ms};
use super::glance::Glance;
use super::op::{INSTANCES, Op};
use super::op_parts::Which;

pub(super) fn choices(glance: &Glance) -> Vec<Choice> {
    let mut choices = readings(glance);
    choices.extend(inspections(glance));
    choices.extend(removals(glance));
    choices
}

fn of_instance(glance: &Glance, weight: u32, op: fn(&'static str) -> Op) -> Choice {
    (weight, known_instance(glance).prop_map(op).boxed())
}

fn of_execution(glance: &Glance, weight: u32, op: fn(&'static str, u64) -> Op) -> Choice {
    (
        weight,
        (known_instance(glance), execution())
            .prop_map(move |(instance, execution)| op(instance, execution))
            .boxed(),
    )
}

fn readings(glance: &Glance) -> Vec<Choice> {
    let append =
        (known_instance(glance), execution(), (1..6_u64).prop_flat_map(|next_id| events(next_id, 3)))
            .prop_map(|(instance, execution, events)| Op::AppendWithExecution {
                instance,
                execution,
                events,
            });
    let status_weight = if glance.has_status { 6 } else { 1 };
    let key_weight = if glance.has_keys { 4 } else { 1 };
    let last_seen = || (known_instance(glance), select(&[0_u64, 0, 1, 2][..]));
    let key = || (known_instance(glance), select(&["k", "key two", ""][..]));
    let plain_status =
        last_seen().prop_map(|(instance, last_seen)| Op::GetCustomStatus { instance, last_seen });
    let status = last_seen().prop_map(|(instance, last_seen)| Op::ReadCustomStatus { instance, last_seen });
    let plain_value = key().prop_map(|(instance, key)| Op::GetKvValue { instance, key });
    let value = key().prop_map(|(instance, key)| Op::ReadKvValue { instance, key });
    let execution = (known_instance(glance), weighted(0.5, execution()))
        .prop_map(|(instance, execution)| Op::ReadExecution { instance, execution });
    vec![
        (5, append.boxed()),
        (status_weight, plain_status.boxed()),
        (status_weight, status.boxed()),
        (key_weight, plain_value.boxed()),
        (key_weight, value.boxed()),
        of_instance(glance, key_weight, |instance| Op::GetKvAllValues { instance }),
        of_instance(glance, key_weight, |instance| Op::ReadKvValues { instance }),
        of_instance(glance, 1, |instance| Op::GetInstanceStats { instance }),
        of_instance(glance, 1, |instance| Op::ReadStats { instance }),
        of_instance(glance, 1, |instance| Op::Read { instance }),
        of_execution(glance, 2, |instance, execution| Op::ReadWithExecution { instance, execution }),
        (2, execution.boxed()),
        of_instance(glance, 2, |instance| Op::ReadStatus { instance }),
        of_instance(glance, 2, |instance| Op::ReadOrchestrationName { instance }),
    ]
}

fn inspections(glance: &Glance) -> Vec<Choice> {
    let by_status = select(&["Running", "Running", "Completed", "Failed", "ContinuedAsNew", "nonsense"][..])
        .prop_map(|status| Op::ListInstancesByStatus { status });
    vec![
        (if glance.known.is_empty() { 12 } else { 2 }, Just(Op::ListInstances).boxed()),
        (2, by_status.boxed()),
        (1, Just(Op::GetSystemMetrics).boxed()),
        (2, Just(Op::GetQueueDepths).boxed()),
        of_instance(glance, 1, |instance| Op::ListExecutions { instance }),
        of_instance(glance, 1, |instance| Op::ReadHistory { instance }),
        of_execution(glance, 2, |instance, execution| Op::ReadHistoryWithExecutionId { instance, execution }),
        of_instance(glance, 1, |instance| Op::LatestExecutionId { instance }),
        of_instance(glance, 2, |instance| Op::GetInstanceInfo { instance }),
        of_execution(glance, 2, |instance, execution| Op::GetExecutionInfo { instance, execution }),
        of_instance(glance, if glance.has_children { 8 } else { 1 }, |instance| Op::ListChildren {
            instance,
        }),
        of_instance(glance, 2, |instance| Op::GetParentId { instance }),
        of_instance(glance, 1, |instance| Op::GetInstanceTree { instance }),
    ]
}

fn which() -> impl Strategy<Value = Which> {
    let ids = weighted(0.3, subsequence(INSTANCES.to_vec(), 0..=INSTANCES.len()));
    (ids, weighted(0.15, moment_ms()), weighted(0.2, 0..3_u32)).prop_map(|(ids, ended_before, limit)| Which {
        ids,
        ended_before,
        limit,
    })
}

fn removals(glance: &Glance) -> Vec<Choice> {
    let keep_last = || weighted(0.5, 0..3_u32);
    let ended_before = || weighted(0.2, moment_ms());
    let atomic = (subsequence(INSTANCES.to_vec(), 0..=INSTANCES.len()), any::<bool>())
        .prop_map(|(ids, force)| Op::DeleteInstancesAtomic { ids, force });
    let delete = (known_instance(glance), any::<bool>())
        .prop_map(|(instance, force)| Op::DeleteInstance { instance, force });
    let prune = (known_instance(glance), keep_last(), ended_before()).prop_map(
        |(instance, keep_last, ended_before)| Op::PruneExecutions { instance, keep_last, ended_before },
    );
    let prune_bulk = (which(), weighted(0.2, 0..3_u32), weighted(0.1, moment_ms())).prop_map(
        |(which, keep_last, ended_before)| Op::PruneExecutionsBulk { which, keep_last, ended_before },
    );
    vec![
        (2, atomic.boxed()),
        (4, delete.boxed()),
        (
            if glance.has_ended { 8 } else { 1 },
            which().prop_map(|which| Op::DeleteInstanceBulk { which }).boxed(),
        ),
        (2, prune.boxed()),
        (if glance.has_old_executions { 22 } else { 1 }, prune_bulk.boxed()),
    ]
}
