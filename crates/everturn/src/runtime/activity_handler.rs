//! The trait of registered activities.

use std::future::Future;

use async_trait::async_trait;

use super::activity_context::ActivityContext;

/// A registered activity: a function with side effects. It runs at least once, and its outcome is recorded once.
///
/// Closures can be registered directly. Implement this trait for handlers with state.
#[async_trait]
pub trait ActivityHandler: Send + Sync {
    /// Runs the activity.
    async fn invoke(&self, ctx: ActivityContext, input: String) -> Result<String, String>;
}

/// Makes an [`ActivityHandler`] of a function.
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
