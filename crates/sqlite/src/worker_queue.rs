//! The worker queue: activities as they are stored.

use everturn_core::WorkItem;
use everturn_provider::ProviderError;
use rusqlite::params;

use crate::operation::{Scope, VerbFailure};
use crate::orchestrator_queue::encoded;
use crate::payloads;

/// An activity as it is stored.
#[derive(Debug)]
pub(crate) struct StoredActivity {
    instance_id: String,
    execution_id: i64,
    activity_id: i64,
    session_id: Option<String>,
    tag: Option<String>,
    name: String,
    work_item: String,
}

const INSERT_ACTIVITY: &str = "INSERT INTO everturn_worker_queue (instance_id, execution_id, activity_id, session_id, tag, \
     name, work_item) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";

impl StoredActivity {
    /// Encodes an activity; refuses any other item.
    pub(crate) fn encode(operation: &str, item: &WorkItem) -> Result<Self, ProviderError> {
        let WorkItem::ActivityExecute { instance, execution_id, id, name, session_id, tag, .. } = item else {
            return Err(ProviderError::permanent(
                operation,
                format!(
                    "only an ActivityExecute belongs into the worker queue, not a {}",
                    everturn_core::kind_of(item)
                ),
            ));
        };
        let fits = |what: &str, id: u64| {
            i64::try_from(id)
                .map_err(|_| ProviderError::permanent(operation, format!("{what} {id} is out of range")))
        };
        Ok(Self {
            instance_id: instance.clone(),
            execution_id: fits("execution id", *execution_id)?,
            activity_id: fits("activity id", *id)?,
            session_id: session_id.clone(),
            tag: tag.clone(),
            name: name.clone(),
            work_item: encoded(operation, serde_json::to_string(item))?,
        })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.work_item.len()
    }

    pub(crate) fn insert(&self, scope: &mut Scope<'_>) -> Result<(), VerbFailure> {
        scope.conn.prepare_cached(INSERT_ACTIVITY)?.execute(params![
            self.instance_id,
            self.execution_id,
            self.activity_id,
            self.session_id,
            self.tag,
            self.name,
            payloads::inline(&self.work_item)
        ])?;
        payloads::insert_of_activity(scope.conn, scope.conn.last_insert_rowid(), &self.work_item)?;
        scope.effects.work = true;
        Ok(())
    }
}
