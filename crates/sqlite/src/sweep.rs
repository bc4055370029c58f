//! `cleanup_orphaned_sessions`: expired sessions are deleted.

use crate::operation::{BatchOrder, Scope, Verb, VerbFailure};

const DELETE_EXPIRED: &str = "DELETE FROM sessions WHERE (lease_until_ms <= ?1 OR typeof(lease_until_ms) <> 'integer') \
     AND NOT EXISTS (SELECT 1 FROM worker_queue WHERE worker_queue.session_id = sessions.session_id)";

/// Deletes expired sessions without queued activities.
pub(crate) struct Sweep;

impl Verb for Sweep {
    type Answer = usize;
    const NAME: &'static str = "cleanup_orphaned_sessions";
    const ORDER: BatchOrder = BatchOrder::NewWork;

    fn run(&self, scope: &mut Scope<'_>) -> Result<usize, VerbFailure> {
        Ok(scope.conn.prepare_cached(DELETE_EXPIRED)?.execute([scope.now.wall_ms])?)
    }
}
