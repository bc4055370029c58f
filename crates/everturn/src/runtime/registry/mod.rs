//! Registries: which handler runs under which name and version.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use semver::Version;

use super::{ActivityHandler, OrchestrationHandler};

mod activities;
mod builder;
mod orchestrations;
mod typed_payloads;

pub use builder::RegistryBuilder;

/// The orchestrations of a runtime, by name and version.
///
/// ```
/// use everturn::{OrchestrationContext, OrchestrationRegistry};
///
/// let orchestrations = OrchestrationRegistry::builder()
///     .register("greet", |_ctx: OrchestrationContext, name: String| async move { Ok(format!("hello {name}")) })
///     .register_versioned("greet", "2.0.0", |_ctx: OrchestrationContext, name: String| async move {
///         Ok(format!("good morning {name}"))
///     })
///     .build();
/// assert_eq!(orchestrations.resolve_version("greet").unwrap().to_string(), "2.0.0");
/// ```
pub type OrchestrationRegistry = Registry<dyn OrchestrationHandler>;

/// Builds an [`OrchestrationRegistry`].
pub type OrchestrationRegistryBuilder = RegistryBuilder<dyn OrchestrationHandler>;

/// The activities of a runtime, by name.
///
/// ```
/// use everturn::ActivityContext;
/// use everturn::runtime::registry::ActivityRegistry;
///
/// let activities = ActivityRegistry::builder()
///     .register("charge", |_ctx: ActivityContext, order: String| async move { Ok(format!("charged {order}")) })
///     .register_typed("add", |_ctx: ActivityContext, (a, b): (u32, u32)| async move { Ok(a + b) })
///     .build();
/// assert_eq!(activities.count(), 2);
/// ```
pub type ActivityRegistry = Registry<dyn ActivityHandler>;

/// Builds an [`ActivityRegistry`].
pub type ActivityRegistryBuilder = RegistryBuilder<dyn ActivityHandler>;

/// Handlers by name, in name order, and by version under each name.
type HandlersByName<H> = BTreeMap<String, BTreeMap<Version, Arc<H>>>;

/// The version of a handler that is registered without one.
const DEFAULT_VERSION: Version = Version::new(1, 0, 0);

/// Which version a start without a version runs.
#[derive(Clone, Debug)]
pub enum VersionPolicy {
    /// The highest registered version.
    Latest,
    /// This version only.
    Exact(Version),
}

/// Handlers by name and version. Cheap to clone; clones share the version policies.
pub struct Registry<H: ?Sized> {
    handlers: Arc<HandlersByName<H>>,
    policies: Arc<RwLock<HashMap<String, VersionPolicy>>>,
}

impl<H: ?Sized> Registry<H> {
    /// An empty builder.
    pub fn builder() -> RegistryBuilder<H> {
        RegistryBuilder::default()
    }

    /// A builder with the handlers and policies of `registry`.
    pub fn builder_from(registry: &Registry<H>) -> RegistryBuilder<H> {
        RegistryBuilder::starting_with(HandlersByName::clone(&registry.handlers), registry.policies_now())
    }

    /// The handler and version that a start without a version runs.
    pub fn resolve_handler(&self, name: &str) -> Option<(Version, Arc<H>)> {
        let resolved = self.resolve_by_policy(name);
        if resolved.is_none() {
            log_miss(name, None);
        }
        resolved
    }

    /// The version that a start without a version runs.
    pub fn resolve_version(&self, name: &str) -> Option<Version> {
        self.resolve_handler(name).map(|(version, _)| version)
    }

    /// The handler of exactly this version.
    pub fn resolve_handler_exact(&self, name: &str, version: &Version) -> Option<Arc<H>> {
        let handler = self.handlers.get(name).and_then(|versions| versions.get(version));
        if handler.is_none() {
            log_miss(name, Some(version));
        }
        handler.cloned()
    }

    /// Sets which version a start without a version runs, from now on and for every clone of this registry.
    pub fn set_version_policy(&self, name: &str, policy: VersionPolicy) {
        self.policies.write().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), policy);
    }

    /// All registered names, in order.
    pub fn list_names(&self) -> Vec<String> {
        self.handlers.keys().cloned().collect()
    }

    /// All versions of a name, ascending.
    pub fn list_versions(&self, name: &str) -> Vec<Version> {
        self.handlers.get(name).map(|versions| versions.keys().cloned().collect()).unwrap_or_default()
    }

    /// Returns true if any version of this name is registered.
    pub fn has(&self, name: &str) -> bool {
        self.handlers.contains_key(name)
    }

    /// The number of registered names.
    pub fn count(&self) -> usize {
        self.handlers.len()
    }

    /// Returns true if a start with this version, or without one, can be run.
    pub(crate) fn resolves(&self, name: &str, version: Option<&str>) -> bool {
        let Some(text) = version else { return self.resolve_by_policy(name).is_some() };
        let versions = self.handlers.get(name);
        Version::parse(text)
            .is_ok_and(|version| versions.is_some_and(|versions| versions.contains_key(&version)))
    }

    fn resolve_by_policy(&self, name: &str) -> Option<(Version, Arc<H>)> {
        let versions = self.handlers.get(name)?;
        let policies = self.policies.read().unwrap_or_else(PoisonError::into_inner);
        let (version, handler) = match policies.get(name) {
            None | Some(VersionPolicy::Latest) => versions.last_key_value(),
            Some(VersionPolicy::Exact(version)) => versions.get_key_value(version),
        }?;
        Some((version.clone(), Arc::clone(handler)))
    }

    fn policies_now(&self) -> HashMap<String, VersionPolicy> {
        self.policies.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn log_miss(name: &str, version: Option<&Version>) {
    match version {
        Some(version) => {
            tracing::debug!(target: "everturn::runtime::registry", %name, %version, "no such version registered");
        }
        None => tracing::debug!(target: "everturn::runtime::registry", %name, "no handler registered"),
    }
}

impl<H: ?Sized> Clone for Registry<H> {
    fn clone(&self) -> Self {
        Self { handlers: Arc::clone(&self.handlers), policies: Arc::clone(&self.policies) }
    }
}

impl<H: ?Sized> Default for Registry<H> {
    fn default() -> Self {
        Self { handlers: Arc::default(), policies: Arc::default() }
    }
}

impl<H: ?Sized> fmt::Debug for Registry<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let versions_of = |name| self.list_versions(name);
        f.debug_map().entries(self.handlers.keys().map(|name| (name, versions_of(name)))).finish()
    }
}
