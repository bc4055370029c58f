//! Recording an instance's failure when its turn cannot be committed, or cannot even be tried.

use std::sync::Arc;

use everturn_core::turn::{ExecutionIdentity, fail_from_outside};
use everturn_core::{ErrorDetails, Event, WorkItem};
use tokio::time::Instant;

use super::batch;
use super::claim::{Claim, Decisions};
use super::collision;
use super::commit::Committed;
use super::outcome_metrics::TurnReport;
use super::poison::{self, PoisonedBatch};
use super::standing::{End, Standing, StartFacts, start_facts};
use super::turn_run::NodeTime;

/// Fails an execution whose turn cannot be committed. `start` is its start event if nothing of it is stored yet. If
/// this cannot be committed either, the lock runs out and the messages come again.
pub(crate) async fn record(
    claim: Claim<'_>,
    mut report: TurnReport,
    start: Option<Event>,
    notices: Vec<WorkItem>,
    details: ErrorDetails,
) {
    let node = claim.node;
    let execution_id = report.execution_id;
    let stored = if start.is_some() {
        Ok(Vec::new())
    } else {
        node.store.read_with_execution(&claim.instance, execution_id).await
    };
    let history = match stored {
        Ok(history) => history,
        Err(error) => return claim.warn_not_committed(execution_id, &error),
    };
    let identity = ExecutionIdentity {
        instance: claim.instance.clone(),
        execution_id,
        orchestration_name: report.facts.name.clone(),
        orchestration_version: report.facts.version.clone(),
    };
    let payload_bytes_max = node.store.payload_bytes_max();
    let failure = fail_from_outside(&identity, &history, start, details, payload_bytes_max, &NodeTime(node));
    report.event_count = history.len() + failure.history_delta.len();
    let mut orchestrator_items = failure.orchestrator_items;
    orchestrator_items.extend(notices);
    let decisions = Decisions {
        history_delta: failure.history_delta,
        worker_items: Vec::new(),
        orchestrator_items,
        cancelled_activities: failure.cancelled_activities,
    };
    match claim.commit_plain(execution_id, decisions).await {
        (Committed::Yes, commit) => report.tell(&claim, &commit.history_delta),
        (Committed::GivenUp(error) | Committed::Refused(error), _) => {
            claim.warn_not_committed(execution_id, &error);
        }
    }
}

/// Fails an instance whose messages were tried too often.
pub(crate) async fn poison(
    claim: Claim<'_>,
    standing: &Standing,
    version: &str,
    messages: Vec<WorkItem>,
    history_error: Option<&str>,
    turns: u64,
) {
    let node = claim.node;
    let began = Instant::now();
    if history_error.is_some() && is_over(&claim).await {
        // It was a message that could not be read, and the instance needs none any more.
        return claim.acknowledge(Vec::new()).await;
    }
    // Work items always have a JSON form; an empty text would only make the record poorer.
    let batch_json = serde_json::to_string(&messages).unwrap_or_default();
    let split = batch::split(&claim.instance, messages, standing.has_history);
    let batch = PoisonedBatch {
        instance: &claim.instance,
        execution_id: claim.execution_id,
        version,
        standing,
        start: split.start.as_ref(),
        batch_json,
        attempt_count: claim.attempt_count,
        max_attempts: node.options.max_attempts,
        payload_bytes_max: node.store.payload_bytes_max(),
        now_ms: node.clock().wall_ms(),
    };
    let record = match history_error {
        Some(error) => Some(poison::record_unreadable(&batch, error)),
        None => poison::record(&batch),
    };
    let running_for = standing.parent();
    let mut notices = collision::notices(&claim.instance, &split.ignored, false, running_for);
    let Some(record) = record else {
        return claim.acknowledge(notices).await;
    };
    notices.splice(0..0, record.notices);
    let facts = record
        .history_delta
        .iter()
        .find_map(start_facts)
        .or_else(|| standing.started.clone())
        .unwrap_or_else(|| StartFacts {
            name: "unknown".to_owned(),
            version: version.to_owned(),
            parent: None,
        });
    let report = TurnReport {
        facts: Arc::new(facts),
        execution_id: record.execution_id,
        turns,
        event_count: record.history_delta.last().map_or(0, |event| event.event_id as usize),
        began,
    };
    let decisions = Decisions {
        history_delta: record.history_delta,
        orchestrator_items: notices.clone(),
        ..Decisions::default()
    };
    match claim.commit_plain(record.execution_id, decisions).await {
        (Committed::Yes, commit) => {
            if let Some(metrics) = &node.metrics {
                metrics.record_orchestration_poison();
            }
            report.tell(&claim, &commit.history_delta);
        }
        // The failure over an unreadable history has one fixed place. If the instance failed before, that place is
        // taken, and what came later is dropped like any message to a failed instance. But the place may also be
        // taken by an ordinary event of a long history, or the refusal have another cause: then the messages stay.
        (Committed::Refused(error), _) if history_error.is_some() => {
            if has_ended(&claim).await {
                claim.acknowledge(notices).await;
            } else {
                tracing::error!(target: "everturn::runtime", instance_id = %claim.instance,
                    execution_id = %record.execution_id, worker_id = %claim.worker_id, %error,
                    "the failure over a history that cannot be read was refused, the messages come again");
            }
        }
        (Committed::GivenUp(error) | Committed::Refused(error), _) => {
            claim.warn_not_committed(record.execution_id, &error);
        }
    }
}

/// Whether a history that can be read, after all, says that the instance is over.
async fn is_over(claim: &Claim<'_>) -> bool {
    let stored = claim.node.store.read_with_execution(&claim.instance, claim.execution_id).await;
    stored.is_ok_and(|history| Standing::of(&history).end == Some(End::Terminal))
}

/// Whether the store's own record says that the instance is over, whatever its history looks like.
async fn has_ended(claim: &Claim<'_>) -> bool {
    let store = &claim.node.store;
    match store.as_management_capability() {
        Some(admin) => {
            let info = admin.get_instance_info(&claim.instance).await;
            info.is_ok_and(|info| matches!(info.status.as_str(), "Completed" | "Failed"))
        }
        None => store.read_status(&claim.instance).await.is_ok_and(|status| status.is_terminal()),
    }
}
