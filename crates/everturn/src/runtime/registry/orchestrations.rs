//! Registering orchestrations.

use std::future::Future;
use std::sync::Arc;

use everturn_core::OrchestrationContext;
use semver::Version;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::typed_payloads::TypedPayloads;
use super::{DEFAULT_VERSION, OrchestrationRegistry, OrchestrationRegistryBuilder, VersionPolicy};
use crate::runtime::{FnOrchestration, OrchestrationHandler};

const DUPLICATE: &str = "duplicate orchestration registration";
const DUPLICATE_IN_MERGE: &str = "duplicate orchestration in merge";

impl OrchestrationRegistryBuilder {
    /// Registers a function as version 1.0.0 of `name`.
    #[must_use]
    pub fn register<F, Fut>(self, name: impl Into<String>, f: F) -> Self
    where
        F: Fn(OrchestrationContext, String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<String, String>> + Send + 'static,
    {
        self.insert_version(name.into(), DEFAULT_VERSION, Arc::new(FnOrchestration(f)))
    }

    /// Registers a function with typed input and output as version 1.0.0 of `name`. A string that it returns is sent as it
    /// is: [`codec`](crate::codec) says which strings are read as another value.
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
    pub fn register_typed<In, Out, F, Fut>(self, name: impl Into<String>, f: F) -> Self
    where
        In: DeserializeOwned + 'static,
        Out: Serialize + 'static,
        F: Fn(OrchestrationContext, In) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Out, String>> + Send + 'static,
    {
        let name = name.into();
        let handler = typed(&name, f);
        self.insert_version(name, DEFAULT_VERSION, handler)
    }

    /// Registers a function as the latest version of `name`. The latest version again is an error of the builder.
    ///
    /// # Panics
    /// If `version` is not a semantic version, or is earlier than the latest registered version of `name`.
    #[must_use]
    pub fn register_versioned<F, Fut>(self, name: impl Into<String>, version: impl AsRef<str>, f: F) -> Self
    where
        F: Fn(OrchestrationContext, String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<String, String>> + Send + 'static,
    {
        self.insert_later(name.into(), version.as_ref(), Arc::new(FnOrchestration(f)))
    }

    /// [`register_versioned`](Self::register_versioned) for a function with typed input and output.
    ///
    /// # Panics
    /// As [`register_versioned`](Self::register_versioned).
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
        let name = name.into();
        let handler = typed(&name, f);
        self.insert_later(name, version.as_ref(), handler)
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

    /// A version that is not semantic or comes too late is a mistake in the program, so it panics during set-up.
    fn insert_later(self, name: String, version: &str, handler: Arc<dyn OrchestrationHandler>) -> Self {
        let version = Version::parse(version).unwrap_or_else(|error| {
            panic!("version of orchestration {name} is not semantic: '{version}': {error}")
        });
        if let Some(latest) = self.latest_version(&name) {
            assert!(
                version >= *latest,
                "non-monotonic orchestration version for {name}: {version} is not later than existing latest {latest}"
            );
        }
        self.insert_version(name, version, handler)
    }

    fn insert_version(
        mut self,
        name: String,
        version: Version,
        handler: Arc<dyn OrchestrationHandler>,
    ) -> Self {
        self.register_new("orchestration name", name, version, handler, DUPLICATE);
        self
    }
}

fn typed<In, Out, F, Fut>(name: &str, f: F) -> Arc<dyn OrchestrationHandler>
where
    In: DeserializeOwned + 'static,
    Out: Serialize + 'static,
    F: Fn(OrchestrationContext, In) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Out, String>> + Send + 'static,
{
    let f = Arc::new(f);
    let payloads = TypedPayloads::of(format!("orchestration {name}"));
    Arc::new(FnOrchestration(move |ctx: OrchestrationContext, input: String| {
        let (payloads, f) = (payloads.clone(), Arc::clone(&f));
        async move {
            let running = f(ctx, payloads.decode_input(&input)?);
            payloads.encode_output(&running.await?)
        }
    }))
}
