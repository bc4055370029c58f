//! Log lines of an orchestration, written once and not again by replay.

use super::OrchestrationContext;

macro_rules! trace_at {
    ($ctx:expr, $level:ident, $message:expr $(, $field:ident)?) => {{
        let message = $message;
        let identity = {
            let state = $ctx.shared.lock();
            if state.replaying {
                return;
            }
            state.identity.clone()
        };
        tracing::$level!(
            target: "everturn::orchestration",
            instance_id = %identity.instance,
            execution_id = %identity.execution_id,
            orchestration_name = %identity.orchestration_name,
            orchestration_version = %identity.orchestration_version,
            $($field = %$field,)?
            "{message}"
        );
    }};
}

impl OrchestrationContext {
    /// Writes a log line unless the code is replaying. Unknown levels go to TRACE with the level as a field.
    pub fn trace(&self, level: impl Into<String>, message: impl Into<String>) {
        let level = level.into();
        match level.to_ascii_uppercase().as_str() {
            "INFO" => self.trace_info(message),
            "WARN" => self.trace_warn(message),
            "ERROR" => self.trace_error(message),
            "DEBUG" => self.trace_debug(message),
            _ => trace_at!(self, trace, message.into(), level),
        }
    }

    /// Writes a log line at INFO unless the code is replaying.
    ///
    /// ```
    /// use everturn_core::OrchestrationContext;
    ///
    /// async fn order(ctx: OrchestrationContext, id: String) -> Result<String, String> {
    ///     ctx.trace_info(format!("charging {id}"));
    ///     ctx.schedule_activity("Charge", id).await
    /// }
    /// ```
    pub fn trace_info(&self, message: impl Into<String>) {
        trace_at!(self, info, message.into());
    }

    /// Writes a log line at WARN unless the code is replaying.
    pub fn trace_warn(&self, message: impl Into<String>) {
        trace_at!(self, warn, message.into());
    }

    /// Writes a log line at ERROR unless the code is replaying.
    pub fn trace_error(&self, message: impl Into<String>) {
        trace_at!(self, error, message.into());
    }

    /// Writes a log line at DEBUG unless the code is replaying.
    pub fn trace_debug(&self, message: impl Into<String>) {
        trace_at!(self, debug, message.into());
    }
}
