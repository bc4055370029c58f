//! Sleeping for seconds or months.

use std::panic::Location;
use std::time::Duration;

use super::OrchestrationContext;
use crate::action::Action;
use crate::future::{DurableFuture, ScheduleKind};
use crate::{Bug, planted};

impl OrchestrationContext {
    /// Sleeps durably: the timer goes on while no process runs. Dropping it costs nothing.
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
        let scheduled = self.exchange.emit_for_result(location, |state| Action::Timer {
            fire_at_ms: state
                .now_ms
                .saturating_add(whole_ms_rounded_up(delay))
                .saturating_sub(u64::from(planted(Bug::TimerEarly))),
        });
        DurableFuture::scheduled(&self.exchange, ScheduleKind::Timer, scheduled, |_| ())
    }
}

/// A timer never fires early: a started millisecond counts as a whole one.
fn whole_ms_rounded_up(delay: Duration) -> u64 {
    u64::try_from(delay.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
