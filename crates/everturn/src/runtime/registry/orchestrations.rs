//! Registering orchestrations.

use std::future::Future;
use std::sync::Arc;

use everturn_core::{OrchestrationContext, codec};
use semver::Version;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{DEFAULT_VERSION, OrchestrationRegistry, OrchestrationRegistryBuilder, VersionPolicy};
use crate::runtime::{FnOrchestration, OrchestrationHandler};

const DUPLICATE: &str = "duplicate orchestration registration";
const DUPLICATE_IN_MERGE: &str = "duplicate orchestration in merge";

impl OrchestrationRegistryBuilder {
    /// Registers a function as version 1.0.0 of `name`.
    #[must_use]
    pub fn register<F, Fut>(mut self, name: impl Into<String>, f: F) -> Self
    where
        F: Fn(OrchestrationContext, String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<String, String>> + Send + 'static,
    {
        self.insert_new(name.into(), DEFAULT_VERSION, Arc::new(FnOrchestration(f)), DUPLICATE);
        self
    }

    /// Registers a function with typed input and output as version 1.0.0 of `name`. Replaces one that exists.
    ///
    /// ```
    /// use everturn::{OrchestrationContext, OrchestrationRegistry};
    ///
    /// let orchestrations = OrchestrationRegistry::builder()
    ///     .register_typed("total", |_ctx: OrchestrationContext, prices: Vec<u64>| async move {
    ///         Ok(prices.iter().sum::<u64>())
    ///     })
    ///     .build();
    /// assert!(orchestrations.has("total"));
    /// ```
    #[must_use]
    pub fn register_typed<In, Out, F, Fut>(mut self, name: impl Into<String>, f: F) -> Self
    where
        In: DeserializeOwned + 'static,
        Out: Serialize + 'static,
        F: Fn(OrchestrationContext, In) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Out, String>> + Send + 'static,
    {
        self.insert(name.into(), DEFAULT_VERSION, typed(f));
        self
    }

    /// Registers a function as the latest version of `name`.
    ///
    /// # Panics
    /// If `version` is not a semantic version, or not later than every registered version of `name`.
    #[must_use]
    pub fn register_versioned<F, Fut>(self, name: impl Into<String>, version: impl AsRef<str>, f: F) -> Self
    where
        F: Fn(OrchestrationContext, String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<String, String>> + Send + 'static,
    {
        self.insert_later(name.into(), version.as_ref(), Arc::new(FnOrchestration(f)))
    }

    /// Registers a function with typed input and output as the latest version of `name`.
    ///
    /// # Panics
    /// If `version` is not a semantic version, or not later than every registered version of `name`.
    #[must_use]
    pub fn register_versioned_typed<In, Out, F, Fut>(
        self,
        name: impl Into<String>,
        version: impl AsRef<str>,
        f: F,
    ) -> Self
    where
        In: DeserializeOwned + 'static,
        Out: Serialize + 'static,
        F: Fn(OrchestrationContext, In) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Out, String>> + Send + 'static,
    {
        self.insert_later(name.into(), version.as_ref(), typed(f))
    }

    /// Adds the orchestrations of another registry. One that exists already is kept, and an error is recorded.
    #[must_use]
    pub fn merge(self, other: OrchestrationRegistry) -> Self {
        self.merge_registry(other, DUPLICATE_IN_MERGE)
    }

    /// Registers each function as version 1.0.0 of its name.
    #[must_use]
    pub fn register_all<F, Fut>(self, items: Vec<(&str, F)>) -> Self
    where
        F: Fn(OrchestrationContext, String) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<String, String>> + Send + 'static,
    {
        self.register_all_handlers(items, |builder, name, f| builder.register(name, f))
    }

    /// Sets which version a start without a version runs.
    #[must_use]
    pub fn set_policy(mut self, name: impl Into<String>, policy: VersionPolicy) -> Self {
        self.put_policy(name.into(), policy);
        self
    }

    /// A wrong version is a mistake in the program, so it panics during set-up.
    fn insert_later(mut self, name: String, version: &str, handler: Arc<dyn OrchestrationHandler>) -> Self {
        let version = Version::parse(version).unwrap_or_else(|error| {
            panic!("version of orchestration {name} is not semantic: '{version}': {error}")
        });
        if let Some(latest) = self.latest_version(&name) {
            assert!(
                version > *latest,
                "non-monotonic orchestration version for {name}: {version} is not later than existing latest {latest}"
            );
        }
        self.insert(name, version, handler);
        self
    }
}

fn typed<In, Out, F, Fut>(f: F) -> Arc<dyn OrchestrationHandler>
where
    In: DeserializeOwned + 'static,
    Out: Serialize + 'static,
    F: Fn(OrchestrationContext, In) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Out, String>> + Send + 'static,
{
    let f = Arc::new(f);
    Arc::new(FnOrchestration(move |ctx: OrchestrationContext, input: String| {
        let f = Arc::clone(&f);
        async move {
            let running = f(ctx, codec::decode(&input)?);
            codec::encode(&running.await?)
        }
    }))
}
