//! What providers that keep their data in tables store of events, messages and activities: encoded by the caller, so that what
//! writes the tables binds texts and numbers only.

mod activities;
mod history;
mod kv;
mod messages;

use std::time::Duration;

use crate::error::ProviderError;

pub use activities::StoredActivity;
pub use history::{EventCounts, HistoryDelta, StoredEvents, decode, stored_count, stored_id};
pub use kv::KvChange;
pub use messages::{StoredMessage, StoredTimer};

/// JSON text, or the error of encoding it.
#[inline]
pub fn encoded(operation: &str, json: serde_json::Result<String>) -> Result<String, ProviderError> {
    json.map_err(|error| ProviderError::permanent(operation, format!("encoding: {error}")).with_source(error))
}

/// A length of time in whole milliseconds, rounded up, so that nothing ends early.
pub fn length_ms(length: Duration) -> u64 {
    u64::try_from(length.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// A time as tables hold it: their integers are signed.
pub fn stored_ms(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}

/// A stored number that is never negative.
pub fn unsigned(stored: i64) -> u64 {
    u64::try_from(stored).unwrap_or(0)
}
