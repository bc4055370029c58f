//! Assigned work whose answer was never read returns to the queue, as if it had not been fetched.

use std::sync::Arc;

use everturn_provider::ProviderError;

use crate::commit_queue::CommitQueue;
use crate::locks::row_of;
use crate::needs::Needs;
use crate::operation::{BatchOrder, Run, Verb};
use crate::sessions::SessionLease;
use crate::unit_of_work::UnitOfWork;
use crate::{abandon_turn, settle_work};

/// What was assigned.
#[derive(Debug, Clone)]
pub(crate) enum UnreadWork {
    Turn { token: String },
    Activity { token: String, lease: Option<SessionLease> },
}

/// Undoes an assignment: clears the lock, takes the attempt back, undoes a new session lease.
struct ReturnUnread(UnreadWork);

impl Verb for ReturnUnread {
    type Answer = ();
    const NAME: &'static str = "return_unread";
    const ORDER: BatchOrder = BatchOrder::LockHolder;

    fn needs(&self, needs: &mut Needs) {
        match &self.0 {
            UnreadWork::Turn { token } => {
                needs.keys.extend(row_of(token));
                needs.released.extend(row_of(token));
            }
            UnreadWork::Activity { token, .. } => needs.activities.extend(row_of(token)),
        }
    }

    fn run(&self, unit: &mut UnitOfWork, _run: Run) -> Result<(), ProviderError> {
        match &self.0 {
            UnreadWork::Turn { token } => {
                let instance = row_of(token).and_then(|key| unit.instances.get(&key));
                let held = instance.filter(|instance| instance.lock.token.as_ref() == Some(token));
                if let Some(key) = held.map(|instance| instance.key) {
                    abandon_turn::release(unit, key, None, None, true);
                }
            }
            UnreadWork::Activity { token, lease } => {
                let seq = row_of(token).unwrap_or_default();
                let activity = unit.activities.get(&seq);
                if activity.is_some_and(|activity| activity.lock.token.as_ref() == Some(token)) {
                    settle_work::release(unit, seq, 0, None, true);
                    unit.writes.undo_leases.extend(lease.clone().filter(|lease| lease.is_new));
                }
            }
        }
        Ok(())
    }
}

/// Returns the work when it is dropped before the caller of the fetch has it.
pub(crate) struct UnreadGuard {
    commits: Arc<CommitQueue>,
    work: Option<UnreadWork>,
}

impl UnreadGuard {
    pub(crate) fn new(commits: Arc<CommitQueue>, work: UnreadWork) -> Self {
        Self { commits, work: Some(work) }
    }

    /// The caller has the work.
    pub(crate) fn disarm(&mut self) {
        self.work = None;
    }
}

impl Drop for UnreadGuard {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            self.commits.send_owed(ReturnUnread(work));
        }
    }
}
