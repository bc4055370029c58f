//! The handlers of a runtime, as the store asks for them.

use everturn_provider::store::{HandlerKey, HandlerKind, HandlerView};

use super::registry::{ActivityRegistry, OrchestrationRegistry};

/// The registries of a runtime. Version policies may change while it runs, so they are asked each time.
#[derive(Debug)]
pub(crate) struct RegisteredHandlers {
    pub(crate) orchestrations: OrchestrationRegistry,
    pub(crate) activities: ActivityRegistry,
}

impl HandlerView for RegisteredHandlers {
    fn has(&self, handler: &HandlerKey) -> bool {
        let version = handler.version.as_deref();
        match handler.kind {
            HandlerKind::Orchestration => self.orchestrations.resolves(&handler.name, version),
            HandlerKind::Activity => self.activities.resolves(&handler.name, version),
            // A kind of a later store: this runtime has nothing for it.
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use everturn_core::OrchestrationContext;
    use semver::Version;

    use super::super::registry::VersionPolicy;
    use super::*;

    fn handlers() -> RegisteredHandlers {
        let returns = |_ctx: OrchestrationContext, input: String| async move { Ok(input) };
        let orchestrations = OrchestrationRegistry::builder().register_versioned("Order", "2.0.0", returns);
        let activities =
            ActivityRegistry::builder().register("Charge", |_ctx, input: String| async { Ok(input) });
        RegisteredHandlers { orchestrations: orchestrations.build(), activities: activities.build() }
    }

    #[test]
    fn an_exact_version_is_not_another_one() {
        let handlers = handlers();
        let has = |version: Option<&str>| {
            handlers.has(&HandlerKey::orchestration("Order", version.map(str::to_owned)))
        };
        assert!(has(Some("2.0.0")) && has(None));
        assert!(!has(Some("1.0.0")) && !has(Some("the newest")));
    }

    #[test]
    fn an_activity_is_no_orchestration() {
        let handlers = handlers();
        assert!(handlers.has(&HandlerKey::activity("Charge")));
        assert!(!handlers.has(&HandlerKey::activity("Order")));
        assert!(!handlers.has(&HandlerKey::orchestration("Charge", None)));
    }

    #[test]
    fn a_policy_that_was_changed_counts_at_once() {
        let handlers = handlers();
        let any = HandlerKey::orchestration("Order", None);
        handlers.orchestrations.set_version_policy("Order", VersionPolicy::Exact(Version::new(3, 0, 0)));
        assert!(!handlers.has(&any));
        handlers.orchestrations.set_version_policy("Order", VersionPolicy::Latest);
        assert!(handlers.has(&any));
    }
}
