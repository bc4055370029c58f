//! The lines an operator reads of an execution's life.

use everturn_core::{ErrorDetails, EventKind};

use super::claim::Claim;
use super::outcome_metrics::TurnReport;

/// Emits one line of an execution; a level is part of a call site, so this cannot be a function.
macro_rules! line {
    ($level:ident, $claim:expr, $report:expr, $($field:tt)*) => {
        tracing::$level!(
            target: "everturn::runtime",
            instance_id = %$claim.instance,
            execution_id = %$report.execution_id,
            orchestration_name = %$report.facts.name,
            orchestration_version = %$report.facts.version,
            worker_id = %$claim.worker_id,
            history_events = %$report.event_count,
            $($field)*
        )
    };
}

/// Logs a committed event that begins or ends an execution.
pub(crate) fn log(claim: &Claim<'_>, report: &TurnReport, kind: &EventKind) {
    match kind {
        EventKind::OrchestrationStarted { .. } => line!(debug, claim, report, "Orchestration started"),
        EventKind::OrchestrationCompleted { .. } => line!(debug, claim, report, "Orchestration completed"),
        EventKind::OrchestrationContinuedAsNew { .. } => {
            line!(debug, claim, report, "Orchestration continued as new");
        }
        EventKind::OrchestrationFailed { details } => {
            let (error_type, error) = (details.category(), details.display_message());
            if matches!(details, ErrorDetails::Application { .. }) {
                line!(warn, claim, report, error_type, %error, "Orchestration failed (application error)");
            } else {
                line!(error, claim, report, error_type, %error, "Orchestration failed");
            }
        }
        _ => {}
    }
}
