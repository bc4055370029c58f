//! What a registered orchestration is to the engine.

use std::sync::Arc;

use async_trait::async_trait;

use crate::context::OrchestrationContext;

/// A registered orchestration: a deterministic function from an input to an output.
///
/// Closures are registered directly; implement this trait for handlers with state of their own.
#[async_trait]
pub trait OrchestrationHandler: Send + Sync {
    /// Runs the orchestration. It is called again with the same input whenever the instance is replayed.
    async fn invoke(&self, ctx: OrchestrationContext, input: String) -> Result<String, String>;
}

/// A shared handler.
pub type OrchestrationHandlerRef = Arc<dyn OrchestrationHandler>;
