//! The metrics of activities.

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
            // The two errors have metrics of their own, which are recorded beside this one; cancelled ones have no counter.
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

    /// `everturn_activity_duration_seconds`: duration of an attempt at an activity.
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

    /// `everturn_activity_infrastructure_errors_total`: an activity failed because of the engine or the store.
    pub fn record_activity_infrastructure_error(&self, name: &str) {
        bump(&self.counters.activity_infra_errors);
        counter!("everturn_activity_infrastructure_errors_total", "activity_name" => name.to_owned())
            .increment(1);
    }

    /// `everturn_activity_configuration_errors_total`: an activity failed because of its configuration.
    pub fn record_activity_configuration_error(&self, name: &str) {
        bump(&self.counters.activity_config_errors);
        counter!("everturn_activity_configuration_errors_total", "activity_name" => name.to_owned())
            .increment(1);
    }

    /// `everturn_activity_poison_total`: an activity failed because it was tried too often.
    pub fn record_activity_poison(&self) {
        bump(&self.counters.activity_poison);
        counter!("everturn_activity_poison_total").increment(1);
    }

    /// `everturn_worker_dispatcher_items_fetched`: a worker fetched an activity.
    pub fn record_worker_item_fetched(&self) {
        bump(&self.counters.worker_dispatcher_items_fetched);
        counter!("everturn_worker_dispatcher_items_fetched").increment(1);
    }

    /// Records the end of an attempt at an activity in all its metrics.
    pub(crate) fn activity_ended(
        &self,
        name: &str,
        outcome: ActivityOutcome,
        tag: Option<&str>,
        took: Duration,
    ) {
        // Retries are scheduled by the orchestration, so the worker does not know their number.
        self.record_activity_execution(name, outcome, 0, tag);
        self.record_activity_duration(name, outcome, tag, took);
        match outcome {
            ActivityOutcome::InfraError => self.record_activity_infrastructure_error(name),
            ActivityOutcome::ConfigError => self.record_activity_configuration_error(name),
            ActivityOutcome::Success | ActivityOutcome::AppError | ActivityOutcome::Cancelled => {}
        }
    }
}
