//! Random ids and the current time, recorded so that replay returns the same values.

use std::future::Future;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::OrchestrationContext;

impl OrchestrationContext {
    /// A new random UUID (version 4) as text.
    ///
    /// ```
    /// use everturn_core::OrchestrationContext;
    ///
    /// async fn charge(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    ///     // The same key in every replay, so that the bank sees one payment.
    ///     let key = ctx.new_guid().await?;
    ///     ctx.schedule_activity("Charge", format!("{order} {key}")).await
    /// }
    /// ```
    #[track_caller]
    pub fn new_guid(&self) -> impl Future<Output = Result<String, String>> + Send + use<> {
        self.system_call(crate::SYSCALL_NEW_GUID, String::new())
    }

    /// The current time with millisecond precision.
    ///
    /// ```
    /// use std::time::UNIX_EPOCH;
    /// use everturn_core::OrchestrationContext;
    ///
    /// async fn stamp(ctx: OrchestrationContext, order: String) -> Result<String, String> {
    ///     let now = ctx.utc_now().await?;
    ///     let seconds = now.duration_since(UNIX_EPOCH).map_err(|error| error.to_string())?.as_secs();
    ///     Ok(format!("{order} at {seconds}"))
    /// }
    /// ```
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
