//! Work that was assigned and never taken is handed back, as if it had not been fetched.

use std::sync::Arc;

use crate::locks::{self, row_of};
use crate::mailbox::Mailbox;
use crate::operation::{Call, Failure, Order, Scope, Verb};
use crate::sessions::{self, Claim};
use crate::writer::Letter;
use crate::{abandon_orchestration_item, abandon_work_item};

/// What was assigned.
#[derive(Debug, Clone)]
pub(crate) enum Assigned {
    Turn { token: String },
    Work { token: String, claim: Option<Claim> },
}

/// Undoes an assignment: lock cleared, attempt taken back, session claim undone.
pub(crate) struct HandBack(Assigned);

impl Verb for HandBack {
    type Answer = ();
    const NAME: &'static str = "hand_back";
    const ORDER: Order = Order::Holder;

    fn run(&self, scope: &mut Scope<'_>) -> Result<(), Failure> {
        match &self.0 {
            Assigned::Turn { token } => {
                let Some(key) = row_of(token) else { return Ok(()) };
                let held = locks::instance_lock(scope, key)?;
                if held.is_some_and(|lock| lock.token.as_ref() == Some(token)) {
                    abandon_orchestration_item::release(scope, key, 0, true)?;
                }
                scope.effects.released.push(token.clone());
            }
            Assigned::Work { token, claim } => {
                let Some(seq) = row_of(token) else { return Ok(()) };
                let held = locks::work_lock(scope, seq)?;
                if held.is_some_and(|(lock, _session)| lock.token.as_ref() == Some(token)) {
                    abandon_work_item::release(scope, seq, 0, true)?;
                    if let Some(claim) = claim {
                        sessions::undo(scope, claim)?;
                    }
                }
                scope.effects.released.push(token.clone());
            }
        }
        Ok(())
    }
}

/// Sends the hand-back when it is dropped before the work was taken.
pub(crate) struct HandBackGuard {
    mailbox: Arc<Mailbox>,
    assigned: Option<Assigned>,
}

impl HandBackGuard {
    pub(crate) fn new(mailbox: Arc<Mailbox>, assigned: Assigned) -> Self {
        Self { mailbox, assigned: Some(assigned) }
    }

    /// The work was taken.
    pub(crate) fn disarm(&mut self) {
        self.assigned = None;
    }
}

impl Drop for HandBackGuard {
    fn drop(&mut self) {
        if let Some(assigned) = self.assigned.take() {
            self.mailbox.send_last(Letter::Call(Box::new(Call::new(HandBack(assigned), None))));
        }
    }
}
