//! What is counted about activities.

use std::time::Duration;

use metrics::{counter, histogram};

use super::MetricsProvider;
use crate::runtime::observability::labels::{ActivityOutcome, retry_attempt};
use crate::runtime::observability::snapshot::bump;

/// The `tag` of an activity without one.
const UNTAGGED: &str = "default";

impl MetricsProvider {
    /// `everturn_activity_executions_total`: an attempt at an activity ended.
    pub fn record_activity_execution(
        &self,
        name: &str,
        outcome: ActivityOutcome,
        retries: u32,
        tag: Option<&str>,
    ) {
        match outcome {
            ActivityOutcome::Success => bump(&self.counters.activity_success),
            ActivityOutcome::AppError => bump(&self.counters.activity_app_errors),
            // These two have metrics of their own, which are recorded beside this one; cancelled ones have no counter.
            ActivityOutcome::InfraError | ActivityOutcome::ConfigError | ActivityOutcome::Cancelled => {}
        }
        counter!(
            "everturn_activity_executions_total",
            "activity_name" => name.to_owned(),
            "outcome" => outcome.as_str(),
            "retry_attempt" => retry_attempt(retries),
            "tag" => tag.unwrap_or(UNTAGGED).to_owned()
        )
        .increment(1);
    }

    /// `everturn_activity_duration_seconds`: how long an attempt at an activity took.
    pub fn record_activity_duration(
        &self,
        name: &str,
        outcome: ActivityOutcome,
        tag: Option<&str>,
        took: Duration,
    ) {
        histogram!(
            "everturn_activity_duration_seconds",
            "activity_name" => name.to_owned(),
            "outcome" => outcome.as_str(),
            "tag" => tag.unwrap_or(UNTAGGED).to_owned()
        )
        .record(took);
    }

    /// `everturn_activity_infrastructure_errors_total`: the engine or its store failed an activity.
    pub fn record_activity_infrastructure_error(&self, name: &str) {
        bump(&self.counters.activity_infra_errors);
        counter!("everturn_activity_infrastructure_errors_total", "activity_name" => name.to_owned())
            .increment(1);
    }

    /// `everturn_activity_configuration_errors_total`: an activity failed for its set-up.
    pub fn record_activity_configuration_error(&self, name: &str) {
        bump(&self.counters.activity_config_errors);
        counter!("everturn_activity_configuration_errors_total", "activity_name" => name.to_owned())
            .increment(1);
    }

    /// `everturn_activity_poison_total`: an activity was given up.
    pub fn record_activity_poison(&self) {
        bump(&self.counters.activity_poison);
        counter!("everturn_activity_poison_total").increment(1);
    }

    /// `everturn_worker_dispatcher_items_fetched`: a worker took an activity.
    pub fn record_worker_dispatcher_item_fetched(&self) {
        bump(&self.counters.worker_dispatcher_items_fetched);
        counter!("everturn_worker_dispatcher_items_fetched").increment(1);
    }

    /// `everturn_worker_dispatcher_execution_duration_ms`: how long a worker was busy with an activity.
    pub fn record_worker_dispatcher_execution_duration(&self, took: Duration) {
        histogram!("everturn_worker_dispatcher_execution_duration_ms").record(took.as_secs_f64() * 1e3);
    }

    /// Everything that is counted when an attempt at an activity ends so.
    pub(crate) fn activity_ended(
        &self,
        name: &str,
        outcome: ActivityOutcome,
        tag: Option<&str>,
        took: Duration,
    ) {
        // Attempts are the provider's to count, retries are the orchestration's: neither is known here.
        self.record_activity_execution(name, outcome, 0, tag);
        self.record_activity_duration(name, outcome, tag, took);
        match outcome {
            ActivityOutcome::InfraError => self.record_activity_infrastructure_error(name),
            ActivityOutcome::ConfigError => self.record_activity_configuration_error(name),
            ActivityOutcome::Success | ActivityOutcome::AppError | ActivityOutcome::Cancelled => {}
        }
    }
}
