//! The metrics and log lines of a committed turn. They are emitted once, and only after the commit.

use std::sync::Arc;

use everturn_core::{ErrorDetails, Event, EventKind, INITIAL_EXECUTION_ID};
use tokio::time::Instant;

use super::super::observability::{CompletionStatus, InitiatedBy, MetricsProvider};
use super::execution_start::ExecutionStart;
use super::locked_instance::LockedInstance;

/// What is known of a turn beside its events.
pub(super) struct TurnReport {
    pub(super) start: Arc<ExecutionStart>,
    pub(super) execution_id: u64,
    /// How many turns the execution has taken.
    pub(super) turns: u64,
    /// How many events it has.
    pub(super) event_count: usize,
    pub(super) began: Instant,
}

/// Emits one line of an execution. A macro, because the level is part of the call site.
macro_rules! log_execution {
    ($level:ident, $locked:expr, $report:expr, $($field:tt)*) => {
        tracing::$level!(
            target: "everturn::runtime",
            instance_id = %$locked.instance,
            execution_id = %$report.execution_id,
            orchestration_name = %$report.start.name,
            orchestration_version = %$report.start.version_text(),
            worker_id = %$locked.worker_id,
            history_events = %$report.event_count,
            $($field)*
        )
    };
}

impl TurnReport {
    /// Counts and logs the beginning and the end of an execution, if they are among these committed events, and counts
    /// its calls of children.
    pub(super) fn committed(&self, locked: &LockedInstance<'_>, delta: &[Event]) {
        for event in delta {
            match &event.kind {
                EventKind::OrchestrationStarted { .. }
                | EventKind::OrchestrationCompleted { .. }
                | EventKind::OrchestrationFailed { .. }
                | EventKind::OrchestrationContinuedAsNew { .. } => {
                    if let Some(metrics) = &locked.node.metrics {
                        self.count(metrics, &event.kind);
                    }
                    self.log(locked, &event.kind);
                }
                EventKind::SubOrchestrationScheduled { name: child, .. } => {
                    if let Some(metrics) = &locked.node.metrics {
                        metrics.record_suborchestration_call(&self.start.name, child);
                    }
                }
                _ => {}
            }
        }
    }

    fn count(&self, metrics: &MetricsProvider, kind: &EventKind) {
        let (name, version) = (self.start.name.as_str(), self.start.version_text());
        let status = match kind {
            EventKind::OrchestrationStarted { .. } => {
                let initiated_by = match &self.start.parent {
                    _ if self.execution_id != INITIAL_EXECUTION_ID => InitiatedBy::ContinueAsNew,
                    Some(_) => InitiatedBy::Parent,
                    None => InitiatedBy::Client,
                };
                metrics.record_orchestration_start(name, version, initiated_by);
                if initiated_by != InitiatedBy::ContinueAsNew {
                    metrics.increment_active_orchestrations();
                }
                return;
            }
            EventKind::OrchestrationCompleted { .. } => CompletionStatus::Success,
            EventKind::OrchestrationFailed { .. } => CompletionStatus::Failed,
            EventKind::OrchestrationContinuedAsNew { .. } => CompletionStatus::ContinuedAsNew,
            _ => return,
        };
        metrics.record_orchestration_completion(name, version, status, self.turns);
        metrics.record_orchestration_duration(name, version, status, self.began.elapsed());
        metrics.record_orchestration_turns(name, self.turns);
        metrics.record_orchestration_history_size(name, self.event_count as u64);
        if let EventKind::OrchestrationFailed { details } = kind {
            metrics.orchestration_failed(name, version, details);
        }
        if status == CompletionStatus::ContinuedAsNew {
            metrics.record_orchestration_continue_as_new(name);
        } else {
            metrics.decrement_active_orchestrations();
        }
    }

    fn log(&self, locked: &LockedInstance<'_>, kind: &EventKind) {
        match kind {
            EventKind::OrchestrationStarted { .. } => {
                log_execution!(debug, locked, self, "Orchestration started");
            }
            EventKind::OrchestrationCompleted { .. } => {
                log_execution!(debug, locked, self, "Orchestration completed");
            }
            EventKind::OrchestrationContinuedAsNew { .. } => {
                log_execution!(debug, locked, self, "Orchestration continued as new");
            }
            EventKind::OrchestrationFailed { details } => {
                let (error_type, error) = (details.category(), details.display_message());
                if matches!(details, ErrorDetails::Application { .. }) {
                    log_execution!(warn, locked, self, error_type, %error,
                        "Orchestration failed (application error)");
                } else {
                    log_execution!(error, locked, self, error_type, %error, "Orchestration failed");
                }
            }
            _ => {}
        }
    }
}
