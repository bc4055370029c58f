//! `sweep`: expired sessions are deleted.

use everturn_provider::store::Swept;

use crate::operation::{BatchOrder, Scope, Verb, VerbFailure};

const DELETE_EXPIRED: &str = "DELETE FROM sessions WHERE (lease_until_ms <= ?1 OR typeof(lease_until_ms) <> 'integer') \
     AND NOT EXISTS (SELECT 1 FROM worker_queue WHERE worker_queue.session_id = sessions.session_id)";

/// Deletes expired sessions without queued activities.
pub(crate) struct SweepSessions;

impl Verb for SweepSessions {
    type Answer = Swept;
    const NAME: &'static str = "sweep";
    const ORDER: BatchOrder = BatchOrder::NewWork;

    fn run(&self, scope: &mut Scope<'_>) -> Result<Swept, VerbFailure> {
        let deleted = scope.conn.prepare_cached(DELETE_EXPIRED)?.execute([scope.now.wall_ms])?;
        Ok(Swept::new(deleted))
    }
}
