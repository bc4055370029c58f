//! Assigned work whose answer was never read returns to the queue, as if it had not been fetched.

use std::sync::Arc;

use crate::command_queue::{Command, CommandQueue};
use crate::locks::{self, row_of};
use crate::operation::{BatchOrder, PendingOperation, Scope, Verb, VerbFailure};
use crate::sessions::{self, SessionLease};
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

    fn run(&self, scope: &mut Scope<'_>) -> Result<(), VerbFailure> {
        match &self.0 {
            UnreadWork::Turn { token } => {
                let Some(key) = row_of(token) else { return Ok(()) };
                let held = locks::instance_lock(scope, key)?;
                if held.is_some_and(|lock| lock.token.as_ref() == Some(token)) {
                    abandon_turn::release(scope, key, None, true)?;
                }
                scope.effects.released.push(token.clone());
            }
            UnreadWork::Activity { token, lease } => {
                let Some(seq) = row_of(token) else { return Ok(()) };
                let held = locks::work_lock(scope, seq)?;
                if held.is_some_and(|(lock, _session)| lock.token.as_ref() == Some(token)) {
                    settle_work::release(scope, seq, 0, None, true)?;
                    if let Some(lease) = lease {
                        sessions::undo_lease(scope, lease)?;
                    }
                }
                scope.effects.released.push(token.clone());
            }
        }
        Ok(())
    }
}

/// Returns the work when it is dropped before the caller of the fetch has it.
pub(crate) struct UnreadGuard {
    commands: Arc<CommandQueue>,
    work: Option<UnreadWork>,
}

impl UnreadGuard {
    pub(crate) fn new(commands: Arc<CommandQueue>, work: UnreadWork) -> Self {
        Self { commands, work: Some(work) }
    }

    /// The caller has the work.
    pub(crate) fn disarm(&mut self) {
        self.work = None;
    }
}

impl Drop for UnreadGuard {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            let operation = PendingOperation::new(ReturnUnread(work), None);
            self.commands.send_even_if_closed(Command::Run(Box::new(operation)));
        }
    }
}
