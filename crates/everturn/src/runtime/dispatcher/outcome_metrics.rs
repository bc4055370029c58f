//! What is counted and logged of a committed turn. Once, and only after its commit.

use std::sync::Arc;

use everturn_core::{Event, EventKind, INITIAL_EXECUTION_ID};
use tokio::time::Instant;

use super::super::observability::{CompletionStatus, InitiatedBy, MetricsProvider};
use super::claim::Claim;
use super::lifecycle_log;
use super::standing::StartFacts;

/// What is known of a turn beside its events.
pub(crate) struct TurnReport {
    pub(crate) facts: Arc<StartFacts>,
    pub(crate) execution_id: u64,
    /// How many turns the execution has taken.
    pub(crate) turns: u64,
    /// How many events it has.
    pub(crate) event_count: usize,
    pub(crate) began: Instant,
}

impl TurnReport {
    /// Counts and logs what these committed events say.
    pub(crate) fn tell(&self, claim: &Claim<'_>, delta: &[Event]) {
        for event in delta {
            if let Some(metrics) = &claim.node.metrics {
                self.count(metrics, &event.kind);
            }
            lifecycle_log::log(claim, self, &event.kind);
        }
    }

    fn count(&self, metrics: &MetricsProvider, kind: &EventKind) {
        let StartFacts { name, version, .. } = &*self.facts;
        match kind {
            EventKind::OrchestrationStarted { .. } => {
                if self.execution_id == INITIAL_EXECUTION_ID {
                    metrics.record_orchestration_start(name, version, InitiatedBy::Client);
                    metrics.increment_active_orchestrations();
                } else {
                    metrics.record_orchestration_start(name, version, InitiatedBy::ContinueAsNew);
                }
            }
            EventKind::OrchestrationCompleted { .. } => {
                self.count_end(metrics, CompletionStatus::Success);
                metrics.decrement_active_orchestrations();
            }
            EventKind::OrchestrationFailed { details } => {
                self.count_end(metrics, CompletionStatus::Failed);
                metrics.orchestration_failed(name, version, details);
                metrics.decrement_active_orchestrations();
            }
            EventKind::OrchestrationContinuedAsNew { .. } => {
                self.count_end(metrics, CompletionStatus::ContinuedAsNew);
                metrics.record_orchestration_continue_as_new(name, self.execution_id);
            }
            _ => {}
        }
    }

    fn count_end(&self, metrics: &MetricsProvider, status: CompletionStatus) {
        let StartFacts { name, version, .. } = &*self.facts;
        metrics.record_orchestration_completion(name, version, status, self.turns);
        metrics.record_orchestration_duration(name, version, status, self.began.elapsed());
        metrics.record_orchestration_turns(name, self.turns);
        metrics.record_orchestration_history_size(name, self.event_count as u64);
    }
}
