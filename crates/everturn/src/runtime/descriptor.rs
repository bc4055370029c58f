//! Name, version and parent of an instance.

/// Name, version and parent of an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrchestrationDescriptor {
    /// Registered name of the orchestration.
    pub name: String,
    /// Version of its handler.
    pub version: String,
    /// The instance that waits for this one, for a child.
    pub parent_instance: Option<String>,
    /// The parent's schedule event, for a child.
    pub parent_id: Option<u64>,
}
