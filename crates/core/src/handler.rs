//! The trait of a registered orchestration.

use std::sync::Arc;

use async_trait::async_trait;

use crate::context::OrchestrationContext;

/// A registered orchestration: a deterministic function from an input to an output.
///
/// Closures can be registered directly. Implement this trait for a handler with state.
#[async_trait]
pub trait OrchestrationHandler: Send + Sync {
    /// Runs the orchestration. The engine calls it again with the same input whenever it replays the instance.
    async fn invoke(&self, ctx: OrchestrationContext, input: String) -> Result<String, String>;
}

/// A shared handler.
pub type OrchestrationHandlerRef = Arc<dyn OrchestrationHandler>;
