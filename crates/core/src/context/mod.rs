//! [`OrchestrationContext`], the handle through which orchestration code calls the engine.

use std::sync::Arc;

use crate::replay_state::SharedState;

mod activities;
mod children;
mod continue_as_new;
mod custom_status;
mod events;
mod expected_names;
mod kv;
mod system_calls;
mod timers;
mod tracing_calls;
mod typed_payloads;

/// The handle through which orchestration code calls the engine: cheap to clone, valid inside its orchestration.
///
/// Every effect of an orchestration goes through it and is recorded. Between two awaits of durable futures the code must
/// be deterministic: it reads no clock, draws no random numbers and does no I/O.
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
///         Either2::Second(()) => Err("no answer within three days".into()),
///     }
/// }
/// ```
#[derive(Clone)]
pub struct OrchestrationContext {
    pub(crate) shared: Arc<SharedState>,
}

impl OrchestrationContext {
    /// The id of this instance.
    pub fn instance_id(&self) -> String {
        self.shared.lock().identity.instance.clone()
    }

    /// Which execution of the instance this is; the first is 1.
    pub fn execution_id(&self) -> u64 {
        self.shared.lock().identity.execution_id
    }

    /// The registered name of this orchestration.
    pub fn orchestration_name(&self) -> String {
        self.shared.lock().identity.orchestration_name.clone()
    }

    /// The version of the handler that runs.
    pub fn orchestration_version(&self) -> String {
        self.shared.lock().identity.orchestration_version.clone()
    }

    /// Whether the code is being replayed: it repeats what history records.
    pub fn is_replaying(&self) -> bool {
        self.shared.lock().replaying
    }

    /// Always `false`; kept for programs that ask.
    pub fn is_logging_enabled(&self) -> bool {
        false
    }
}
