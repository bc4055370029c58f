//! Finding the handler of an execution, and what to do when there is none.

use everturn_core::OrchestrationHandlerRef;
use semver::Version;

use super::super::registry::OrchestrationRegistry;
use super::claim::Claim;

/// The handler of an execution and its version: the exact one if one is named, else the policy's.
pub(crate) fn resolve(
    registry: &OrchestrationRegistry,
    name: &str,
    version: Option<&str>,
) -> Option<(String, OrchestrationHandlerRef)> {
    match version {
        Some(text) => {
            let version = Version::parse(text).ok()?;
            let handler = registry.resolve_handler_exact(name, &version)?;
            Some((text.to_owned(), handler))
        }
        None => {
            let (version, handler) = registry.resolve_handler(name)?;
            Some((version.to_string(), handler))
        }
    }
}

/// Gives the instance back for a while: another node may have its handler.
pub(crate) async fn give_back(claim: Claim<'_>, name: &str, version: Option<&str>) {
    let options = &claim.node.options;
    let backoff = options.unregistered_backoff.delay(claim.attempt_count);
    tracing::warn!(
        target: "everturn::runtime",
        instance_id = %claim.instance,
        execution_id = %claim.execution_id,
        orchestration_name = %name,
        orchestration_version = %version.unwrap_or("latest"),
        worker_id = %claim.worker_id,
        attempt_count = claim.attempt_count,
        max_attempts = options.max_attempts,
        remaining_attempts = options.max_attempts.saturating_sub(claim.attempt_count),
        backoff_secs = backoff.as_secs_f64(),
        "Orchestration not registered, giving it back"
    );
    claim.abandon(Some(backoff), false).await;
}
