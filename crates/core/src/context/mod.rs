//! The handle that orchestration code talks to.

use std::sync::Arc;

use crate::exchange::Exchange;

mod activities;
mod children;
mod continue_as_new;
mod custom_status;
mod events;
mod kv;
mod system_calls;
mod timers;
mod tracing_calls;

/// The handle that orchestration code talks to: cheap to clone, valid inside the orchestration it was given to.
///
/// Everything an orchestration does to the world goes through it and is recorded. Between two awaits of durable futures
/// the code must be deterministic: no clock, no randomness, no I/O of its own.
///
/// ```
/// use std::time::Duration;
/// use everturn_core::{Either2, OrchestrationContext};
///
/// async fn approval(ctx: OrchestrationContext, request: String) -> Result<String, String> {
///     ctx.schedule_activity("NotifyManager", request.clone()).await?;
///     let approved = ctx.schedule_wait("Approved");
///     let deadline = ctx.schedule_timer(Duration::from_secs(3 * 24 * 3600));
///     match ctx.select2(approved, deadline).await {
///         Either2::First(by) => ctx.schedule_activity("Pay", format!("{request} approved by {by}")).await,
///         Either2::Second(()) => Err("nobody answered".into()),
///     }
/// }
/// ```
#[derive(Clone)]
pub struct OrchestrationContext {
    pub(crate) exchange: Arc<Exchange>,
}

impl OrchestrationContext {
    pub(crate) fn new(exchange: Arc<Exchange>) -> Self {
        Self { exchange }
    }

    /// The id of this instance.
    pub fn instance_id(&self) -> String {
        self.exchange.state().identity.instance.clone()
    }

    /// Which execution of the instance this is; the first is 1.
    pub fn execution_id(&self) -> u64 {
        self.exchange.state().identity.execution_id
    }

    /// The registered name of this orchestration.
    pub fn orchestration_name(&self) -> String {
        self.exchange.state().identity.orchestration_name.clone()
    }

    /// The version of the handler that runs.
    pub fn orchestration_version(&self) -> String {
        self.exchange.state().identity.orchestration_version.clone()
    }

    /// Whether the code is going through what it did before, rather than something new.
    pub fn is_replaying(&self) -> bool {
        self.exchange.state().replaying
    }

    /// Always `false`; kept for programs that ask.
    pub fn is_logging_enabled(&self) -> bool {
        false
    }
}
