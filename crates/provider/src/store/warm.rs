//! Instances that a runtime keeps in memory between their turns.
//!
//! A commit stamps the execution with a random value. An instance in memory is *warm* if its stamp is still the stored
//! one: then nothing else has changed it, and its history need not be read.

use std::any::Any;
use std::fmt;

/// The random value a commit leaves on its execution: the identity of that state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stamp(pub u64);

/// A runtime's view of what it keeps in memory. The store asks it when it assigns an instance.
pub trait WarmView: Send + Sync {
    /// Takes the instance out of memory for one turn, if it is held at exactly this execution and stamp.
    ///
    /// A copy that is held at any other state is stale and is dropped. Never blocks: the store may call it on the thread
    /// that does all its writes.
    fn lend(&self, instance: &str, execution_id: u64, stamp: Stamp) -> Option<LentInstance>;

    /// Whether the instance is held at exactly this execution and stamp, so that [`lend`](Self::lend) would lend it now. A
    /// store whose history is slow to read takes only such ones beside others in one fetch. Never blocks.
    fn holds(&self, _instance: &str, _execution_id: u64, _stamp: Stamp) -> bool {
        false
    }

    /// Whether a fused step of the instance is under way: a fetch that took it now would only make the step fail, so it is
    /// passed over until the step is answered. Never blocks.
    fn is_stepping(&self, _instance: &str) -> bool {
        false
    }
}

/// An instance on loan from a [`WarmView`]. Dropping it before it is taken returns it, as it was.
pub struct LentInstance(Box<dyn Any + Send>);

impl LentInstance {
    /// Wraps what the runtime keeps; its `Drop` must return the instance to the runtime.
    pub fn new(entry: impl Any + Send) -> Self {
        Self(Box::new(entry))
    }

    /// Takes out what [`LentInstance::new`] wrapped, or `None` if that was another type.
    pub fn take<T: Any + Send>(self) -> Option<T> {
        self.0.downcast().ok().map(|entry| *entry)
    }
}

impl fmt::Debug for LentInstance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LentInstance")
    }
}
