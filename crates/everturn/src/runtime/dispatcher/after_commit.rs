//! What follows a commit at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use everturn_provider::{CheckIn, ScheduledActivityIdentifier};

use super::super::warm_cache::CheckInSlot;
use super::super::worker::running::RunningActivities;

/// What follows a commit at once, told by the provider the moment it is durable: the turn itself may have to wait for
/// its slot before it hears the answer.
pub(crate) struct AfterCommit {
    running: RunningActivities,
    /// Activities no longer wanted.
    withdrawn: Vec<ScheduledActivityIdentifier>,
    /// The execution that waits for its commit, if it is worth keeping.
    kept: Option<Arc<CheckInSlot>>,
    durable: AtomicBool,
}

impl AfterCommit {
    pub(crate) fn new(
        running: RunningActivities,
        withdrawn: Vec<ScheduledActivityIdentifier>,
        kept: Option<Arc<CheckInSlot>>,
    ) -> Arc<Self> {
        Arc::new(Self { running, withdrawn, kept, durable: AtomicBool::new(false) })
    }

    /// What the provider is to call. Only a provider that can lend the execution again does.
    pub(crate) fn as_check_in(self: &Arc<Self>) -> CheckIn {
        let after = Arc::clone(self);
        Arc::new(move || {
            if let Some(kept) = &after.kept {
                kept.check_in();
            }
            after.is_durable_now();
        })
    }

    /// The commit is durable: the activities hear of it, once.
    pub(crate) fn is_durable_now(&self) {
        if !self.durable.swap(true, Ordering::SeqCst) {
            self.running.withdraw(&self.withdrawn);
        }
    }

    /// Whether the commit is known to be durable, whatever its answer says.
    pub(crate) fn is_durable(&self) -> bool {
        self.durable.load(Ordering::SeqCst)
    }
}
