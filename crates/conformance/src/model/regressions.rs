//! Sequences that once showed a difference between two providers, as the model test shrank them.

use super::op::Op;
use super::op::Op::*;
use super::op_parts::Base::*;
use super::op_parts::Decided;
use super::op_parts::Filter::*;
use super::op_parts::Item::*;
use super::op_parts::Naming::*;
use super::op_parts::NewEvent::*;
use super::op_parts::Tags::*;
use super::op_parts::Token::*;

/// All of them, each named for what must hold.
pub(super) fn all() -> Vec<(&'static str, Vec<Op>)> {
    vec![
        ("a_custom_status_is_kept_before_the_orchestration_is_named", custom_status_before_the_name()),
        ("an_execution_without_events_is_not_broken", execution_without_events()),
        ("orphans_go_with_the_next_fetch_whatever_it_finds", orphans_behind_another_instance()),
        ("an_owner_that_is_named_twice_is_counted_once", owner_named_twice()),
        ("a_warm_turn_is_named_by_its_history", warm_turn_named_by_its_history()),
        ("a_running_instance_is_reported_before_a_missing_child", running_and_childless()),
        ("a_delay_that_ends_counts_although_a_lock_expired_before", delay_behind_an_expired_lock()),
        ("the_outcome_with_the_greatest_id_counts_whenever_it_was_written", outcomes_out_of_order()),
    ]
}

fn fetch(lock_ms: u64) -> Op {
    FetchOrchestrationItem { lock_ms, filter: Everything }
}

fn custom_status_before_the_name() -> Vec<Op> {
    vec![
        EnqueueForOrchestrator { item: Start("a"), delay_ms: None },
        fetch(30_000),
        CommitTurn {
            token: Turn(0),
            decided: Decided { execution: 1, events: vec![(2, StatusSet("s"))], ..Decided::default() },
            base: Unchecked,
            stamp: 1,
        },
        GetCustomStatus { instance: "a", last_seen: 0 },
    ]
}

fn execution_without_events() -> Vec<Op> {
    vec![
        EnqueueForOrchestrator { item: StartUnversioned("c"), delay_ms: None },
        fetch(30_000),
        EnqueueForOrchestrator { item: StartUnversioned("c"), delay_ms: None },
        CommitTurn {
            token: Turn(0),
            decided: Decided { execution: 4, naming: Named, ..Decided::default() },
            base: Unchecked,
            stamp: 1,
        },
        fetch(30_000),
    ]
}

fn orphans_behind_another_instance() -> Vec<Op> {
    vec![
        EnqueueForOrchestrator { item: Start("b"), delay_ms: None },
        fetch(30_000),
        EnqueueForOrchestrator { item: Start("b"), delay_ms: None },
        AckOrchestrationItem {
            token: Turn(0),
            decided: Decided {
                execution: 2,
                orchestrator_items: vec![QueueMessage("a")],
                ..Decided::default()
            },
        },
        fetch(30_000),
        GetQueueDepths,
    ]
}

fn owner_named_twice() -> Vec<Op> {
    let activity = Activity { instance: "a", execution: 1, id: 1, session: Some("s1"), tag: None };
    vec![
        EnqueueForWorker { item: activity },
        FetchWorkItem { lock_ms: 30_000, owner: Some(("worker two", 5_000)), tags: AnyTag },
        RenewSessionLock { owners: vec!["worker two", "worker two"], extend_ms: 30_000, idle_ms: 1 },
    ]
}

fn warm_turn_named_by_its_history() -> Vec<Op> {
    vec![
        EnqueueForOrchestrator { item: StartChild("c", "a"), delay_ms: None },
        fetch(30_000),
        CommitTurn {
            token: Turn(0),
            decided: Decided {
                execution: 1,
                events: vec![(1, Started)],
                orchestrator_items: vec![Signal("c")],
                ..Decided::default()
            },
            base: Unchecked,
            stamp: 1,
        },
        FetchTurns { turns_max: 1, lock_ms: 30_000, filter: Everything, kept: true, handlers: None },
    ]
}

fn running_and_childless() -> Vec<Op> {
    vec![
        EnqueueForOrchestrator { item: StartChild("c", "a"), delay_ms: None },
        fetch(30_000),
        AckOrchestrationItem {
            token: Turn(0),
            decided: Decided { execution: 1, naming: Named, parent: Some("a"), ..Decided::default() },
        },
        EnqueueForOrchestrator { item: Start("b"), delay_ms: None },
        fetch(30_000),
        AckOrchestrationItem {
            token: Turn(0),
            decided: Decided { execution: 1, status: Some("ContinuedAsNew"), ..Decided::default() },
        },
        DeleteInstancesAtomic { ids: vec!["a", "b"], force: false },
    ]
}

fn delay_behind_an_expired_lock() -> Vec<Op> {
    vec![
        EnqueueForOrchestrator { item: StartChild("d", "c"), delay_ms: Some(60_000) },
        EnqueueForOrchestrator { item: Start("a"), delay_ms: None },
        fetch(30_000),
        EnqueueForOrchestrator { item: Start("a"), delay_ms: None },
        CommitTurn {
            token: Turn(0),
            decided: Decided {
                execution: 1,
                orchestrator_items: vec![StartChild("d", "c")],
                ..Decided::default()
            },
            base: Unchecked,
            stamp: 1,
        },
        fetch(30_000),
        fetch(5_000),
        Pass { ms: 5_000 },
        FetchWorkItem { lock_ms: 30_000, owner: None, tags: AnyTag },
    ]
}

fn outcomes_out_of_order() -> Vec<Op> {
    vec![
        AppendWithExecution {
            instance: "b",
            execution: 1,
            events: vec![(3, Completed), (4, ContinuedAsNew)],
        },
        AppendWithExecution { instance: "b", execution: 1, events: vec![(2, Failed)] },
        ReadStatus { instance: "b" },
        AppendWithExecution { instance: "c", execution: 1, events: vec![(3, Completed), (2, Failed)] },
        ReadStatus { instance: "c" },
    ]
}
