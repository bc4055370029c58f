//! Name, version and parent of an instance.

/// Name, version and parent of an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrchestrationDescriptor {
    /// Registered name of the orchestration.
    pub name: String,
    /// Version of its handler.
    pub version: String,
    /// The parent instance that waits for this one; `None` for a root instance.
    pub parent_instance: Option<String>,
    /// Id of the parent's schedule event; `None` for a root instance.
    pub parent_id: Option<u64>,
}
