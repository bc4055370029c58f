//! The metrics and log lines of a committed turn. They are emitted once, and only after the commit.

use std::sync::Arc;

use everturn_core::{EndEvent, ErrorDetails, Event, EventKind, INITIAL_EXECUTION_ID};
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
        let metrics = locked.node.metrics.as_ref();
        for Event { kind, .. } in delta {
            if let EventKind::OrchestrationStarted { .. } = kind {
                if let Some(metrics) = metrics {
                    self.count_start(metrics);
                }
                log_execution!(debug, locked, self, "Orchestration started");
            }
            if let Some(end) = kind.ends_as() {
                if let Some(metrics) = metrics {
                    self.count_end(metrics, end);
                }
                self.log_end(locked, end);
            }
            if let (Some(metrics), EventKind::SubOrchestrationScheduled { name: child, .. }) = (metrics, kind)
            {
                metrics.record_suborchestration_call(&self.start.name, child);
            }
        }
    }

    fn count_start(&self, metrics: &MetricsProvider) {
        let initiated_by = match &self.start.parent {
            _ if self.execution_id != INITIAL_EXECUTION_ID => InitiatedBy::ContinueAsNew,
            Some(_) => InitiatedBy::Parent,
            None => InitiatedBy::Client,
        };
        metrics.record_orchestration_start(&self.start.name, self.start.version_text(), initiated_by);
        if initiated_by != InitiatedBy::ContinueAsNew {
            metrics.increment_active_orchestrations();
        }
    }

    fn count_end(&self, metrics: &MetricsProvider, end: EndEvent<'_>) {
        let (name, version) = (self.start.name.as_str(), self.start.version_text());
        let status = match end {
            EndEvent::Completed { .. } => CompletionStatus::Success,
            EndEvent::Failed { .. } => CompletionStatus::Failed,
            EndEvent::ContinuedAsNew { .. } => CompletionStatus::ContinuedAsNew,
        };
        metrics.record_orchestration_completion(name, version, status, self.turns);
        metrics.record_orchestration_duration(name, version, status, self.began.elapsed());
        metrics.record_orchestration_turns(name, self.turns);
        metrics.record_orchestration_history_size(name, self.event_count as u64);
        if let EndEvent::Failed { details } = end {
            metrics.orchestration_failed(name, version, details);
        }
        if status == CompletionStatus::ContinuedAsNew {
            metrics.record_orchestration_continue_as_new(name);
        } else {
            metrics.decrement_active_orchestrations();
        }
    }

    fn log_end(&self, locked: &LockedInstance<'_>, end: EndEvent<'_>) {
        match end {
            EndEvent::Completed { .. } => log_execution!(debug, locked, self, "Orchestration completed"),
            EndEvent::ContinuedAsNew { .. } => {
                log_execution!(debug, locked, self, "Orchestration continued as new");
            }
            EndEvent::Failed { details } => {
                let (error_type, error) = (details.category(), details.display_message());
                if matches!(details, ErrorDetails::Application { .. }) {
                    log_execution!(warn, locked, self, error_type, %error,
                        "Orchestration failed (application error)");
                } else {
                    log_execution!(error, locked, self, error_type, %error, "Orchestration failed");
                }
            }
        }
    }
}
