//! Registering activities.

use std::future::Future;
use std::sync::Arc;

use everturn_core::SYSCALL_PREFIX;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::typed_payloads::TypedPayloads;
use super::{ActivityRegistry, ActivityRegistryBuilder, DEFAULT_VERSION};
use crate::runtime::activity_context::ActivityContext;
use crate::runtime::{ActivityHandler, FnActivity};

const DUPLICATE: &str = "duplicate activity registration";
const DUPLICATE_IN_MERGE: &str = "duplicate activity in merge";

impl ActivityRegistryBuilder {
    /// A builder with the activities of `registry`.
    pub fn from_registry(registry: &ActivityRegistry) -> Self {
        ActivityRegistry::builder_from(registry)
    }

    /// Registers a function as the activity `name`.
    #[must_use]
    pub fn register<F, Fut>(self, name: impl Into<String>, f: F) -> Self
    where
        F: Fn(ActivityContext, String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<String, String>> + Send + 'static,
    {
        self.insert_activity(name.into(), Arc::new(FnActivity(f)))
    }

    /// Registers a function with typed input and output as the activity `name`. A string that it returns is sent as it is:
    /// [`codec`](crate::codec) says which strings are read as another value.
    #[must_use]
    pub fn register_typed<In, Out, F, Fut>(self, name: impl Into<String>, f: F) -> Self
    where
        In: DeserializeOwned + 'static,
        Out: Serialize + 'static,
        F: Fn(ActivityContext, In) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Out, String>> + Send + 'static,
    {
        let (name, f) = (name.into(), Arc::new(f));
        let payloads = TypedPayloads::of(format!("activity {name}"));
        let untyped = move |ctx: ActivityContext, input: String| {
            let (payloads, f) = (payloads.clone(), Arc::clone(&f));
            async move {
                let running = f(ctx, payloads.decode_input(&input)?);
                payloads.encode_output(&running.await?)
            }
        };
        self.insert_activity(name, Arc::new(FnActivity(untyped)))
    }

    /// Adds the activities of another registry. One that exists already is kept, and an error is recorded.
    #[must_use]
    pub fn merge(self, other: ActivityRegistry) -> Self {
        self.merge_registry(other, DUPLICATE_IN_MERGE)
    }

    /// Registers each function under its name.
    #[must_use]
    pub fn register_all<F, Fut>(self, items: Vec<(&str, F)>) -> Self
    where
        F: Fn(ActivityContext, String) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<String, String>> + Send + 'static,
    {
        self.register_all_handlers(items, |builder, name, f| builder.register(name, f))
    }

    /// Registers a built-in activity. Its name is reserved.
    pub(in crate::runtime) fn register_system(
        mut self,
        name: &str,
        handler: Arc<dyn ActivityHandler>,
    ) -> Self {
        self.insert(name.to_owned(), DEFAULT_VERSION, handler);
        self
    }

    fn insert_activity(mut self, name: String, handler: Arc<dyn ActivityHandler>) -> Self {
        if name.starts_with(SYSCALL_PREFIX) {
            self.reject(format!("activity name '{name}' uses reserved prefix '{SYSCALL_PREFIX}'"));
        } else {
            self.register_new("activity name", name, DEFAULT_VERSION, handler, DUPLICATE);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use everturn_provider::MemoryProvider;

    use super::*;

    /// The result of a typed activity that adds 1.
    async fn increment(input: &str) -> Result<String, String> {
        let registry = ActivityRegistry::builder()
            .register_typed("increment", |_ctx: ActivityContext, n: u32| async move {
                n.checked_add(1).ok_or_else(|| "too large".to_owned())
            })
            .build();
        let (_, handler) = registry.resolve_handler("increment").expect("it is registered");
        let ctx = ActivityContext::for_test(Arc::new(MemoryProvider::new()));
        handler.invoke(ctx, input.to_owned()).await
    }

    #[tokio::test]
    async fn a_typed_activity_decodes_and_encodes() {
        assert_eq!(increment("41").await, Ok("42".to_owned()));
        assert_eq!(increment("4294967295").await, Err("too large".to_owned()));
    }

    #[tokio::test]
    async fn a_typed_activity_fails_on_a_wrong_input() {
        let error = increment("many").await.expect_err("this is no number");
        let expected = "decoding the input of activity increment: invalid type: string \"many\"";
        assert!(error.starts_with(expected), "{error}");
        let error = increment("[1]").await.expect_err("this is no number");
        let expected = "decoding the input of activity increment: invalid type: sequence, expected u32";
        assert!(error.starts_with(expected), "{error}");
    }
}
