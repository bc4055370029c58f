//! Recording the failure of an instance whose turn cannot be committed.

use everturn_core::turn::{ExecutionIdentity, fail_from_outside};
use everturn_core::{ErrorDetails, Event, WorkItem};

use super::commit_turn::{TurnCommitOutcome, TurnEffects};
use super::locked_instance::LockedInstance;
use super::run_turn::NodeTime;
use super::turn_report::TurnReport;

/// Fails an execution whose turn cannot be committed. `start` is its start event if nothing of it is stored yet.
///
/// If the failure cannot be committed either, the messages return to the queue.
pub(super) async fn record_failure(
    locked: LockedInstance<'_>,
    mut report: TurnReport<'_>,
    start: Option<Event>,
    notices: Vec<WorkItem>,
    details: ErrorDetails,
) {
    let node = locked.node;
    let execution_id = report.execution_id;
    let stored = if start.is_some() { Ok(Vec::new()) } else { locked.read_history(execution_id).await };
    let history = match stored {
        Ok(history) => history,
        Err(error) if error.is_retryable() => return locked.give_up(execution_id, &error).await,
        Err(error) => return locked.warn_not_committed(execution_id, &error),
    };
    let identity = ExecutionIdentity {
        instance: locked.instance.clone(),
        execution_id,
        orchestration_name: report.start.name.clone(),
        orchestration_version: report.start.version_text().to_owned(),
    };
    let payload_bytes_max = node.store.limits().payload_bytes_max;
    let failure = fail_from_outside(&identity, &history, start, details, payload_bytes_max, &NodeTime(node));
    report.event_count = history.len() + failure.history_delta.len();
    let mut orchestrator_items = failure.orchestrator_items;
    orchestrator_items.extend(notices);
    let effects = TurnEffects {
        history_delta: failure.history_delta,
        worker_items: Vec::new(),
        orchestrator_items,
        cancelled_activities: failure.cancelled_activities,
        cancelled_children: failure.cancelled_children,
    };
    match locked.commit_turn(execution_id, effects, node.new_stamp(), None).await {
        (TurnCommitOutcome::Durable, history_delta) => report.committed(&history_delta),
        (TurnCommitOutcome::GivenUp(error), _) => locked.give_up(execution_id, &error).await,
        (TurnCommitOutcome::Refused(error), _) => locked.warn_not_committed(execution_id, &error),
    }
}
