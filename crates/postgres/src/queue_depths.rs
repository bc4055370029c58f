//! How much waits in the two queues. Entries of indexes are counted; no row of an execution is looked up.

use everturn_provider::ProviderError;
use everturn_provider::encoded::unsigned;
use everturn_provider::management::QueueDepths;
use tokio_postgres::{Error, Row};

use crate::error::storage_error;
use crate::provider::PostgresProvider;

// Of the messages all but those that a holder of a lock has, and timers that are not due and that nothing waits for; of the
// activities all but those that a worker has.
const SELECT_DEPTHS: &str = "SELECT (SELECT count(*) FROM {schema}.everturn_orchestrator_queue) \
     - (SELECT count(*) FROM {schema}.everturn_instances AS i JOIN {schema}.everturn_orchestrator_queue AS q \
         ON q.instance_key = i.instance_key WHERE i.lock_token IS NOT NULL AND i.ready_seq IS NULL \
         AND i.locked_until_ms > {schema}.everturn_now_ms($1::bigint) AND q.visible_at_ms = 0 AND q.tagged) \
     - (SELECT count(*) FROM {schema}.everturn_orchestrator_queue AS q \
         WHERE q.unawaited AND q.visible_at_ms > {schema}.everturn_now_ms($1::bigint)), \
     (SELECT count(*) FROM {schema}.everturn_worker_queue) \
     - (SELECT count(*) FROM {schema}.everturn_worker_queue AS w WHERE w.lock_token IS NOT NULL AND NOT w.ready \
         AND w.locked_until_ms > {schema}.everturn_now_ms($1::bigint))";

/// `get_queue_depths`: the depths at this moment.
pub(crate) async fn read(provider: &PostgresProvider) -> Result<QueueDepths, ProviderError> {
    const NAME: &str = "get_queue_depths";
    let test_now_ms = provider.test_now_ms();
    match provider.readers().query_opt(NAME, SELECT_DEPTHS, &[&test_now_ms]).await? {
        Some(row) => depths(&row).map_err(|error| storage_error(NAME, error)),
        None => Ok(QueueDepths::default()),
    }
}

fn depths(row: &Row) -> Result<QueueDepths, Error> {
    let depth = |stored: i64| usize::try_from(unsigned(stored)).unwrap_or(usize::MAX);
    Ok(QueueDepths {
        orchestrator_queue: depth(row.try_get(0)?),
        worker_queue: depth(row.try_get(1)?),
        timer_queue: 0,
    })
}
