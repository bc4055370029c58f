//! Durable timers.

use std::panic::Location;
use std::time::Duration;

use super::OrchestrationContext;
use crate::action::Action;
use crate::future::{DurableFuture, ScheduleKind};

impl OrchestrationContext {
    /// Waits for a durable timer. The timer runs on while no process runs. Dropping it records nothing.
    ///
    /// ```
    /// use std::time::Duration;
    /// use everturn_core::OrchestrationContext;
    ///
    /// async fn reminder(ctx: OrchestrationContext, to: String) -> Result<String, String> {
    ///     ctx.schedule_timer(Duration::from_secs(30 * 24 * 3600)).await;
    ///     ctx.schedule_activity("SendMail", to).await
    /// }
    /// ```
    #[track_caller]
    pub fn schedule_timer(&self, delay: Duration) -> DurableFuture<()> {
        self.timer(delay, Location::caller())
    }

    pub(super) fn timer(&self, delay: Duration, location: &'static Location<'static>) -> DurableFuture<()> {
        // A timer never fires early: a started millisecond counts as a whole one.
        let delay_ms = u64::try_from(delay.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        DurableFuture::emit(
            &self.shared,
            ScheduleKind::Timer,
            location,
            |state| Action::Timer { fire_at_ms: state.now_ms.saturating_add(delay_ms) },
            |_| (),
        )
    }
}
