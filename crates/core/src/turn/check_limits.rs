//! Limits of a turn, checked after the code ran and before anything is committed.

use super::Execution;
use super::draft::TurnDraft;
use crate::limits::{
    MAX_CARRIED_BYTES, MAX_CUSTOM_STATUS_BYTES, MAX_KV_KEYS, MAX_KV_VALUE_BYTES, MAX_TAG_NAME_BYTES,
    payload_too_large,
};
use crate::{ErrorDetails, Event, EventKind};

/// Sizes of what the code decided in a turn, as far as they are limited.
#[derive(Default)]
struct DecidedSizes<'a> {
    /// Of the last custom status that the code set.
    status_bytes: usize,
    /// The first activity whose tag is too long, and the size of the tag.
    long_tag: Option<(&'a str, usize)>,
    /// The first key whose value is too large, and the size of the value.
    large_kv_value: Option<(&'a str, usize)>,
    writes_kv: bool,
    /// Of the largest payload of a call without a result. A call with a result fails by itself if its input is too large.
    payload_bytes: usize,
}

impl<'a> DecidedSizes<'a> {
    fn of(decided: &'a [Event]) -> Self {
        let mut sizes = Self::default();
        for event in decided {
            match &event.kind {
                EventKind::CustomStatusUpdated { status: Some(status) } => {
                    sizes.status_bytes = status.len();
                    sizes.payload_bytes = sizes.payload_bytes.max(status.len());
                }
                EventKind::KeyValueSet { key, value, .. } => {
                    sizes.writes_kv = true;
                    sizes.payload_bytes = sizes.payload_bytes.max(value.len());
                    if value.len() > MAX_KV_VALUE_BYTES {
                        sizes.large_kv_value.get_or_insert((key, value.len()));
                    }
                }
                EventKind::OrchestrationChained { input, .. } => {
                    sizes.payload_bytes = sizes.payload_bytes.max(input.len());
                }
                EventKind::ActivityScheduled { name, tag, .. } => {
                    if let Some(tag) = tag.as_ref().filter(|tag| tag.len() > MAX_TAG_NAME_BYTES) {
                        sizes.long_tag.get_or_insert((name, tag.len()));
                    }
                }
                EventKind::CustomStatusUpdated { status: None }
                | EventKind::KeyValueCleared { .. }
                | EventKind::KeyValuesCleared
                | EventKind::SubOrchestrationScheduled { .. }
                | EventKind::TimerCreated { .. }
                | EventKind::ExternalSubscribed { .. }
                | EventKind::QueueSubscribed { .. }
                | EventKind::ActivityCancelRequested { .. }
                | EventKind::SubOrchestrationCancelRequested { .. }
                | EventKind::ExternalSubscribedCancelled { .. }
                | EventKind::QueueSubscriptionCancelled { .. }
                | EventKind::ActivityFailed { .. }
                | EventKind::SubOrchestrationFailed { .. } => {}
                // The code decides none of these.
                EventKind::OrchestrationStarted { .. }
                | EventKind::OrchestrationCompleted { .. }
                | EventKind::OrchestrationFailed { .. }
                | EventKind::OrchestrationContinuedAsNew { .. }
                | EventKind::OrchestrationCancelRequested { .. }
                | EventKind::ActivityCompleted { .. }
                | EventKind::TimerFired { .. }
                | EventKind::ExternalEvent { .. }
                | EventKind::QueueEventDelivered { .. }
                | EventKind::SubOrchestrationCompleted { .. } => {}
            }
        }
        sizes
    }
}

impl Execution {
    /// Fails if the turn broke a limit. Of several broken limits it reports the one that is checked first.
    pub(super) fn check_limits(&self, draft: &TurnDraft) -> Result<(), ErrorDetails> {
        let broken = |text: String| Err(ErrorDetails::orchestration_failed(text));
        let DecidedSizes { status_bytes, long_tag, large_kv_value, writes_kv, mut payload_bytes } =
            DecidedSizes::of(draft.delta.get(draft.received..).unwrap_or_default());
        if status_bytes > MAX_CUSTOM_STATUS_BYTES {
            return broken(format!(
                "Custom status size ({status_bytes} bytes) exceeds limit ({MAX_CUSTOM_STATUS_BYTES} bytes)"
            ));
        }
        if let Some((name, bytes)) = long_tag {
            return broken(format!(
                "Activity '{name}' tag size ({bytes} bytes) exceeds limit ({MAX_TAG_NAME_BYTES} bytes)"
            ));
        }
        if let Some((key, bytes)) = large_kv_value {
            return broken(format!(
                "KV value for key '{key}' ({bytes} bytes) exceeds limit ({MAX_KV_VALUE_BYTES} bytes)"
            ));
        }
        let state = self.shared.lock();
        let keys = state.kv.len();
        if writes_kv && keys > MAX_KV_KEYS {
            return broken(format!("KV key count ({keys}) exceeds limit ({MAX_KV_KEYS})"));
        }
        // Only what becomes the outcome counts: a cancel request wins over a successor, and a successor over what the
        // code returned.
        let mut carried = 0;
        if self.record.history.cancel_reason.is_none() {
            let outcome = match (&draft.successor, &self.output) {
                (Some(successor), _) => {
                    carried = state.queues.unread().map(|(name, data)| name.len() + data.len()).sum();
                    successor.input.len()
                }
                (None, Some(Ok(output) | Err(output))) => output.len(),
                (None, None) => 0,
            };
            payload_bytes = payload_bytes.max(outcome);
        }
        if payload_bytes > self.payload_bytes_max {
            return broken(payload_too_large(payload_bytes, self.payload_bytes_max));
        }
        if carried > MAX_CARRIED_BYTES {
            return broken(format!(
                "Carried queue messages ({carried} bytes) exceed limit ({MAX_CARRIED_BYTES} bytes)"
            ));
        }
        Ok(())
    }
}
