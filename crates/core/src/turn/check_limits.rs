//! Limits of a turn, checked after the code ran and before anything is committed.

use std::fmt;

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
    /// The largest payload of a call without a result. A call with a result fails by itself if its input is too large.
    largest: LimitedPayload<'a>,
}

/// A payload that no call reports as too large, and its size.
#[derive(Default, Clone, Copy)]
struct LimitedPayload<'a> {
    owner: PayloadOwner<'a>,
    bytes: usize,
}

impl<'a> LimitedPayload<'a> {
    fn or_larger(self, owner: PayloadOwner<'a>, bytes: usize) -> Self {
        if bytes > self.bytes { Self { owner, bytes } } else { self }
    }
}

/// What a payload belongs to.
#[derive(Default, Clone, Copy)]
enum PayloadOwner<'a> {
    #[default]
    CustomStatus,
    KvValue(&'a str),
    Detached(&'a str),
    Successor,
    Output,
    Error,
}

impl fmt::Display for PayloadOwner<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CustomStatus => f.write_str("custom status"),
            Self::KvValue(key) => write!(f, "value of key {key}"),
            Self::Detached(name) => write!(f, "input of detached orchestration {name}"),
            Self::Successor => f.write_str("input of continue_as_new"),
            Self::Output => f.write_str("output of the orchestration"),
            Self::Error => f.write_str("error of the orchestration"),
        }
    }
}

impl<'a> DecidedSizes<'a> {
    fn of(decided: &'a [Event]) -> Self {
        let mut sizes = Self::default();
        for event in decided {
            match &event.kind {
                EventKind::CustomStatusUpdated { status: Some(status) } => {
                    sizes.status_bytes = status.len();
                    sizes.largest = sizes.largest.or_larger(PayloadOwner::CustomStatus, status.len());
                }
                EventKind::KeyValueSet { key, value, .. } => {
                    sizes.writes_kv = true;
                    sizes.largest = sizes.largest.or_larger(PayloadOwner::KvValue(key), value.len());
                    if value.len() > MAX_KV_VALUE_BYTES {
                        sizes.large_kv_value.get_or_insert((key, value.len()));
                    }
                }
                EventKind::OrchestrationChained { name, input, .. } => {
                    sizes.largest = sizes.largest.or_larger(PayloadOwner::Detached(name), input.len());
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
        let DecidedSizes { status_bytes, long_tag, large_kv_value, writes_kv, mut largest } =
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
            largest = match (&draft.successor, &self.output) {
                (Some(successor), _) => {
                    carried = state.queues.unread().map(|(name, data)| name.len() + data.len()).sum();
                    largest.or_larger(PayloadOwner::Successor, successor.input.len())
                }
                (None, Some(Ok(output))) => largest.or_larger(PayloadOwner::Output, output.len()),
                (None, Some(Err(error))) => largest.or_larger(PayloadOwner::Error, error.len()),
                (None, None) => largest,
            };
        }
        let LimitedPayload { owner, bytes } = largest;
        if bytes > self.payload_bytes_max {
            return broken(payload_too_large(owner, bytes, self.payload_bytes_max));
        }
        if carried > MAX_CARRIED_BYTES {
            return broken(format!(
                "Carried queue messages ({carried} bytes) exceed limit ({MAX_CARRIED_BYTES} bytes)"
            ));
        }
        Ok(())
    }
}
