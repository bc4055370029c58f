//! Recording the failure of an instance whose messages were tried too often.

use std::sync::Arc;

use everturn_core::{ExecutionStatus, WorkItem};
use tokio::time::Instant;

use super::super::node::Node;
use super::super::unregistered::not_registered;
use super::commit_turn::{TurnCommitOutcome, TurnEffects};
use super::decision::resolve_handler;
use super::duplicate_start::{ignored_start_notices, split_messages};
use super::execution_start::ExecutionStart;
use super::execution_state::{ExecutionState, RecordedEnd};
use super::locked_instance::LockedInstance;
use super::poison_events::{
    PoisonFacts, PoisonRecord, PoisonedTurn, poison_record, unreadable_history_record,
};
use super::turn_report::TurnReport;

/// Fails an instance whose messages were tried too often.
pub(super) async fn record_poison(locked: LockedInstance<'_>, mut poisoned: PoisonedTurn) {
    let began = Instant::now();
    if poisoned.history_error.is_some() {
        let execution_id = locked.execution_id;
        match locked.read_history(execution_id).await {
            // A message could not be read, and the instance needs none any more.
            Ok(history) if ExecutionState::of(&history).end == Some(RecordedEnd::Terminal) => {
                return locked.acknowledge(Vec::new()).await;
            }
            Err(error) if error.is_retryable() => return locked.give_up(execution_id, &error).await,
            // It cannot be read, or has not ended.
            Ok(_) | Err(_) => {}
        }
    }
    let messages = std::mem::take(&mut poisoned.messages);
    let (record, ignored_starts) = what_to_record(&locked, &poisoned, messages);
    let Some(mut record) = record else {
        return locked.acknowledge(ignored_starts).await;
    };
    record.notices.extend(ignored_starts);
    let report = report_of(&locked, &record, &poisoned, began);
    commit_poison(locked, record, report, poisoned.history_error.is_some()).await;
}

/// What the failure writes, and the notices to the parents of starts that are ignored. Nothing is written if neither a
/// message nor the store says what the instance was to run.
fn what_to_record(
    locked: &LockedInstance<'_>,
    poisoned: &PoisonedTurn,
    messages: Vec<WorkItem>,
) -> (Option<PoisonRecord>, Vec<WorkItem>) {
    let PoisonedTurn { state, version, history_error, .. } = poisoned;
    let node = locked.node;
    // Work items always have a JSON form; without one only the message text is empty.
    let mut messages_json = serde_json::to_string(&messages).unwrap_or_default();
    let split = split_messages(&locked.instance, messages, &[], state);
    if let Some(reason) = why_unregistered(node, split.start.as_ref().or(state.start.as_deref())) {
        messages_json = format!("{reason}\n{messages_json}");
    }
    let facts = PoisonFacts {
        instance: &locked.instance,
        execution_id: locked.execution_id,
        version,
        state,
        start: split.start.as_ref(),
        messages_json,
        attempt_count: locked.attempt_count,
        max_attempts: node.options.max_attempts,
        payload_bytes_max: node.store.limits().payload_bytes_max,
        now_ms: node.clock().wall_ms(),
    };
    let record = match history_error {
        Some(error) => Some(unreadable_history_record(&facts, error)),
        None => poison_record(&facts),
    };
    (record, ignored_start_notices(&locked.instance, &split.ignored, false, state.parent()))
}

fn report_of<'a>(
    locked: &LockedInstance<'a>,
    record: &PoisonRecord,
    poisoned: &PoisonedTurn,
    began: Instant,
) -> TurnReport<'a> {
    let PoisonedTurn { state, version, turns, .. } = poisoned;
    let start = record.history_delta.iter().find_map(ExecutionStart::from_event).map(Arc::new);
    let unknown = || Arc::new(ExecutionStart::recorded("unknown".to_owned(), version.clone(), None));
    TurnReport {
        node: locked.node,
        worker_id: locked.worker_id,
        instance: locked.instance.clone(),
        start: start.or_else(|| state.start.clone()).unwrap_or_else(unknown),
        execution_id: record.execution_id,
        turns: *turns,
        event_count: record.history_delta.last().map_or(0, |event| event.event_id as usize),
        began,
    }
}

/// Commits the failure and reports it.
async fn commit_poison(
    locked: LockedInstance<'_>,
    record: PoisonRecord,
    report: TurnReport<'_>,
    is_unreadable: bool,
) {
    let PoisonRecord { execution_id, history_delta, notices } = record;
    let node = locked.node;
    let effects =
        TurnEffects { history_delta, orchestrator_items: notices.clone(), ..TurnEffects::default() };
    match locked.commit_turn(execution_id, effects, node.new_stamp(), None).await {
        (TurnCommitOutcome::Durable, history_delta) => {
            if let Some(metrics) = &node.metrics {
                metrics.record_orchestration_poison();
            }
            report.committed(&history_delta);
        }
        // The failure over an unreadable history has one fixed event id. If the instance failed before, that id is
        // taken, and the messages are dropped like any message to a failed instance. But the id may also be taken by an
        // ordinary event of a long history, or the commit be refused for another reason: then the messages stay.
        (TurnCommitOutcome::Refused(_), _) if is_unreadable && is_stored_as_ended(&locked).await => {
            locked.acknowledge(notices).await;
        }
        (TurnCommitOutcome::Refused(error), _) if is_unreadable => {
            tracing::error!(target: "everturn::runtime", instance_id = %locked.instance,
                %execution_id, worker_id = %locked.worker_id, %error,
                "the failure over a history that cannot be read was refused; its messages return to the queue");
        }
        (TurnCommitOutcome::GivenUp(error), _) => locked.give_up(execution_id, &error).await,
        (TurnCommitOutcome::Refused(error), _) => locked.warn_not_committed(execution_id, &error),
    }
}

/// Why an instance was tried too often, if this runtime has no handler of its orchestration.
fn why_unregistered(node: &Node, start: Option<&ExecutionStart>) -> Option<String> {
    let ExecutionStart { name, version, .. } = start?;
    if resolve_handler(&node.orchestrations, name, version.as_deref()).is_some() {
        return None;
    }
    let what = match version {
        Some(version) => format!("orchestration {name} {version}"),
        None => format!("orchestration {name}"),
    };
    let registered = node.orchestrations.list_names().into_iter().flat_map(|name| {
        let versions = node.orchestrations.list_versions(&name);
        versions.into_iter().map(move |version| format!("{name} {version}"))
    });
    Some(not_registered(&what, None, &registered.collect::<Vec<_>>()))
}

/// Returns true if the store's own record says that the instance has ended, whatever its history looks like.
async fn is_stored_as_ended(locked: &LockedInstance<'_>) -> bool {
    let store = &locked.node.store;
    match store.admin() {
        Some(admin) => {
            let info = admin.get_instance_info(&locked.instance).await;
            info.is_ok_and(|info| {
                ExecutionStatus::from_name(&info.status).is_some_and(ExecutionStatus::is_terminal)
            })
        }
        None => store.read_status(&locked.instance).await.is_ok_and(|status| status.is_terminal()),
    }
}
