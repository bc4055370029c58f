//! Damaged rows of the worker queue: the activity fails, or its row is dead-lettered.

use everturn_core::{ErrorDetails, WorkItem};
use everturn_provider::ProviderError;
use everturn_provider::encoded::{StoredMessage, unsigned};
use rusqlite::params;

use crate::columns;
use crate::fetch_work::is_held;
use crate::locks::row_of;
use crate::operation::{BatchOrder, Scope, Verb, VerbFailure};
use crate::orchestrator_queue;
use crate::payloads::activity_payload;
use crate::provider::SqliteProvider;

/// Removes a damaged row that was fetched. Returns whether its item is sound, so that it can run after all.
pub(crate) async fn remove_fetched(
    provider: &SqliteProvider,
    token: String,
    reason: String,
    item_instance: Option<String>,
) -> Result<bool, ProviderError> {
    let removal = RemoveDamagedActivity { token, reason: reason.clone(), item_instance };
    let outcome = provider.call(removal).await?;
    outcome.log(&reason);
    Ok(matches!(outcome, DamageOutcome::ItemIsSound))
}

/// What happened to a damaged row.
pub(crate) enum DamageOutcome {
    /// Another worker has it now, and will find the same.
    TakenOver,
    /// The item is sound; only the row's copy of its instance is not.
    ItemIsSound,
    /// The instance gets a failure of the activity.
    Failed { instance: String },
    /// It is not known which instance the activity belongs to: the row is kept as a dead letter.
    DeadLettered,
}

impl DamageOutcome {
    pub(crate) fn log(&self, reason: &str) {
        match self {
            Self::TakenOver | Self::ItemIsSound => {}
            Self::Failed { instance } => {
                tracing::error!(target: "everturn::providers::sqlite", instance_id = instance, reason,
                    "the stored activity is damaged; the instance gets a failure of this activity");
            }
            Self::DeadLettered => {
                tracing::error!(target: "everturn::providers::sqlite", reason,
                    "a worker queue row that names no instance, or two, was dead-lettered; \
                     inspect table everturn_dead_letters, the instance waits for this activity");
                metrics::counter!("everturn_sqlite_rows_dead_lettered_total").increment(1);
            }
        }
    }
}

/// Removes a row that cannot be decoded. Its instance gets a failure of the activity; if the instance is not known, the row
/// is dead-lettered.
struct RemoveDamagedActivity {
    token: String,
    reason: String,
    /// The instance that the item names, if the row names another.
    item_instance: Option<String>,
}

const SELECT_IDENTITY: &str =
    "SELECT instance_id, execution_id, activity_id FROM everturn_worker_queue WHERE seq = ?1";
const DELETE_ACTIVITY: &str = "DELETE FROM everturn_worker_queue WHERE seq = ?1";
const DEAD_LETTER: &str = concat!(
    "INSERT INTO everturn_dead_letters (dead_lettered_at_ms, reason, instance_id, execution_id, activity_id, work_item) \
     SELECT ?2, ?3, CAST(instance_id AS TEXT), iif(typeof(execution_id) = 'integer', execution_id, NULL), \
     iif(typeof(activity_id) = 'integer', activity_id, NULL), CAST(",
    activity_payload!(),
    " AS TEXT) FROM everturn_worker_queue AS q WHERE q.seq = ?1"
);
const INSTANCE_EXISTS: &str = "SELECT EXISTS (SELECT 1 FROM everturn_instances WHERE instance_id = ?1)";
const ROW_NAMES_EXISTING: &str = "SELECT EXISTS (SELECT 1 FROM everturn_worker_queue JOIN everturn_instances USING (instance_id) WHERE seq = ?1)";

impl Verb for RemoveDamagedActivity {
    type Answer = DamageOutcome;
    const NAME: &'static str = "fetch_work";
    const ORDER: BatchOrder = BatchOrder::LockHolder;
    const WRITES_BEFORE_REFUSAL: bool = true;

    fn run(&self, scope: &mut Scope<'_>) -> Result<DamageOutcome, VerbFailure> {
        let Some(seq) = row_of(&self.token) else { return Ok(DamageOutcome::TakenOver) };
        if !is_held(scope, &self.token)? {
            return Ok(DamageOutcome::TakenOver);
        }
        let outcome = match &self.item_instance {
            None => remove(scope, seq, &self.reason, true)?,
            Some(instance) => {
                let item_names_existing: bool =
                    scope.conn.prepare_cached(INSTANCE_EXISTS)?.query_row([instance], |row| row.get(0))?;
                let row_names_existing: bool =
                    scope.conn.prepare_cached(ROW_NAMES_EXISTING)?.query_row([seq], |row| row.get(0))?;
                if item_names_existing && !row_names_existing {
                    return Ok(DamageOutcome::ItemIsSound);
                }
                // If both exist, one would get the failure of an activity that it never scheduled.
                remove(scope, seq, &self.reason, !item_names_existing)?
            }
        };
        scope.effects.released.push(self.token.clone());
        Ok(outcome)
    }
}

/// Deletes the row. The instance that the row names gets a failure of the activity, if `is_known` says that it is the right
/// one; else the row is dead-lettered.
pub(crate) fn remove(
    scope: &mut Scope<'_>,
    seq: i64,
    reason: &str,
    is_known: bool,
) -> Result<DamageOutcome, VerbFailure> {
    let (instance, execution_id, activity_id) =
        scope.conn.prepare_cached(SELECT_IDENTITY)?.query_row([seq], |row| {
            let id = String::from_utf8(columns::bytes(row, 0)?).unwrap_or_default();
            let number = |column| Ok::<_, rusqlite::Error>(columns::integer(row, column)?.unwrap_or(0));
            Ok((id, number(1)?, number(2)?))
        })?;
    let reason = format!("worker queue row {seq} is damaged: {reason}");
    let outcome = if !is_known || instance.is_empty() || execution_id < 1 || activity_id < 1 {
        scope.conn.prepare_cached(DEAD_LETTER)?.execute(params![seq, scope.now.wall_ms, reason])?;
        DamageOutcome::DeadLettered
    } else {
        let operation = RemoveDamagedActivity::NAME;
        let failed = WorkItem::ActivityFailed {
            instance: instance.clone(),
            execution_id: unsigned(execution_id),
            id: unsigned(activity_id),
            details: ErrorDetails::Infrastructure {
                operation: operation.to_owned(),
                message: reason,
                retryable: false,
            },
        };
        orchestrator_queue::insert(scope, &StoredMessage::encode(operation, &failed.into())?, None)?;
        DamageOutcome::Failed { instance }
    };
    scope.conn.prepare_cached(DELETE_ACTIVITY)?.execute([seq])?;
    Ok(outcome)
}
