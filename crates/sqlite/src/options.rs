//! How a database is opened.

use std::sync::Arc;
use std::time::Duration;

use everturn_core::limits::DEFAULT_PAYLOAD_BYTES_MAX;
use everturn_provider::{Clock, SystemClock};

/// When a commit counts as done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Synchronous {
    /// When the disk has it: an acknowledged commit survives a power failure.
    #[default]
    Full,
    /// When the operating system has it: an acknowledged commit survives a crash of the process, but the last commits can
    /// be lost when the machine loses power. The database stays consistent.
    Normal,
}

/// How a database is opened.
///
/// ```
/// use everturn_sqlite::{SqliteOptions, Synchronous};
///
/// let options = SqliteOptions { synchronous: Synchronous::Normal, ..SqliteOptions::default() };
/// assert_eq!(options.payload_bytes_max, 8 * 1024 * 1024);
/// ```
#[derive(Debug, Clone)]
pub struct SqliteOptions {
    /// When a commit counts as done.
    pub synchronous: Synchronous,
    /// The largest payload that client and runtime accept, in UTF-8 bytes.
    pub payload_bytes_max: usize,
    /// Where time and randomness come from.
    pub clock: Arc<dyn Clock>,
    /// How many operations share one commit at most; 1 gives each its own.
    pub batch_operations_max: usize,
    /// How many payload bytes share one commit at most (a single operation may be larger).
    pub batch_payload_bytes_max: usize,
    /// How long a call waits for another process that holds the file, before it fails as retryable.
    pub busy_timeout: Duration,
    /// How many connections serve reads beside the writer.
    pub readers_max: usize,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self {
            synchronous: Synchronous::Full,
            payload_bytes_max: DEFAULT_PAYLOAD_BYTES_MAX,
            clock: Arc::new(SystemClock::new()),
            // Every caller waits for the whole batch: it must take milliseconds.
            batch_operations_max: 512,
            batch_payload_bytes_max: 8 * 1024 * 1024,
            busy_timeout: Duration::from_secs(10),
            // Reads are short and come in bursts.
            readers_max: 4,
        }
    }
}
