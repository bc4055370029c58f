//! Damaged rows of the worker queue: the activity fails, or its row is dead-lettered.

use everturn_core::{ErrorDetails, WorkItem};
use everturn_provider::ProviderError;
use everturn_provider::encoded::{StoredMessage, unsigned};

use crate::error::storage_error;
use crate::locks::row_of;
use crate::needs::Needs;
use crate::operation::{BatchOrder, Run, Verb};
use crate::orchestrator_queue;
use crate::provider::PostgresProvider;
use crate::session::Parameter;
use crate::unit_of_work::UnitOfWork;

const SELECT_IDENTITY: &str = "SELECT instance_id, execution_id, activity_id, work_item FROM {schema}.everturn_worker_queue \
     WHERE seq = $1 AND lock_token = $2";

/// A dead letter as it is stored.
pub(crate) struct NewDeadLetter {
    pub(crate) reason: String,
    pub(crate) instance_id: Option<String>,
    pub(crate) execution_id: Option<i64>,
    pub(crate) activity_id: Option<i64>,
    pub(crate) work_item: String,
}

/// Removes a damaged row that was fetched. The instance that the row names gets a failure of the activity; a row that names
/// none is dead-lettered.
pub(crate) async fn remove_fetched(
    provider: &PostgresProvider,
    token: String,
    reason: String,
) -> Result<(), ProviderError> {
    let Some(seq) = row_of(&token) else { return Ok(()) };
    let failed = |error| storage_error(RemoveDamagedActivity::NAME, error);
    let row = provider
        .readers()
        .query_opt(RemoveDamagedActivity::NAME, SELECT_IDENTITY, &[&seq as Parameter<'_>, &token])
        .await?;
    let Some(row) = row else { return Ok(()) };
    let instance_id: String = row.try_get(0).map_err(failed)?;
    let execution_id: i64 = row.try_get(1).map_err(failed)?;
    let activity_id: i64 = row.try_get(2).map_err(failed)?;
    let work_item: String = row.try_get(3).map_err(failed)?;
    let reason = format!("worker queue row {seq} is damaged: {reason}");
    let names_activity = !instance_id.is_empty() && execution_id >= 1 && activity_id >= 1;
    let failure = if names_activity {
        let failed = WorkItem::ActivityFailed {
            instance: instance_id.clone(),
            execution_id: unsigned(execution_id),
            id: unsigned(activity_id),
            details: ErrorDetails::Infrastructure {
                operation: RemoveDamagedActivity::NAME.to_owned(),
                message: reason.clone(),
                retryable: false,
            },
        };
        Some(StoredMessage::encode(RemoveDamagedActivity::NAME, &failed.into())?)
    } else {
        None
    };
    tracing::error!(target: "everturn::providers::postgres", instance_id = %instance_id, activity_id, %reason,
        dead_lettered = !names_activity, "an activity is damaged and removed");
    provider.call(RemoveDamagedActivity { token, failure, reason, work_item }).await
}

struct RemoveDamagedActivity {
    token: String,
    /// What its instance is told; `None` if the row is dead-lettered.
    failure: Option<StoredMessage>,
    reason: String,
    work_item: String,
}

impl Verb for RemoveDamagedActivity {
    type Answer = ();
    const NAME: &'static str = "fetch_work";
    const ORDER: BatchOrder = BatchOrder::LockHolder;

    fn needs(&self, needs: &mut Needs) {
        needs.activities.extend(row_of(&self.token));
        if let Some(failure) = &self.failure {
            needs.receiver(&failure.instance_id);
            needs.new_messages += 1;
        }
    }

    fn run(&self, unit: &mut UnitOfWork, _run: Run) -> Result<(), ProviderError> {
        let seq = row_of(&self.token).unwrap_or_default();
        let activity = unit.activities.get(&seq);
        if activity.is_none_or(|activity| activity.lock.token.as_ref() != Some(&self.token)) {
            // Another worker has it by now, and finds the same.
            return Ok(());
        }
        unit.activities.remove(&seq);
        unit.writes.delete_activities.push(seq);
        match &self.failure {
            Some(failure) => drop(orchestrator_queue::insert(unit, failure, None)),
            None => unit.writes.dead_letters.push(NewDeadLetter {
                reason: self.reason.clone(),
                instance_id: None,
                execution_id: None,
                activity_id: None,
                work_item: self.work_item.clone(),
            }),
        }
        Ok(())
    }
}
