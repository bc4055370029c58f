//! Limits a turn may not break. Checked after the code ran and before anything is committed.

use super::Execution;
use super::decide::Draft;
use crate::limits::{
    MAX_CARRIED_BYTES, MAX_CUSTOM_STATUS_BYTES, MAX_KV_KEYS, MAX_KV_VALUE_BYTES, MAX_TAG_NAME_BYTES,
    payload_too_large,
};
use crate::{ErrorDetails, EventKind};

impl Execution {
    /// Fails the instance if the turn broke a limit.
    pub(super) fn check_limits(&self, draft: &Draft) -> Result<(), ErrorDetails> {
        let violation = custom_status_violation(draft)
            .or_else(|| tag_violation(draft))
            .or_else(|| kv_value_violation(draft))
            .or_else(|| self.kv_count_violation(draft))
            .or_else(|| self.payload_violation(draft))
            .or_else(|| self.carried_violation(draft));
        violation.map_or(Ok(()), |text| Err(ErrorDetails::orchestration_failed(text)))
    }

    fn kv_count_violation(&self, draft: &Draft) -> Option<String> {
        let wrote = draft.decided().iter().any(|event| matches!(event.kind, EventKind::KeyValueSet { .. }));
        let keys = self.exchange.state().kv.len();
        (wrote && keys > MAX_KV_KEYS).then(|| format!("KV key count ({keys}) exceeds limit ({MAX_KV_KEYS})"))
    }

    fn payload_violation(&self, draft: &Draft) -> Option<String> {
        let decided = draft.decided().iter().filter_map(|event| match &event.kind {
            EventKind::OrchestrationChained { input, .. } => Some(input.len()),
            EventKind::KeyValueSet { value, .. } => Some(value.len()),
            EventKind::CustomStatusUpdated { status: Some(status) } => Some(status.len()),
            _ => None,
        });
        // Only what becomes the outcome counts: a cancel wins over a successor, and that over what the code returned.
        let cancelled = self.ledger.cancel_reason().is_some();
        let successor =
            draft.successor.as_ref().filter(|_| !cancelled).map(|successor| successor.input.len());
        let output = self.output.as_ref().filter(|_| !cancelled && draft.successor.is_none());
        let output = output.map(|output| output.as_ref().map_or_else(String::len, String::len));
        let max = self.payload_bytes_max;
        let largest = decided.chain(successor).chain(output).max()?;
        (largest > max).then(|| payload_too_large(largest, max))
    }

    fn carried_violation(&self, draft: &Draft) -> Option<String> {
        draft.successor.as_ref().filter(|_| self.ledger.cancel_reason().is_none())?;
        let state = self.exchange.state();
        let carried: usize = state.queues.unread().map(|(name, data)| name.len() + data.len()).sum();
        (carried > MAX_CARRIED_BYTES).then(|| {
            format!("Carried queue messages ({carried} bytes) exceed limit ({MAX_CARRIED_BYTES} bytes)")
        })
    }
}

fn custom_status_violation(draft: &Draft) -> Option<String> {
    let last = draft.decided().iter().rev().find_map(|event| match &event.kind {
        EventKind::CustomStatusUpdated { status: Some(status) } => Some(status.len()),
        _ => None,
    })?;
    (last > MAX_CUSTOM_STATUS_BYTES)
        .then(|| format!("Custom status size ({last} bytes) exceeds limit ({MAX_CUSTOM_STATUS_BYTES} bytes)"))
}

fn tag_violation(draft: &Draft) -> Option<String> {
    draft.decided().iter().find_map(|event| match &event.kind {
        EventKind::ActivityScheduled { name, tag: Some(tag), .. } if tag.len() > MAX_TAG_NAME_BYTES => {
            Some(format!(
                "Activity '{name}' tag size ({} bytes) exceeds limit ({MAX_TAG_NAME_BYTES} bytes)",
                tag.len()
            ))
        }
        _ => None,
    })
}

fn kv_value_violation(draft: &Draft) -> Option<String> {
    draft.decided().iter().find_map(|event| match &event.kind {
        EventKind::KeyValueSet { key, value, .. } if value.len() > MAX_KV_VALUE_BYTES => Some(format!(
            "KV value for key '{key}' ({} bytes) exceeds limit ({MAX_KV_VALUE_BYTES} bytes)",
            value.len()
        )),
        _ => None,
    })
}
