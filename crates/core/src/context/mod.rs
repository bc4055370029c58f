//! The handle that orchestration code talks to.

/// The handle that orchestration code talks to: cheap to clone, valid inside the orchestration it was given to.
#[derive(Clone)]
pub struct OrchestrationContext {}
