//! Which operations that look, append, delete and prune are tried next.

use proptest::option::weighted;
use proptest::prelude::{Just, Strategy, any};
use proptest::sample::{select, subsequence};

use super::choices::{Choice, events, execution, known_instance, moment_ms};
use super::op::{INSTANCES, Op, Which};
use super::world::World;

pub(super) fn choices(world: &World) -> Vec<Choice> {
    let mut choices = readings(world);
    choices.extend(inspections(world));
    choices.extend(removals(world));
    choices
}

fn of_instance(world: &World, weight: u32, op: fn(&'static str) -> Op) -> Choice {
    (weight, known_instance(world).prop_map(op).boxed())
}

fn of_execution(world: &World, weight: u32, op: fn(&'static str, u64) -> Op) -> Choice {
    (
        weight,
        (known_instance(world), execution())
            .prop_map(move |(instance, execution)| op(instance, execution))
            .boxed(),
    )
}

fn readings(world: &World) -> Vec<Choice> {
    let append = (known_instance(world), execution(), (1..6_u64).prop_flat_map(|next_id| events(next_id, 3)))
        .prop_map(|(instance, execution, events)| Op::AppendWithExecution { instance, execution, events });
    let custom_status = (known_instance(world), 0..3_u64)
        .prop_map(|(instance, last_seen)| Op::GetCustomStatus { instance, last_seen });
    let kv_value = (known_instance(world), select(&["k", "key two", ""][..]))
        .prop_map(|(instance, key)| Op::GetKvValue { instance, key });
    vec![
        (5, append.boxed()),
        (2, custom_status.boxed()),
        (2, kv_value.boxed()),
        of_instance(world, 2, |instance| Op::GetKvAllValues { instance }),
        of_instance(world, 2, |instance| Op::GetInstanceStats { instance }),
        of_instance(world, 2, |instance| Op::Read { instance }),
        of_execution(world, 2, |instance, execution| Op::ReadWithExecution { instance, execution }),
        of_instance(world, 2, |instance| Op::ReadStatus { instance }),
        of_instance(world, 2, |instance| Op::ReadOrchestrationName { instance }),
    ]
}

fn inspections(world: &World) -> Vec<Choice> {
    let by_status = select(&["Running", "Running", "Completed", "Failed", "ContinuedAsNew", "nonsense"][..])
        .prop_map(|status| Op::ListInstancesByStatus { status });
    vec![
        (1, Just(Op::ListInstances).boxed()),
        (2, by_status.boxed()),
        (1, Just(Op::GetSystemMetrics).boxed()),
        (2, Just(Op::GetQueueDepths).boxed()),
        of_instance(world, 1, |instance| Op::ListExecutions { instance }),
        of_instance(world, 1, |instance| Op::ReadHistory { instance }),
        of_execution(world, 1, |instance, execution| Op::ReadHistoryWithExecutionId { instance, execution }),
        of_instance(world, 1, |instance| Op::LatestExecutionId { instance }),
        of_instance(world, 1, |instance| Op::GetInstanceInfo { instance }),
        of_execution(world, 1, |instance, execution| Op::GetExecutionInfo { instance, execution }),
        of_instance(world, 2, |instance| Op::ListChildren { instance }),
        of_instance(world, 1, |instance| Op::GetParentId { instance }),
        of_instance(world, 1, |instance| Op::GetInstanceTree { instance }),
    ]
}

fn which() -> impl Strategy<Value = Which> {
    let ids = weighted(0.3, subsequence(INSTANCES.to_vec(), 0..=INSTANCES.len()));
    (ids, weighted(0.2, moment_ms()), weighted(0.2, 0..3_u32)).prop_map(|(ids, ended_before, limit)| Which {
        ids,
        ended_before,
        limit,
    })
}

fn removals(world: &World) -> Vec<Choice> {
    let keep_last = || weighted(0.5, 0..3_u32);
    let ended_before = || weighted(0.2, moment_ms());
    let atomic = (subsequence(INSTANCES.to_vec(), 0..=INSTANCES.len()), any::<bool>())
        .prop_map(|(ids, force)| Op::DeleteInstancesAtomic { ids, force });
    let delete = (known_instance(world), any::<bool>())
        .prop_map(|(instance, force)| Op::DeleteInstance { instance, force });
    let prune = (known_instance(world), keep_last(), ended_before()).prop_map(
        |(instance, keep_last, ended_before)| Op::PruneExecutions { instance, keep_last, ended_before },
    );
    let prune_bulk = (which(), keep_last(), ended_before()).prop_map(|(which, keep_last, ended_before)| {
        Op::PruneExecutionsBulk { which, keep_last, ended_before }
    });
    vec![
        (2, atomic.boxed()),
        (2, delete.boxed()),
        (2, which().prop_map(|which| Op::DeleteInstanceBulk { which }).boxed()),
        (1, prune.boxed()),
        (3, prune_bulk.boxed()),
    ]
}
