//! How a run of a machine ended.

/// How a run of a machine ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunEnd {
    /// The power failed.
    PowerLost {
        /// Whether all runtimes had started, and none was being shut down.
        at_work: bool,
    },
    /// The database could not be opened.
    NotOpened(String),
    /// Every instance ended, and everything was closed.
    Finished,
    /// Instances did not end.
    Stuck(Vec<String>),
    /// The disk failed permanently, and everything was closed. Before that a client of each node wrote and read.
    DiskFailed {
        /// The answers to the writes.
        writes: Vec<ClientAnswer>,
        /// The answers to the reads.
        reads: Vec<ClientAnswer>,
    },
    /// Shutting down took too long.
    NotClosed,
}

/// What a call of a client came to; the error as text.
pub type ClientAnswer = Result<(), String>;

/// What a client reads of an instance whose rows were damaged.
#[derive(Debug, Clone)]
pub struct DamagedInstance {
    /// The instance.
    pub instance: String,
    /// Its state, as the counts of the proof name it.
    pub state: &'static str,
    /// The error, if there is one.
    pub reason: Option<String>,
}

/// The state of a damaged instance that has not ended, and whose status shows no error.
pub const STANDS_STILL: &str = "that stand still";
/// The state of a damaged instance that is not found.
pub const NOT_THERE: &str = "that are not there";
