//! What the writer does about other users of the file: it notices their commits, fires watches, and releases the locks
//! of those that no longer run.

use std::time::Duration;

use crate::operation::PendingOperation;
use crate::stale_locks::{ReleaseOwner, StaleLocks};
use crate::writer::Writer;
use crate::writer::assignment::kept;
use crate::writer::batch::WriterBatch;
use crate::writer::connection::BatchLoss;
use crate::writer::schedule::WorkHints;

/// How long a provider that is closed waits for the file to release its locks.
const LEAVE_MAX: Duration = Duration::from_secs(1);

impl Writer {
    /// Looks whether another connection has committed, and what it did to watched instances.
    pub(crate) fn look_for_foreign_commits(&mut self) -> Result<(), rusqlite::Error> {
        self.look_wanted = false;
        if let Some(conn) = self.others.reopened() {
            self.db.conn = conn;
        }
        self.note_foreign_commits()?;
        self.look_at_watched()
    }

    /// Looks at watched instances that another process may have changed. Not inside a batch: a row that cannot be read would
    /// end its transaction.
    pub(crate) fn look_at_watched(&mut self) -> Result<(), rusqlite::Error> {
        self.shared.watches.look(&self.db.conn)
    }

    /// Looks whether another connection has committed: then what earlier looks found is no longer true.
    pub(crate) fn note_foreign_commits(&mut self) -> Result<(), rusqlite::Error> {
        if self.others.have_committed(&self.db, &self.shared.guard)? {
            self.schedule.hints = WorkHints::ALL;
            self.schedule.forget_looks(self.db.now());
            self.shared.watches.note_foreign_commit();
            self.garbage.want_look();
        }
        Ok(())
    }

    /// Looks from time to time for owners of locks that no longer run; the next batch releases their locks.
    pub(crate) fn look_for_dead_owners(&mut self) {
        for owner in self.others.find_dead(self.db.clock.monotonic()) {
            self.pending.push(Box::new(PendingOperation::new(ReleaseOwner(owner), None)));
        }
    }

    /// Why the writer takes no more work, if so.
    pub(crate) fn refusal(&self) -> Option<&str> {
        self.outage.broken().or_else(|| self.shared.guard.refusal())
    }

    /// Fails everything that waits, if the store refuses all calls. Looks at the file unless that was done lately.
    pub(crate) fn fail_if_refused(&mut self) {
        let refusal = self.shared.guard.refusal_within_a_second(self.db.clock.monotonic());
        if let Some(reason) = refusal.map(str::to_owned) {
            self.fail_all(WriterBatch::default(), &reason);
            // Clients that wait for a change look for themselves, and get the reason.
            self.shared.watches.close();
        }
    }

    /// Ends a batch that must not be answered: the store refuses all calls.
    pub(crate) fn fail_closed(&mut self, batch: WriterBatch) {
        if let Err(error) = self.db.roll_back() {
            tracing::error!(target: "everturn::providers::sqlite", %error,
                "rolling back failed; the store refuses all further calls anyway");
        }
        let reason = self.refusal().unwrap_or_default().to_owned();
        self.fail_all(batch, &reason);
        self.shared.watches.close();
    }

    /// Loses the batch for good if the store refuses all calls.
    pub(crate) fn check_refusal(&self) -> Result<(), BatchLoss> {
        if self.refusal().is_some() { Err(BatchLoss::FailedClosed) } else { Ok(()) }
    }

    /// Releases the locks that are left when the provider is closed, so that others need not find out.
    pub(crate) fn leave(&mut self) -> Result<(), BatchLoss> {
        let Some(owner) = self.others.own_id() else { return Ok(()) };
        let found = StaleLocks::find(&self.db.conn, Some(owner))?;
        if !found.is_empty() {
            self.db.begin_before(self.db.clock.monotonic().saturating_add(LEAVE_MAX))?;
            let changes_before = self.db.conn.total_changes();
            self.db.run_whole(false, |scope| kept(found.release(scope)))?;
            self.db.commit(changes_before)?;
            self.others.note_own_commit();
        }
        self.others.leave();
        Ok(())
    }
}
