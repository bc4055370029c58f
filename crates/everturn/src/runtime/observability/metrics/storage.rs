//! The metrics of the store.

use std::sync::atomic::Ordering;
use std::time::Duration;

use everturn_provider::ProviderError;
use metrics::{counter, histogram};

use super::MetricsProvider;
use crate::runtime::observability::labels::provider_error_type;
use crate::runtime::observability::snapshot::bump;

impl MetricsProvider {
    /// `everturn_provider_operation_duration_seconds`: an operation of the store ended.
    pub fn record_provider_operation(&self, operation: &'static str, succeeded: bool, took: Duration) {
        histogram!(
            "everturn_provider_operation_duration_seconds",
            "operation" => operation,
            "status" => if succeeded { "success" } else { "error" }
        )
        .record(took);
    }

    /// `everturn_messages_dead_lettered_total`: so many messages waited too long for the start of their instance.
    pub fn record_messages_dead_lettered(&self, messages: u64) {
        self.counters.messages_dead_lettered.fetch_add(messages, Ordering::Relaxed);
        counter!("everturn_messages_dead_lettered_total").increment(messages);
    }

    /// `everturn_provider_errors_total`: an operation of the store failed.
    pub fn record_provider_error(&self, operation: &'static str, error: &ProviderError) {
        bump(&self.counters.provider_errors);
        counter!(
            "everturn_provider_errors_total",
            "operation" => operation,
            "error_type" => provider_error_type(&error.message)
        )
        .increment(1);
    }
}
