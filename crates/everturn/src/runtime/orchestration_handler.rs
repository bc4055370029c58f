//! Orchestrations made of functions.

use std::future::Future;

use async_trait::async_trait;
use everturn_core::{OrchestrationContext, OrchestrationHandler};

/// Makes an [`OrchestrationHandler`] of a function.
pub struct FnOrchestration<F, Fut>(pub F)
where
    F: Fn(OrchestrationContext, String) -> Fut;

#[async_trait]
impl<F, Fut> OrchestrationHandler for FnOrchestration<F, Fut>
where
    F: Fn(OrchestrationContext, String) -> Fut + Send + Sync,
    Fut: Future<Output = Result<String, String>> + Send,
{
    async fn invoke(&self, ctx: OrchestrationContext, input: String) -> Result<String, String> {
        (self.0)(ctx, input).await
    }
}
