//! Dead letters: rows of the queues that no instance will ever read, kept for repair. Reading them in pages, and deleting them.

use async_trait::async_trait;
use everturn_provider::ProviderError;
use everturn_provider::encoded::{stored_count, stored_ms, unsigned};
use everturn_provider::management::{DeadLetterRecord, DeadLetterSelection};
use tokio_postgres::{Error, Row};

use crate::error::storage_error;
use crate::provider::PostgresProvider;
use crate::readers::{Transaction, TransactionError};
use crate::session::ServerSession;

/// How many of them a page has at most, whatever its caller asks for.
const PAGE_ROWS: usize = 1_000;
/// How many of them one transaction deletes at most.
const SLICE_ROWS: usize = 500;

const SELECT_PAGE: &str = "SELECT dead_letter_key, dead_lettered_at_ms, reason, instance_id, execution_id, activity_id, \
     work_item FROM {schema}.everturn_dead_letters WHERE dead_letter_key > $1 ORDER BY dead_letter_key LIMIT $2::bigint";
const DELETE_KEYS: &str =
    "DELETE FROM {schema}.everturn_dead_letters WHERE dead_letter_key = ANY($1::bigint[])";
const DELETE_OLD: &str = "DELETE FROM {schema}.everturn_dead_letters WHERE dead_letter_key IN (SELECT d.dead_letter_key \
     FROM {schema}.everturn_dead_letters AS d WHERE d.dead_lettered_at_ms < $1 \
     ORDER BY d.dead_lettered_at_ms, d.dead_letter_key LIMIT $2::bigint)";

/// `read_dead_letters`.
pub(crate) async fn read(
    provider: &PostgresProvider,
    after: Option<u64>,
    limit: usize,
) -> Result<Vec<DeadLetterRecord>, ProviderError> {
    const NAME: &str = "read_dead_letters";
    let after = after.map_or(i64::MIN, stored_ms);
    let limit = stored_count(limit.min(PAGE_ROWS));
    let rows = provider.readers().query(NAME, SELECT_PAGE, &[&after, &limit]).await?;
    let records = rows.iter().map(record).collect::<Result<Vec<_>, _>>();
    records.map_err(|error| storage_error(NAME, error))
}

fn record(row: &Row) -> Result<DeadLetterRecord, Error> {
    let (key, at_ms, reason): (i64, i64, String) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    let (execution_id, activity_id): (Option<i64>, Option<i64>) = (row.try_get(4)?, row.try_get(5)?);
    let mut record = DeadLetterRecord::new(unsigned(key), unsigned(at_ms), reason);
    record.instance_id = row.try_get(3)?;
    record.execution_id = execution_id.map(unsigned);
    record.activity_id = activity_id.map(unsigned);
    record.work_item = row.try_get(6)?;
    Ok(record)
}

/// `delete_dead_letters`, slice by slice.
pub(crate) async fn delete(
    provider: &PostgresProvider,
    which: DeadLetterSelection,
) -> Result<u64, ProviderError> {
    let mut deleted = 0;
    match which {
        DeadLetterSelection::Keys(keys) => {
            let keys: Vec<i64> = keys.into_iter().filter_map(|key| i64::try_from(key).ok()).collect();
            for slice in keys.chunks(SLICE_ROWS) {
                deleted += provider.readers().transact(&DeleteDeadLetters::Keys(slice.to_vec())).await?;
            }
        }
        DeadLetterSelection::OlderThan(at_ms) => loop {
            let oldest = DeleteDeadLetters::OlderThan(stored_ms(at_ms));
            let slice = provider.readers().transact(&oldest).await?;
            deleted += slice;
            if usize::try_from(slice).is_ok_and(|slice| slice < SLICE_ROWS) {
                break;
            }
        },
        other => {
            let message = format!("this store cannot select dead letters by {other:?}");
            return Err(ProviderError::unsupported("delete_dead_letters", message));
        }
    }
    Ok(deleted)
}

/// Deletes some dead letters.
enum DeleteDeadLetters {
    Keys(Vec<i64>),
    /// The oldest of those from before this time.
    OlderThan(i64),
}

#[async_trait]
impl Transaction for DeleteDeadLetters {
    type Answer = u64;
    const NAME: &'static str = "delete_dead_letters";

    async fn run(&self, session: &ServerSession) -> Result<u64, TransactionError> {
        Ok(match self {
            Self::Keys(keys) => session.execute(DELETE_KEYS, &[keys]).await?,
            Self::OlderThan(at_ms) => {
                session.execute(DELETE_OLD, &[at_ms, &stored_count(SLICE_ROWS)]).await?
            }
        })
    }
}
