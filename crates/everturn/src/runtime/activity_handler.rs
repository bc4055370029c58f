//! What a registered activity is to the runtime.

use std::future::Future;

use async_trait::async_trait;

use super::activity_context::ActivityContext;

/// A registered activity: a function with side effects, run at least once, whose outcome is recorded once.
///
/// Closures are registered directly; implement this trait for handlers with state of their own.
#[async_trait]
pub trait ActivityHandler: Send + Sync {
    /// Runs the activity.
    async fn invoke(&self, ctx: ActivityContext, input: String) -> Result<String, String>;
}

/// A function as an [`ActivityHandler`].
pub struct FnActivity<F, Fut>(pub F)
where
    F: Fn(ActivityContext, String) -> Fut;

#[async_trait]
impl<F, Fut> ActivityHandler for FnActivity<F, Fut>
where
    F: Fn(ActivityContext, String) -> Fut + Send + Sync,
    Fut: Future<Output = Result<String, String>> + Send,
{
    async fn invoke(&self, ctx: ActivityContext, input: String) -> Result<String, String> {
        (self.0)(ctx, input).await
    }
}
