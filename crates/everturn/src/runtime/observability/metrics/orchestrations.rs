//! The metrics of orchestrations.

use std::time::Duration;

use everturn_core::ErrorDetails;
use metrics::{counter, histogram};

use super::MetricsProvider;
use crate::runtime::observability::labels::{
    CompletionStatus, FailureType, InitiatedBy, error_category, turn_count_bucket,
};
use crate::runtime::observability::snapshot::bump;

impl MetricsProvider {
    /// `everturn_orchestration_starts_total`: an execution began.
    pub fn record_orchestration_start(&self, name: &str, version: &str, initiated_by: InitiatedBy) {
        bump(&self.counters.orch_starts);
        counter!(
            "everturn_orchestration_starts_total",
            "orchestration_name" => name.to_owned(),
            "version" => version.to_owned(),
            "initiated_by" => initiated_by.as_str()
        )
        .increment(1);
    }

    /// `everturn_orchestration_completions_total`: an execution ended after `turns` turns.
    pub fn record_orchestration_completion(
        &self,
        name: &str,
        version: &str,
        status: CompletionStatus,
        turns: u64,
    ) {
        bump(&self.counters.orch_completions);
        counter!(
            "everturn_orchestration_completions_total",
            "orchestration_name" => name.to_owned(),
            "version" => version.to_owned(),
            "status" => status.as_str(),
            "final_turn_count" => turn_count_bucket(turns)
        )
        .increment(1);
    }

    /// `everturn_orchestration_duration_seconds`: duration of an execution's last turn.
    pub fn record_orchestration_duration(
        &self,
        name: &str,
        version: &str,
        status: CompletionStatus,
        took: Duration,
    ) {
        histogram!(
            "everturn_orchestration_duration_seconds",
            "orchestration_name" => name.to_owned(),
            "version" => version.to_owned(),
            "status" => status.as_str()
        )
        .record(took);
    }

    /// `everturn_orchestration_turns`: number of turns of an execution.
    pub fn record_orchestration_turns(&self, name: &str, turns: u64) {
        histogram!("everturn_orchestration_turns", "orchestration_name" => name.to_owned())
            .record(turns as f64);
    }

    /// `everturn_orchestration_history_size`: number of events of an execution.
    pub fn record_orchestration_history_size(&self, name: &str, events: u64) {
        histogram!("everturn_orchestration_history_size", "orchestration_name" => name.to_owned())
            .record(events as f64);
    }

    /// `everturn_orchestration_failures_total`: an execution failed.
    pub fn record_orchestration_failure(&self, name: &str, version: &str, details: &ErrorDetails) {
        let failure = FailureType::of(details);
        bump(&self.counters.orch_failures);
        if failure == FailureType::Application {
            bump(&self.counters.orch_application_errors);
        }
        counter!(
            "everturn_orchestration_failures_total",
            "orchestration_name" => name.to_owned(),
            "version" => version.to_owned(),
            "error_type" => failure.as_str(),
            "error_category" => error_category(details)
        )
        .increment(1);
    }

    /// `everturn_orchestration_infrastructure_errors_total`: an execution failed because of the engine or the store.
    pub fn record_orchestration_infrastructure_error(&self, name: &str, error_category: &'static str) {
        bump(&self.counters.orch_infrastructure_errors);
        counter!(
            "everturn_orchestration_infrastructure_errors_total",
            "orchestration_name" => name.to_owned(),
            "error_category" => error_category
        )
        .increment(1);
    }

    /// `everturn_orchestration_configuration_errors_total`: an execution failed because its code does not match its history.
    pub fn record_orchestration_configuration_error(&self, name: &str, error_category: &'static str) {
        bump(&self.counters.orch_configuration_errors);
        counter!(
            "everturn_orchestration_configuration_errors_total",
            "orchestration_name" => name.to_owned(),
            "error_category" => error_category
        )
        .increment(1);
    }

    /// `everturn_orchestration_continue_as_new_total`: an execution continued as new.
    pub fn record_orchestration_continue_as_new(&self, name: &str) {
        bump(&self.counters.orch_continue_as_new);
        counter!("everturn_orchestration_continue_as_new_total", "orchestration_name" => name.to_owned())
            .increment(1);
    }

    /// `everturn_suborchestration_calls_total`: an orchestration called a child.
    pub fn record_suborchestration_call(&self, parent: &str, child: &str) {
        bump(&self.counters.suborchestration_calls);
        counter!(
            "everturn_suborchestration_calls_total",
            "parent_orchestration" => parent.to_owned(),
            "child_orchestration" => child.to_owned()
        )
        .increment(1);
    }

    /// `everturn_orchestration_dispatcher_items_fetched`: a dispatcher fetched a turn.
    pub fn record_orchestration_item_fetched(&self) {
        bump(&self.counters.orch_dispatcher_items_fetched);
        counter!("everturn_orchestration_dispatcher_items_fetched").increment(1);
    }

    /// `everturn_orchestration_poison_total`: an instance failed because its messages were tried too often.
    pub fn record_orchestration_poison(&self) {
        bump(&self.counters.orch_poison);
        counter!("everturn_orchestration_poison_total").increment(1);
    }

    /// Records the failure of an execution in all its metrics.
    pub(crate) fn orchestration_failed(&self, name: &str, version: &str, details: &ErrorDetails) {
        self.record_orchestration_failure(name, version, details);
        match FailureType::of(details) {
            FailureType::Infrastructure => {
                self.record_orchestration_infrastructure_error(name, error_category(details));
            }
            FailureType::Configuration => {
                self.record_orchestration_configuration_error(name, error_category(details));
            }
            FailureType::Application | FailureType::Unknown => {}
        }
    }
}
