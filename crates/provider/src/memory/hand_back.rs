//! Work that was assigned and never taken is handed back, as if it had not been fetched.

use super::MemoryProvider;
use super::tables::{Moment, Session, Tables, VISIBLE};

/// Work that was assigned to a fetch.
#[derive(Debug, Clone)]
pub(super) struct Assigned {
    pub(super) token: String,
    pub(super) claim: Option<Claim>,
}

/// A session that nobody had when it was claimed.
#[derive(Debug, Clone)]
pub(super) struct Claim {
    session_id: String,
    owner_id: String,
    before: Option<Session>,
}

impl Claim {
    /// What a fetch claimed; `None` if its owner had the session already.
    pub(super) fn of(
        session_id: &str,
        claimed: &Session,
        before: Option<&Session>,
        now: Moment,
    ) -> Option<Self> {
        let had_it = before.is_some_and(|before| before.is_leased(now));
        (!had_it).then(|| Self {
            session_id: session_id.to_owned(),
            owner_id: claimed.owner_id.clone(),
            before: before.cloned(),
        })
    }
}

impl Tables {
    /// Clears the lock, takes the attempt back and undoes the claim; nothing if the lock is somebody else's by now.
    pub(super) fn hand_back(&mut self, assigned: &Assigned) {
        let Assigned { token, claim } = assigned;
        let instance = self.instance_locks.iter().find(|(_, lock)| lock.token == *token);
        if let Some(instance) = instance.map(|(instance, _)| instance.clone()) {
            self.release_instance(instance, token, VISIBLE, true);
        }
        let row =
            self.worker_queue.iter().find(|(_, row)| row.lock.as_ref().is_some_and(|l| l.token == *token));
        if let Some(row_id) = row.map(|(row_id, _)| *row_id) {
            self.release_activity(row_id, VISIBLE, true);
            if let Some(claim) = claim {
                self.undo_claim(claim);
            }
        }
    }

    /// Unless the owner works on another activity of the session.
    fn undo_claim(&mut self, claim: &Claim) {
        let Claim { session_id, owner_id, before } = claim;
        let is_used = self
            .worker_queue
            .values()
            .any(|row| row.lock.is_some() && row.session_id.as_ref() == Some(session_id));
        let is_theirs = self.sessions.get(session_id).is_some_and(|session| session.owner_id == *owner_id);
        if is_used || !is_theirs {
            return;
        }
        match before {
            Some(before) => self.sessions.insert(session_id.clone(), before.clone()),
            None => self.sessions.remove(session_id),
        };
    }
}

/// Hands work back if it is dropped before the work was taken.
pub(super) struct HandBackGuard<'a> {
    provider: &'a MemoryProvider,
    assigned: Vec<Assigned>,
}

impl<'a> HandBackGuard<'a> {
    pub(super) fn new(provider: &'a MemoryProvider, assigned: Vec<Assigned>) -> Self {
        Self { provider, assigned }
    }

    /// The work was taken, or is lost.
    pub(super) fn disarm(mut self) {
        self.assigned.clear();
    }
}

impl Drop for HandBackGuard<'_> {
    fn drop(&mut self) {
        for assigned in self.assigned.drain(..) {
            self.provider.hand_back(assigned);
        }
    }
}
