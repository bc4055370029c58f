//! Every bound of the engine, with its reason.

/// Largest custom status in bytes: it is read on every status query.
pub const MAX_CUSTOM_STATUS_BYTES: usize = 262_144;

/// Most tags one worker may serve: each is a branch of the fetch query.
pub const MAX_WORKER_TAGS: usize = 5;

/// Longest tag name in bytes: tags are labels, not payloads.
pub const MAX_TAG_NAME_BYTES: usize = 256;

/// Most keys an instance's key-value store may hold: the store is loaded with every cold turn.
pub const MAX_KV_KEYS: usize = 150;

/// Largest value of the key-value store in bytes, for the same reason.
pub const MAX_KV_VALUE_BYTES: usize = 65_536;

/// Largest payload in UTF-8 bytes unless the provider says otherwise: a turn's transaction must stay small enough for
/// everybody else's to wait behind it.
pub const DEFAULT_PAYLOAD_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Most decisions one turn may take: a loop that never waits ends here instead of eating the machine.
pub const MAX_DECISIONS_PER_TURN: usize = 100_000;

/// Most bytes of unread queue messages that continue-as-new carries: they travel in one message and one event.
pub const MAX_CARRIED_BYTES: usize = 64 * 1024 * 1024;

/// What the text of a failure may hold however small the payload limit is: a failure must be able to say what it is.
pub const MIN_FAILURE_TEXT_BYTES: usize = 1_024;

/// Most instances one dispatcher slot has in hand: enough to fill a commit, few enough to be polled one by one.
pub const MAX_TURNS_IN_HAND: usize = 16;

/// Most withdrawals that met no running activity and are remembered, for workers that have fetched but not begun:
/// they begin within moments.
pub const MAX_UNMET_WITHDRAWALS: usize = 1_024;

/// Shortest accepted lock timeout: below it a renewal cannot arrive in time on a busy machine.
pub const MIN_LOCK_TIMEOUT_MS: u64 = 200;

/// The text of a payload that is too large, wherever it is refused.
///
/// ```
/// assert_eq!(everturn_core::limits::payload_too_large(9, 8), "Payload size (9 bytes) exceeds limit (8 bytes)");
/// ```
pub fn payload_too_large(bytes: usize, max: usize) -> String {
    format!("{PAYLOAD_REFUSAL_PREFIX}{bytes} bytes) exceeds limit ({max} bytes)")
}

/// How the text of every refused payload begins; replay knows a refused call by it.
pub(crate) const PAYLOAD_REFUSAL_PREFIX: &str = "Payload size (";
