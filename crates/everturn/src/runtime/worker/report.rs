//! The metrics and log lines of an activity. An attempt is counted once, when the worker is done with it.

use std::time::Duration;

use everturn_core::ErrorDetails;

use super::WorkerSlot;
use super::activity::ActivityItem;
use crate::runtime::observability::ActivityOutcome;

/// Emits one line of an activity. A macro, because the level is part of the call site.
macro_rules! log_activity {
    ($level:ident, $slot:expr, $item:expr, $($field:tt)*) => {
        tracing::$level!(
            target: "everturn::runtime",
            instance_id = %$item.instance,
            execution_id = %$item.execution_id,
            activity_name = %$item.name,
            activity_id = %$item.id,
            activity_tag = %$item.tag.as_deref().unwrap_or("default"),
            worker_id = %$slot.worker_id,
            $($field)*
        )
    };
}

pub(super) fn started(slot: &WorkerSlot, item: &ActivityItem) {
    log_activity!(debug, slot, item, "Activity started");
}

/// The outcome of an activity is stored.
pub(super) fn ended(slot: &WorkerSlot, item: &ActivityItem, result: Result<usize, &str>, took: Duration) {
    let duration_ms = took.as_millis() as u64;
    let outcome = match result {
        Ok(result_size) => {
            log_activity!(
                debug,
                slot,
                item,
                outcome = "success",
                duration_ms,
                result_size,
                "Activity completed"
            );
            ActivityOutcome::Success
        }
        Err(error) => {
            log_activity!(warn, slot, item, outcome = "app_error", duration_ms, error_type = "application", %error,
                "Activity failed (application error)");
            ActivityOutcome::AppError
        }
    };
    count(slot, item, outcome, took);
}

/// An activity was cancelled and may still end by itself.
pub(super) fn grace_begins(slot: &WorkerSlot, item: &ActivityItem, grace: Duration) {
    log_activity!(
        info,
        slot,
        item,
        grace_ms = grace.as_millis() as u64,
        "Activity cancelled, waiting for its grace period"
    );
}

/// A cancelled activity has ended.
pub(super) fn cancelled(slot: &WorkerSlot, item: &ActivityItem, took: Duration) {
    log_activity!(
        debug,
        slot,
        item,
        outcome = "cancelled",
        duration_ms = took.as_millis() as u64,
        "Activity cancelled"
    );
    count(slot, item, ActivityOutcome::Cancelled, took);
}

/// The outcome of an activity could not be stored.
pub(super) fn not_stored(
    slot: &WorkerSlot,
    item: &ActivityItem,
    error: &everturn_provider::ProviderError,
    took: Duration,
) {
    log_activity!(warn, slot, item, outcome = "infra_error", error_type = "infrastructure", %error,
        "storing the outcome of an activity failed; unless an earlier try stored it, the activity runs again");
    count(slot, item, ActivityOutcome::InfraError, took);
}

/// The failure of a poisoned activity is stored.
pub(super) fn poisoned(slot: &WorkerSlot, item: &ActivityItem, details: &ErrorDetails) {
    log_activity!(error, slot, item, error_type = details.category(), error = %details.display_message(),
        "Activity failed");
    if let Some(metrics) = &slot.node.metrics {
        metrics.record_activity_poison();
    }
}

/// This runtime has no handler of the activity's name.
pub(super) fn unregistered(slot: &WorkerSlot, item: &ActivityItem, backoff: Duration) {
    let max_attempts = slot.node.options.max_attempts;
    log_activity!(
        warn,
        slot,
        item,
        attempt_count = item.attempt_count,
        max_attempts,
        remaining_attempts = max_attempts.saturating_sub(item.attempt_count),
        backoff_secs = backoff.as_secs_f64(),
        "Activity not registered, abandoning its lock"
    );
}

fn count(slot: &WorkerSlot, item: &ActivityItem, outcome: ActivityOutcome, took: Duration) {
    if let Some(metrics) = &slot.node.metrics {
        metrics.activity_ended(&item.name, outcome, item.tag.as_deref(), took);
    }
}
