//! What is counted and logged of an activity. It is counted once, when it is settled what becomes of it.

use std::time::Duration;

use everturn_core::ErrorDetails;

use super::Slot;
use super::activity::ActivityItem;
use crate::runtime::observability::ActivityOutcome;

/// Emits one line of an activity; a level is part of a call site, so this cannot be a function.
macro_rules! line {
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

pub(super) fn started(slot: &Slot, item: &ActivityItem) {
    line!(debug, slot, item, "Activity started");
}

/// The outcome of an activity that ended by itself is stored.
pub(super) fn ended(slot: &Slot, item: &ActivityItem, result: Result<usize, &str>, took: Duration) {
    let duration_ms = took.as_millis() as u64;
    let outcome = match result {
        Ok(result_size) => {
            line!(debug, slot, item, outcome = "success", duration_ms, result_size, "Activity completed");
            ActivityOutcome::Success
        }
        Err(error) => {
            line!(warn, slot, item, outcome = "app_error", duration_ms, error_type = "application", %error,
                "Activity failed (application error)");
            ActivityOutcome::AppError
        }
    };
    count(slot, item, outcome, took);
}

/// An activity is no longer wanted and may still end by itself.
pub(super) fn grace_begins(slot: &Slot, item: &ActivityItem, grace: Duration) {
    line!(
        info,
        slot,
        item,
        grace_ms = grace.as_millis() as u64,
        "Activity cancelled, waiting for its grace period"
    );
}

/// A cancelled activity is off the queue.
pub(super) fn cancelled(slot: &Slot, item: &ActivityItem, took: Duration) {
    line!(
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
    slot: &Slot,
    item: &ActivityItem,
    error: &everturn_provider::ProviderError,
    took: Duration,
) {
    line!(warn, slot, item, outcome = "infra_error", error_type = "infrastructure", %error,
        "the outcome of an activity could not be stored, it is given back");
    count(slot, item, ActivityOutcome::InfraError, took);
}

/// An activity was given up.
pub(super) fn poisoned(slot: &Slot, item: &ActivityItem, details: &ErrorDetails) {
    line!(error, slot, item, error_type = details.category(), error = %details.display_message(),
        "Activity failed");
    if let Some(metrics) = &slot.node.metrics {
        metrics.record_activity_poison();
    }
}

/// This runtime has no handler of that name.
pub(super) fn unregistered(slot: &Slot, item: &ActivityItem, backoff: Duration) {
    let max_attempts = slot.node.options.max_attempts;
    line!(
        warn,
        slot,
        item,
        attempt_count = item.attempt_count,
        max_attempts,
        remaining_attempts = max_attempts.saturating_sub(item.attempt_count),
        backoff_secs = backoff.as_secs_f64(),
        "Activity not registered, giving it back"
    );
}

fn count(slot: &Slot, item: &ActivityItem, outcome: ActivityOutcome, took: Duration) {
    if let Some(metrics) = &slot.node.metrics {
        metrics.activity_ended(&item.name, outcome, item.tag.as_deref(), took);
    }
}
