//! `sweep`: expired sessions are deleted, and messages for instances that were never started are dead-lettered.

use everturn_provider::store::{Sweep, Swept};

use crate::operation::{BatchOrder, Scope, Verb, VerbFailure};
use crate::unknown_instance;

const DELETE_EXPIRED: &str = "DELETE FROM everturn_sessions WHERE (lease_until_ms <= ?1 OR typeof(lease_until_ms) <> 'integer') \
     AND NOT EXISTS (SELECT 1 FROM everturn_worker_queue WHERE everturn_worker_queue.session_id = everturn_sessions.session_id)";

/// Deletes expired sessions without queued activities, and dead-letters messages that have waited too long for a start.
pub(crate) struct SweepExpired {
    pub(crate) sweep: Sweep,
}

impl Verb for SweepExpired {
    type Answer = Swept;
    const NAME: &'static str = "sweep";
    const ORDER: BatchOrder = BatchOrder::NewWork;
    const WRITES_BEFORE_REFUSAL: bool = true;

    fn run(&self, scope: &mut Scope<'_>) -> Result<Swept, VerbFailure> {
        let deleted = scope.conn.prepare_cached(DELETE_EXPIRED)?.execute([scope.now.wall_ms])?;
        let swept = Swept::new(deleted);
        Ok(match self.sweep.dead_letter_after {
            Some(waited) => swept.with_dead_letters(unknown_instance::dead_letter_unstarted(scope, waited)?),
            None => swept,
        })
    }
}
