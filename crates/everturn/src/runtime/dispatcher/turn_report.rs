//! The metrics and log lines of a committed turn. They are emitted once, and only after the commit.

use std::sync::Arc;

use everturn_core::{EndEvent, ErrorDetails, Event, EventKind, INITIAL_EXECUTION_ID};
use tokio::time::Instant;

use super::super::node::Node;
use super::super::observability::{CompletionStatus, InitiatedBy, MetricsProvider};
use super::super::warm_cache::WarmEntry;
use super::execution_start::ExecutionStart;

/// What is known of a turn beside its events.
pub(super) struct TurnReport<'a> {
    pub(super) node: &'a Node,
    pub(super) worker_id: &'a str,
    pub(super) instance: String,
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
    ($level:ident, $report:expr, $($field:tt)*) => {
        tracing::$level!(
            target: "everturn::runtime",
            instance_id = %$report.instance,
            execution_id = %$report.execution_id,
            orchestration_name = %$report.start.name,
            orchestration_version = %$report.start.version_text(),
            worker_id = %$report.worker_id,
            history_events = %$report.event_count,
            $($field)*
        )
    };
}

impl<'a> TurnReport<'a> {
    /// The report of a turn that was taken just now and brought its execution to so many events.
    pub(super) fn of_turn(
        node: &'a Node,
        worker_id: &'a str,
        instance: &str,
        entry: &WarmEntry,
        event_count: usize,
        began: Instant,
    ) -> Self {
        Self {
            node,
            worker_id,
            instance: instance.to_owned(),
            start: Arc::clone(&entry.start),
            execution_id: entry.execution_id,
            turns: entry.turns,
            event_count,
            began,
        }
    }

    /// Counts and logs the beginning and the end of an execution, if they are among these committed events, and counts
    /// its calls of children.
    pub(super) fn committed(&self, delta: &[Event]) {
        let metrics = self.node.metrics.as_ref();
        for Event { kind, .. } in delta {
            if let EventKind::OrchestrationStarted { .. } = kind {
                if let Some(metrics) = metrics {
                    self.count_start(metrics);
                }
                log_execution!(debug, self, "Orchestration started");
            }
            if let Some(end) = kind.ends_as() {
                if let Some(metrics) = metrics {
                    self.count_end(metrics, end);
                }
                self.log_end(end);
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

    fn log_end(&self, end: EndEvent<'_>) {
        match end {
            EndEvent::Completed { .. } => log_execution!(debug, self, "Orchestration completed"),
            EndEvent::ContinuedAsNew { .. } => {
                log_execution!(debug, self, "Orchestration continued as new");
            }
            EndEvent::Failed { details } => {
                let (error_type, error) = (details.category(), details.display_message());
                if matches!(details, ErrorDetails::Application { .. }) {
                    log_execution!(warn, self, error_type, %error,
                        "Orchestration failed (application error)");
                } else {
                    log_execution!(error, self, error_type, %error, "Orchestration failed");
                }
            }
        }
    }
}
