//! Statistics of one instance.

use serde::{Deserialize, Serialize};

/// Size of an instance's current execution and of its key-value store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SystemStats {
    /// Events of the current execution.
    pub history_event_count: u64,
    /// Their serialised size.
    pub history_size_bytes: u64,
    /// Queue messages carried into the current execution.
    pub queue_pending_count: u64,
    /// Live keys of the key-value store.
    pub kv_user_key_count: u64,
    /// Bytes of their values.
    pub kv_total_value_bytes: u64,
}
