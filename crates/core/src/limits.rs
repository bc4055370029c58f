//! Every limit of the engine, with its reason.

use std::fmt;

/// Largest custom status in bytes: it is read on every status query.
pub const MAX_CUSTOM_STATUS_BYTES: usize = 262_144;

/// Most tags one worker may serve: each is a branch of the fetch query.
pub const MAX_WORKER_TAGS: usize = 5;

/// Longest tag name in bytes: tags are labels, not payloads.
pub const MAX_TAG_NAME_BYTES: usize = 256;

/// Longest instance id or name in bytes: both are keys of indexes and parts of every log line. A generated child id may be
/// longer by its suffix.
pub const MAX_NAME_BYTES: usize = 1_024;

/// Longest instance id in bytes with the suffixes of generated child ids: room for more than a thousand generations, and too
/// little to fill a queue with ids that look generated.
pub const MAX_INSTANCE_ID_BYTES: usize = 16 * 1_024;

/// Most keys an instance's key-value store may hold: the store is loaded with every cold turn.
pub const MAX_KV_KEYS: usize = 150;

/// Largest value of the key-value store in bytes, for the same reason.
pub const MAX_KV_VALUE_BYTES: usize = 65_536;

/// Largest payload in UTF-8 bytes unless the provider sets another limit: other transactions wait behind the
/// transaction of a turn, so it must stay small.
pub const DEFAULT_PAYLOAD_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Most decisions one turn may take: stops a loop that never waits before it uses up the machine's memory.
pub const MAX_DECISIONS_PER_TURN: usize = 100_000;

/// Most bytes of unread queue messages that continue-as-new carries: they travel in one message and one event.
pub const MAX_CARRIED_BYTES: usize = 64 * 1024 * 1024;

/// Bytes that the text of a failure may have even if the payload limit is smaller: a failure must name its cause.
pub const MIN_FAILURE_TEXT_BYTES: usize = 1_024;

/// Most instances one dispatcher slot fetches at once, and with how many in hand it fetches no more: enough to fill a commit,
/// few enough to be polled one by one.
pub const MAX_TURNS_IN_HAND: usize = 16;

/// Dispatcher slots fetch no turn while so many executions wait to be dropped: dropping one takes microseconds, so that more
/// wait only if a destructor of the user's code blocks, and each of them still holds its payloads.
pub const MAX_DEFERRED_DROPS: usize = 1_024;

/// Most cancelled activities remembered for workers that have fetched an activity but not started it: workers start it
/// within milliseconds.
pub const MAX_EARLY_CANCELLATIONS: usize = 1_024;

/// Most pieces of work of which a runtime remembers the attempts that an outage of the store cost them: as many as a runtime
/// has under way, many times over.
pub const MAX_UNCOUNTED_ATTEMPTS: usize = 4_096;

/// Most messages one sweep dead-letters: other transactions wait behind it.
pub const MAX_DEAD_LETTERS_PER_SWEEP: usize = 1_000;

/// Most dead letters a store keeps, the newest: clients can send messages to any id, so there is no end to them.
pub const MAX_DEAD_LETTERS: usize = 10_000;

/// Shortest accepted lock timeout: with a shorter one, renewals come too late on a busy machine.
pub const MIN_LOCK_TIMEOUT_MS: u64 = 200;

/// The error text for a payload that is too large. `what` says which payload of which call.
///
/// ```
/// assert_eq!(
///     everturn_core::limits::payload_too_large("input of activity Pack", 9, 8),
///     "input of activity Pack: Payload size (9 bytes) exceeds limit (8 bytes); \
///      see the provider option payload_bytes_max"
/// );
/// ```
pub fn payload_too_large(what: impl fmt::Display, bytes: usize, max: usize) -> String {
    format!("{what}: {}", PayloadTooLarge { bytes, max })
}

/// A payload above the limit.
///
/// A history records it as the text of the call's failure. This type is the only place that writes and reads the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PayloadTooLarge {
    bytes: usize,
    max: usize,
}

impl PayloadTooLarge {
    const BEFORE_BYTES: &str = "Payload size (";
    const BEFORE_MAX: &str = " bytes) exceeds limit (";
    const AFTER_MAX: &str = " bytes)";
    const HINT: &str = "; see the provider option payload_bytes_max";

    /// Reads the recorded text, also without the hint at its end; `None` for any other text.
    pub(crate) fn from_recorded(text: &str) -> Option<Self> {
        let sizes = text.strip_suffix(Self::HINT).unwrap_or(text).strip_suffix(Self::AFTER_MAX)?;
        let (_what, sizes) = sizes.rsplit_once(Self::BEFORE_BYTES)?;
        let (bytes, max) = sizes.split_once(Self::BEFORE_MAX)?;
        Some(Self { bytes: bytes.parse().ok()?, max: max.parse().ok()? })
    }
}

impl fmt::Display for PayloadTooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes, max } = self;
        write!(f, "{}{bytes}{}{max}{}{}", Self::BEFORE_BYTES, Self::BEFORE_MAX, Self::AFTER_MAX, Self::HINT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_text_is_read_back_and_no_other_text_is() {
        let written = PayloadTooLarge { bytes: 9, max: 8 };
        for what in ["input of activity Pack", "", "input of activity Payload size (7 bytes)"] {
            assert_eq!(PayloadTooLarge::from_recorded(&payload_too_large(what, 9, 8)), Some(written));
        }
        let without_hint = "Payload size (9 bytes) exceeds limit (8 bytes)";
        assert_eq!(PayloadTooLarge::from_recorded(without_hint), Some(written));
        for other in
            ["", "Payload size (", "Payload size (9 bytes) exceeds limit", "Payload size of the parcel"]
        {
            assert_eq!(PayloadTooLarge::from_recorded(other), None, "{other}");
        }
    }
}
