//! Which operations that look, append, delete and prune are tried next.

use proptest::option::weighted;
use proptest::prelude::{Just, Strategy, any};
use proptest::sample::{select, subsequence};

use super::choices::{Choice, events, execution, known_instance, moment_ms};
use super::op::{INSTANCES, Op};
use super::op_parts::Which;
use super::store_summary::StoreSummary;

pub(super) fn choices(summary: &StoreSummary) -> Vec<Choice> {
    let mut choices = readings(summary);
    choices.extend(inspections(summary));
    choices.extend(removals(summary));
    choices
}

fn of_instance(summary: &StoreSummary, weight: u32, op: fn(&'static str) -> Op) -> Choice {
    (weight, known_instance(summary).prop_map(op).boxed())
}

fn of_execution(summary: &StoreSummary, weight: u32, op: fn(&'static str, u64) -> Op) -> Choice {
    (
        weight,
        (known_instance(summary), execution())
            .prop_map(move |(instance, execution)| op(instance, execution))
            .boxed(),
    )
}

fn readings(summary: &StoreSummary) -> Vec<Choice> {
    let append =
        (known_instance(summary), execution(), (1..6_u64).prop_flat_map(|next_id| events(next_id, 3)))
            .prop_map(|(instance, execution, events)| Op::AppendWithExecution {
                instance,
                execution,
                events,
            });
    let status_weight = if summary.has_status { 8 } else { 1 };
    let key_weight = if summary.has_keys { 6 } else { 1 };
    let last_seen = || (known_instance(summary), select(&[0_u64, 0, 1, 2][..]));
    let key = || (known_instance(summary), select(&["k", "key two", ""][..]));
    let plain_status =
        last_seen().prop_map(|(instance, last_seen)| Op::GetCustomStatus { instance, last_seen });
    let status = last_seen().prop_map(|(instance, last_seen)| Op::ReadCustomStatus { instance, last_seen });
    let plain_value = key().prop_map(|(instance, key)| Op::GetKvValue { instance, key });
    let value = key().prop_map(|(instance, key)| Op::ReadKvValue { instance, key });
    let execution = (known_instance(summary), weighted(0.5, execution()))
        .prop_map(|(instance, execution)| Op::ReadExecution { instance, execution });
    vec![
        (5, append.boxed()),
        (status_weight, plain_status.boxed()),
        (status_weight, status.boxed()),
        (key_weight, plain_value.boxed()),
        (key_weight, value.boxed()),
        of_instance(summary, key_weight, |instance| Op::GetKvAllValues { instance }),
        of_instance(summary, key_weight, |instance| Op::ReadKvValues { instance }),
        of_instance(summary, 2, |instance| Op::GetInstanceStats { instance }),
        of_instance(summary, 2, |instance| Op::ReadStats { instance }),
        of_instance(summary, 2, |instance| Op::Read { instance }),
        of_execution(summary, 2, |instance, execution| Op::ReadWithExecution { instance, execution }),
        (2, execution.boxed()),
        of_instance(summary, 2, |instance| Op::ReadStatus { instance }),
        of_instance(summary, 2, |instance| Op::ReadOrchestrationName { instance }),
    ]
}

fn inspections(summary: &StoreSummary) -> Vec<Choice> {
    let by_status = select(&["Running", "Running", "Completed", "Failed", "ContinuedAsNew", "nonsense"][..])
        .prop_map(|status| Op::ListInstancesByStatus { status });
    vec![
        (if summary.known.is_empty() { 12 } else { 2 }, Just(Op::ListInstances).boxed()),
        (2, by_status.boxed()),
        (1, Just(Op::GetSystemMetrics).boxed()),
        (2, Just(Op::GetQueueDepths).boxed()),
        of_instance(summary, 2, |instance| Op::ListExecutions { instance }),
        of_instance(summary, 2, |instance| Op::ReadHistory { instance }),
        of_execution(summary, 2, |instance, execution| Op::ReadHistoryWithExecutionId {
            instance,
            execution,
        }),
        of_instance(summary, 1, |instance| Op::LatestExecutionId { instance }),
        of_instance(summary, 2, |instance| Op::GetInstanceInfo { instance }),
        of_execution(summary, 2, |instance, execution| Op::GetExecutionInfo { instance, execution }),
        of_instance(summary, if summary.has_children { 8 } else { 1 }, |instance| Op::ListChildren {
            instance,
        }),
        of_instance(summary, 2, |instance| Op::GetParentId { instance }),
        of_instance(summary, 1, |instance| Op::GetInstanceTree { instance }),
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

fn removals(summary: &StoreSummary) -> Vec<Choice> {
    let keep_last = || weighted(0.5, 0..3_u32);
    let ended_before = || weighted(0.2, moment_ms());
    let atomic = (subsequence(INSTANCES.to_vec(), 0..=INSTANCES.len()), any::<bool>())
        .prop_map(|(ids, force)| Op::DeleteInstancesAtomic { ids, force });
    let delete = (known_instance(summary), any::<bool>())
        .prop_map(|(instance, force)| Op::DeleteInstance { instance, force });
    let prune = (known_instance(summary), keep_last(), ended_before()).prop_map(
        |(instance, keep_last, ended_before)| Op::PruneExecutions { instance, keep_last, ended_before },
    );
    let prune_bulk = (which(), weighted(0.2, 0..3_u32), weighted(0.1, moment_ms())).prop_map(
        |(which, keep_last, ended_before)| Op::PruneExecutionsBulk { which, keep_last, ended_before },
    );
    vec![
        (2, atomic.boxed()),
        (4, delete.boxed()),
        (
            if summary.has_ended { 8 } else { 1 },
            which().prop_map(|which| Op::DeleteInstanceBulk { which }).boxed(),
        ),
        (2, prune.boxed()),
        (if summary.has_old_executions { 22 } else { 1 }, prune_bulk.boxed()),
    ]
}
