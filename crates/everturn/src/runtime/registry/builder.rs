//! Building a registry.

use std::collections::HashMap;
use std::sync::{Arc, RwLock};

use everturn_core::check_name;
use semver::Version;

use super::{HandlersByName, Registry, VersionPolicy};

/// Collects handlers, and the errors of registrations that were rejected.
///
/// A name and version that are registered twice, a reserved name and a name that [no client can
/// send](everturn_core::check_name) are rejected. [`build_result`](Self::build_result) returns all errors,
/// [`build`](Self::build) panics with them.
pub struct RegistryBuilder<H: ?Sized> {
    handlers: HandlersByName<H>,
    policies: HashMap<String, VersionPolicy>,
    errors: Vec<String>,
}

impl<H: ?Sized> RegistryBuilder<H> {
    /// The registry.
    ///
    /// # Panics
    /// If a registration was rejected, with the errors of all of them. Rejected registrations are mistakes in the program;
    /// use [`build_result`](Self::build_result) where they may come from outside.
    pub fn build(self) -> Registry<H> {
        self.build_result().unwrap_or_else(|errors| panic!("registrations were rejected: {errors}"))
    }

    /// The registry, or the errors of all rejected registrations.
    ///
    /// # Errors
    /// The texts of all errors, joined with `; `.
    pub fn build_result(self) -> Result<Registry<H>, String> {
        if !self.errors.is_empty() {
            return Err(self.errors.join("; "));
        }
        Ok(Registry { handlers: Arc::new(self.handlers), policies: Arc::new(RwLock::new(self.policies)) })
    }

    /// Adds the handlers of another registry. One that exists already is kept, and the error
    /// `{error_prefix}: {name}@{version}` is recorded. Policies are not merged.
    #[must_use]
    pub fn merge_registry(mut self, other: Registry<H>, error_prefix: &str) -> Self {
        for (name, versions) in other.handlers.iter() {
            for (version, handler) in versions {
                self.insert_new(name.clone(), version.clone(), Arc::clone(handler), error_prefix);
            }
        }
        self
    }

    /// Registers each of `items` with `register_fn`.
    #[must_use]
    pub fn register_all_handlers<F: Clone>(
        self,
        items: Vec<(&str, F)>,
        register_fn: impl Fn(Self, &str, F) -> Self,
    ) -> Self {
        items.into_iter().fold(self, |builder, (name, handler)| register_fn(builder, name, handler))
    }

    pub(super) fn starting_with(
        handlers: HandlersByName<H>,
        policies: HashMap<String, VersionPolicy>,
    ) -> Self {
        Self { handlers, policies, errors: Vec::new() }
    }

    /// Adds a handler under a name of this kind, as in `activity name`. Records an error if the name is impossible, or
    /// name and version exist already.
    pub(super) fn register_new(
        &mut self,
        kind_of_name: &str,
        name: String,
        version: Version,
        handler: Arc<H>,
        error_prefix: &str,
    ) {
        match check_name(kind_of_name, &name) {
            Ok(()) => self.insert_new(name, version, handler, error_prefix),
            Err(error) => self.reject(error),
        }
    }

    /// Adds a handler. Records an error if its name and version exist already.
    fn insert_new(&mut self, name: String, version: Version, handler: Arc<H>, error_prefix: &str) {
        if self.handlers.get(&name).is_some_and(|versions| versions.contains_key(&version)) {
            self.reject(format!("{error_prefix}: {name}@{version}"));
        } else {
            self.insert(name, version, handler);
        }
    }

    /// Adds a handler. Replaces one with the same name and version.
    pub(super) fn insert(&mut self, name: String, version: Version, handler: Arc<H>) {
        self.handlers.entry(name).or_default().insert(version, handler);
    }

    pub(super) fn latest_version(&self, name: &str) -> Option<&Version> {
        self.handlers.get(name)?.last_key_value().map(|(version, _)| version)
    }

    pub(super) fn put_policy(&mut self, name: String, policy: VersionPolicy) {
        self.policies.insert(name, policy);
    }

    pub(super) fn reject(&mut self, error: String) {
        self.errors.push(error);
    }
}

impl<H: ?Sized> Default for RegistryBuilder<H> {
    fn default() -> Self {
        Self::starting_with(HandlersByName::new(), HashMap::new())
    }
}
