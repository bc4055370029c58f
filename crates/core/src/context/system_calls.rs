//! What is random or changes with time, recorded so that it replays.

use std::future::Future;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::OrchestrationContext;

impl OrchestrationContext {
    /// A new random UUID (version 4) as text.
    #[track_caller]
    pub fn new_guid(&self) -> impl Future<Output = Result<String, String>> + Send + use<> {
        self.system_call(crate::SYSCALL_NEW_GUID, String::new())
    }

    /// The current time with millisecond precision.
    #[track_caller]
    pub fn utc_now(&self) -> impl Future<Output = Result<SystemTime, String>> + Send + use<> {
        self.system_call(crate::SYSCALL_UTC_NOW_MS, String::new()).map(|answer| {
            let text = answer?;
            let ms: u64 = text.parse().map_err(|error| format!("time '{text}' cannot be read: {error}"))?;
            UNIX_EPOCH
                .checked_add(Duration::from_millis(ms))
                .ok_or_else(|| format!("time '{text}' cannot be represented"))
        })
    }
}
