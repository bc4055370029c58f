//! Entries of the key-value store of an instance.

/// A value and the time it was written.
#[derive(Debug, Clone, PartialEq)]
pub struct KvEntry {
    /// The value.
    pub value: String,
    /// When it was written, in milliseconds since the epoch.
    pub last_updated_at_ms: u64,
}
