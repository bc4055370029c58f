//! The worker queue: activities to run.

use everturn_provider::encoded::StoredActivity;
use rusqlite::params;

use crate::operation::{Scope, VerbFailure};
use crate::payloads;

const INSERT_ACTIVITY: &str = "INSERT INTO everturn_worker_queue (instance_id, execution_id, activity_id, session_id, tag, \
     name, work_item) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";

/// Puts an activity into the queue.
pub(crate) fn insert(scope: &mut Scope<'_>, activity: &StoredActivity) -> Result<(), VerbFailure> {
    scope.conn.prepare_cached(INSERT_ACTIVITY)?.execute(params![
        activity.instance_id,
        activity.execution_id,
        activity.activity_id,
        activity.session_id,
        activity.tag,
        activity.name,
        payloads::inline(&activity.work_item)
    ])?;
    payloads::insert_of_activity(scope.conn, scope.conn.last_insert_rowid(), &activity.work_item)?;
    scope.effects.work = true;
    Ok(())
}
