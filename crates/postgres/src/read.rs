//! Reads: histories, statuses and statistics. They take no lock. Each statement sees one state of the store.

use everturn_core::{Event, EventKind, OrchestrationStatus, SystemStats};
use everturn_provider::encoded::{self, stored_id, unsigned};
use everturn_provider::store::{CustomStatus, ExecutionRead, OrchestrationName, Stamp, StoredExecution};
use everturn_provider::{ProviderError, status_of};
use tokio_postgres::{Error, Row};

use crate::error::storage_error;
use crate::provider::PostgresProvider;
use crate::session::Parameter;

/// Events after which a page ends: it is read and decoded in a few milliseconds, then other tasks run.
const PAGE_EVENTS: i64 = 512;
/// Bytes after which it ends earlier.
const PAGE_BYTES: i64 = 1024 * 1024;
/// How often a history that becomes shorter while it is read is read again.
const REREADS: usize = 3;
const READ_EXECUTION: &str = "read_execution";

/// The rows of a history behind an event. A page ends with the row that makes it have `$3` events or `$4` bytes. Only the rows
/// of the page are read: the length of a large value is known without it.
macro_rules! page {
    ($key:literal, $execution_id:literal, $after:literal) => {
        concat!(
            "SELECT w.first_event_id, w.last_event_id, w.events FROM (SELECT h.first_event_id, h.last_event_id, h.events, \
             sum(h.last_event_id - h.first_event_id + 1) OVER earlier AS events_before, \
             sum(octet_length(h.events)) OVER earlier AS bytes_before FROM (SELECT r.first_event_id, r.last_event_id, \
             r.events FROM {schema}.everturn_history AS r WHERE r.instance_key = ",
            $key,
            " AND r.execution_id = ",
            $execution_id,
            " AND r.first_event_id > ",
            $after,
            " ORDER BY r.first_event_id LIMIT $3::bigint) AS h WINDOW earlier AS (ORDER BY h.first_event_id \
             ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)) AS w WHERE coalesce(w.events_before, 0) < $3::bigint \
             AND coalesce(w.bytes_before, 0) < $4::bigint ORDER BY w.first_event_id"
        )
    };
}

/// The newest execution of an instance; finds it even if its row is lost.
macro_rules! latest {
    () => {
        "coalesce((SELECT max(m.execution_id) FROM {schema}.everturn_executions AS m \
         WHERE m.instance_key = i.instance_key), i.current_execution_id)"
    };
}

/// An execution, or the newest, of the instance that a condition names: its number of events, and the first page of them.
macro_rules! first_page {
    ($is_instance:literal) => {
        concat!(
            "WITH x AS MATERIALIZED (SELECT i.instance_key, i.turn_stamp, n.execution_id, coalesce(CASE \
                 WHEN n.execution_id = i.current_execution_id THEN i.event_count ELSE e.event_count END, 0) AS event_count \
                 FROM {schema}.everturn_instances AS i CROSS JOIN LATERAL (SELECT coalesce($2::bigint, ",
            latest!(),
            ") AS execution_id) AS n LEFT JOIN {schema}.everturn_executions AS e \
                 ON e.instance_key = i.instance_key AND e.execution_id = n.execution_id WHERE ",
            $is_instance,
            " AND n.execution_id IS NOT NULL) SELECT x.instance_key, x.execution_id, x.turn_stamp, x.event_count, \
             p.first_event_id, p.last_event_id, p.events FROM x LEFT JOIN LATERAL (",
            page!("x.instance_key", "x.execution_id", "0"),
            ") AS p ON true ORDER BY p.first_event_id"
        )
    };
}

const SELECT_LATEST: &str =
    concat!("SELECT ", latest!(), " FROM {schema}.everturn_instances AS i WHERE i.instance_id = $1");
const SELECT_FIRST_PAGE: &str = first_page!("i.instance_id = $1");
const SELECT_FIRST_PAGE_BY_KEY: &str = first_page!("i.instance_key = $1");
const SELECT_PAGE: &str = page!("$1", "$2", "$5");
const SELECT_STAMP: &str = "SELECT turn_stamp FROM {schema}.everturn_instances WHERE instance_id = $1";
const SELECT_CUSTOM_STATUS: &str = "SELECT c.custom_status, c.custom_status_version \
     FROM {schema}.everturn_instances AS i JOIN {schema}.everturn_custom_statuses AS c \
     ON c.instance_key = i.instance_key WHERE i.instance_id = $1";
// The rows with the start, the outcome and the last event of the newest execution.
const SELECT_STATUS: &str = concat!(
    "WITH x AS MATERIALIZED (SELECT i.instance_key, i.created_at_ms IS NOT NULL AS is_created, ",
    latest!(),
    " AS execution_id FROM {schema}.everturn_instances AS i WHERE i.instance_id = $1) \
     SELECT x.execution_id, coalesce(e.status IN ('Completed', 'Failed'), false), x.is_created AND e.status IS NULL, \
     c.custom_status, coalesce(c.custom_status_version, 0), h.first_event_id, h.last_event_id, h.events FROM x \
     LEFT JOIN {schema}.everturn_executions AS e ON e.instance_key = x.instance_key AND e.execution_id = x.execution_id \
     LEFT JOIN {schema}.everturn_custom_statuses AS c ON c.instance_key = x.instance_key LEFT JOIN LATERAL ( \
         (SELECT s.history_key FROM {schema}.everturn_history AS s WHERE s.instance_key = x.instance_key \
             AND s.execution_id = x.execution_id AND s.first_event_id <= e.start_event_id \
             ORDER BY s.first_event_id DESC LIMIT 1) \
         UNION (SELECT o.history_key FROM {schema}.everturn_history AS o WHERE o.instance_key = x.instance_key \
             AND o.execution_id = x.execution_id AND o.first_event_id <= e.outcome_event_id \
             ORDER BY o.first_event_id DESC LIMIT 1) \
         UNION (SELECT l.history_key FROM {schema}.everturn_history AS l WHERE l.instance_key = x.instance_key \
             AND l.execution_id = x.execution_id ORDER BY l.first_event_id DESC LIMIT 1)) AS k ON true \
     LEFT JOIN {schema}.everturn_history AS h ON h.history_key = k.history_key \
     WHERE x.execution_id IS NOT NULL ORDER BY h.first_event_id"
);
const SELECT_NAME: &str = "SELECT orchestration_name, orchestration_version FROM {schema}.everturn_instances \
     WHERE instance_id = $1 AND created_at_ms IS NOT NULL";
const SELECT_STATS: &str = "SELECT i.event_count, i.event_bytes, coalesce(e.carried_count, 0), k.keys_stored, k.bytes_stored \
     FROM {schema}.everturn_instances AS i LEFT JOIN {schema}.everturn_executions AS e \
     ON e.instance_key = i.instance_key AND e.execution_id = i.current_execution_id CROSS JOIN LATERAL ( \
         SELECT count(*) AS keys_stored, coalesce(sum(v.octets), 0)::bigint AS bytes_stored FROM ( \
             SELECT octet_length(d.value) AS octets FROM {schema}.everturn_kv_delta AS d \
             WHERE d.instance_key = i.instance_key AND d.value IS NOT NULL \
             UNION ALL SELECT octet_length(b.value) FROM {schema}.everturn_kv_base AS b \
             WHERE b.instance_key = i.instance_key AND NOT EXISTS (SELECT 1 FROM {schema}.everturn_kv_delta AS d \
                 WHERE d.instance_key = b.instance_key AND d.key = b.key)) AS v) AS k \
     WHERE i.instance_id = $1 AND i.created_at_ms IS NOT NULL";

/// The newest execution of an instance, if it has one.
pub(crate) async fn latest(
    provider: &PostgresProvider,
    operation: &str,
    instance: &str,
) -> Result<Option<i64>, ProviderError> {
    match provider.readers().query_opt(operation, SELECT_LATEST, &[&instance]).await? {
        Some(row) => row.try_get(0).map_err(|error| storage_error(operation, error)),
        None => Ok(None),
    }
}

/// Consecutive events as they are stored, not decoded yet.
struct UndecodedEvents {
    first: i64,
    last: i64,
    json: String,
}

impl UndecodedEvents {
    /// Events from three columns; `None` if there are none.
    fn of(row: &Row, column: usize) -> Result<Option<Self>, Error> {
        let first: Option<i64> = row.try_get(column)?;
        let Some(first) = first else { return Ok(None) };
        Ok(Some(Self { first, last: row.try_get(column + 1)?, json: row.try_get(column + 2)? }))
    }

    fn decode(&self, execution_id: i64) -> Result<Vec<Event>, ProviderError> {
        encoded::decode(execution_id, self.first, self.last, self.json.as_bytes())
    }
}

/// Some rows of a history, and whether there may be more.
struct EventPage {
    rows: Vec<UndecodedEvents>,
    is_last: bool,
}

impl EventPage {
    /// A page from three columns.
    fn of(rows: &[Row], column: usize) -> Result<Self, Error> {
        let found = rows.iter().map(|row| UndecodedEvents::of(row, column));
        let rows: Vec<UndecodedEvents> = found.filter_map(Result::transpose).collect::<Result<_, Error>>()?;
        let (mut events, mut bytes) = (0_i64, 0_i64);
        for row in &rows {
            events = events.saturating_add(row.last.saturating_sub(row.first).max(0)).saturating_add(1);
            bytes = bytes.saturating_add(encoded::stored_count(row.json.len()));
        }
        Ok(Self { rows, is_last: events < PAGE_EVENTS && bytes < PAGE_BYTES })
    }
}

/// Where an execution is, with the first page of its history.
struct FirstPage {
    key: i64,
    execution_id: i64,
    stamp: Option<i64>,
    /// How many events the execution has.
    expected: usize,
    page: EventPage,
}

impl FirstPage {
    fn of(rows: &[Row]) -> Result<Option<Self>, Error> {
        let Some(row) = rows.first() else { return Ok(None) };
        Ok(Some(Self {
            key: row.try_get(0)?,
            execution_id: row.try_get(1)?,
            stamp: row.try_get(2)?,
            expected: usize::try_from(row.try_get::<_, i64>(3)?).unwrap_or(0),
            page: EventPage::of(rows, 4)?,
        }))
    }
}

/// The history of an execution.
struct History {
    events: Vec<Event>,
    /// The stamp of its instance when the first page was read.
    stamp: Option<i64>,
    /// All of it was read by one statement.
    is_one_page: bool,
}

/// The history of one execution, or of the newest; `None` for an unknown instance. A damaged or missing event is an error, never
/// a shorter list.
///
/// Its pages are read one after the other. If they turn out to be too few, the execution was deleted meanwhile, or rows are
/// lost: then it is read again. The key of a deleted instance is never used again, so that the pages are of one execution.
async fn history(
    provider: &PostgresProvider,
    select: &'static str,
    instance: Parameter<'_>,
    wanted: Option<i64>,
) -> Result<Option<History>, ProviderError> {
    let failed = |error| storage_error(READ_EXECUTION, error);
    let mut damage = String::new();
    for _ in 0..=REREADS {
        let parameters: [Parameter<'_>; 4] = [instance, &wanted, &PAGE_EVENTS, &PAGE_BYTES];
        let rows = provider.readers().query(READ_EXECUTION, select, &parameters).await?;
        let Some(first) = FirstPage::of(&rows).map_err(failed)? else { return Ok(None) };
        let FirstPage { key, execution_id, stamp, expected, mut page } = first;
        let is_one_page = page.is_last;
        let (mut events, mut after) = (Vec::new(), 0);
        loop {
            for row in &page.rows {
                after = row.last;
                events.extend(row.decode(execution_id)?);
            }
            if page.is_last {
                break;
            }
            tokio::task::yield_now().await;
            let parameters: [Parameter<'_>; 5] = [&key, &execution_id, &PAGE_EVENTS, &PAGE_BYTES, &after];
            let rows = provider.readers().query(READ_EXECUTION, SELECT_PAGE, &parameters).await?;
            page = EventPage::of(&rows, 0).map_err(failed)?;
        }
        if events.len() >= expected {
            return Ok(Some(History { events, stamp, is_one_page }));
        }
        damage = format!("{} events of execution {execution_id} are missing", expected - events.len());
    }
    Err(ProviderError::damaged(READ_EXECUTION, damage))
}

/// The events of an execution, in order; none if it was deleted. A damaged or missing event is an error, never a shorter list.
pub(crate) async fn events(
    provider: &PostgresProvider,
    key: i64,
    execution_id: i64,
) -> Result<Vec<Event>, ProviderError> {
    let history = history(provider, SELECT_FIRST_PAGE_BY_KEY, &key, Some(execution_id)).await?;
    Ok(history.map(|history| history.events).unwrap_or_default())
}

/// The same error; damage names the instance.
pub(crate) fn about(instance: &str, mut error: ProviderError) -> ProviderError {
    if error.is_damaged() {
        error.message = format!("instance {instance} is damaged: {}", error.message);
    }
    error
}

/// Says why a history that is stored for this instance belongs to another one.
pub(crate) fn misplaced(instance_id: &str, history: &[Event]) -> Option<String> {
    let foreign = history.iter().find(|event| event.instance_id != instance_id)?;
    Some(format!("instance {instance_id:?} has the history of instance {:?}", foreign.instance_id))
}

async fn history_of(
    provider: &PostgresProvider,
    read: &ExecutionRead,
) -> Result<Option<History>, ProviderError> {
    let wanted = match read.execution_id.map(|id| stored_id(READ_EXECUTION, "execution id", id)) {
        // An id that cannot be stored has no events.
        Some(Err(_)) => return Ok(None),
        Some(Ok(id)) => Some(id),
        None => None,
    };
    let found = history(provider, SELECT_FIRST_PAGE, &read.instance, wanted).await?;
    match found.as_ref().and_then(|history| misplaced(&read.instance, &history.events)) {
        Some(reason) => Err(ProviderError::damaged(READ_EXECUTION, reason)),
        None => Ok(found),
    }
}

/// The events of one execution, or of the newest; none for an unknown one.
pub(crate) async fn execution(
    provider: &PostgresProvider,
    read: &ExecutionRead,
) -> Result<Vec<Event>, ProviderError> {
    Ok(history_of(provider, read).await?.map(|history| history.events).unwrap_or_default())
}

/// `read_execution`: an execution with the stamp of its instance, if it is asked for. A long history is read in pages: only if
/// the stamp is the same before and after them, it is that of all.
pub(crate) async fn stamped_execution(
    provider: &PostgresProvider,
    read: &ExecutionRead,
) -> Result<StoredExecution, ProviderError> {
    let Some(history) = history_of(provider, read).await? else { return Ok(StoredExecution::default()) };
    let History { events, stamp, is_one_page } = history;
    let found = StoredExecution::new(events);
    if !read.with_stamp {
        return Ok(found);
    }
    let is_of_all = is_one_page || self::stamp(provider, &read.instance).await? == stamp;
    Ok(found.with_stamp(stamp.filter(|_| is_of_all).map(|stamp| Stamp(stamp.cast_unsigned()))))
}

/// The stamp of an instance, if it has one.
async fn stamp(provider: &PostgresProvider, instance: &str) -> Result<Option<i64>, ProviderError> {
    match provider.readers().query_opt(READ_EXECUTION, SELECT_STAMP, &[&instance]).await? {
        Some(row) => row.try_get(0).map_err(|error| storage_error(READ_EXECUTION, error)),
        None => Ok(None),
    }
}

/// `read_custom_status`.
pub(crate) async fn custom_status(
    provider: &PostgresProvider,
    instance: &str,
    last_seen_version: u64,
) -> Result<Option<CustomStatus>, ProviderError> {
    const NAME: &str = "read_custom_status";
    let Some(row) = provider.readers().query_opt(NAME, SELECT_CUSTOM_STATUS, &[&instance]).await? else {
        return Ok(None);
    };
    let status = stored_status(&row, 0).map_err(|error| storage_error(NAME, error))?;
    Ok(Some(status).filter(|status| status.version > last_seen_version))
}

/// A custom status from two columns.
fn stored_status(row: &Row, column: usize) -> Result<CustomStatus, Error> {
    Ok(CustomStatus { text: row.try_get(column)?, version: unsigned(row.try_get(column + 1)?) })
}

/// What decides the status of an instance.
struct StatusParts {
    execution_id: i64,
    has_ended: bool,
    /// The row of the current execution is missing.
    is_lost: bool,
    custom_status: CustomStatus,
    /// The rows with the start, the outcome and the last event.
    stored: Vec<UndecodedEvents>,
}

impl StatusParts {
    fn of(rows: &[Row]) -> Result<Option<Self>, Error> {
        let Some(row) = rows.first() else { return Ok(None) };
        Ok(Some(Self {
            execution_id: row.try_get(0)?,
            has_ended: row.try_get(1)?,
            is_lost: row.try_get(2)?,
            custom_status: stored_status(row, 3)?,
            stored: EventPage::of(rows, 5)?.rows,
        }))
    }
}

/// `read_status`: from the start, the outcome and the last event of the newest execution.
pub(crate) async fn status(
    provider: &PostgresProvider,
    instance: &str,
) -> Result<OrchestrationStatus, ProviderError> {
    const NAME: &str = "read_status";
    let rows = provider.readers().query(NAME, SELECT_STATUS, &[&instance]).await?;
    let parts = StatusParts::of(&rows).map_err(|error| about(instance, storage_error(NAME, error)))?;
    let Some(StatusParts { execution_id, has_ended, is_lost, custom_status, stored }) = parts else {
        return Ok(OrchestrationStatus::NotFound);
    };
    if is_lost {
        let error = ProviderError::damaged(NAME, format!("the row of execution {execution_id} is missing"));
        return Err(about(instance, error));
    }
    let few = stored.iter().map(|row| row.decode(execution_id)).collect::<Result<Vec<_>, _>>()?;
    let mut few = few.concat();
    let decides = |Event { kind, .. }: &Event| {
        kind.ends_instance() || (!has_ended && matches!(kind, EventKind::OrchestrationStarted { .. }))
    };
    if !few.iter().any(decides) {
        // The execution's row names the wrong events, or there is no start yet: read all of them.
        few = execution(provider, &ExecutionRead::of(instance, unsigned(execution_id))).await?;
    }
    Ok(status_of(&few, custom_status.text, custom_status.version))
}

/// `read_orchestration_name`: from the instance's row, else from its start event.
pub(crate) async fn orchestration_name(
    provider: &PostgresProvider,
    instance: &str,
) -> Result<Option<OrchestrationName>, ProviderError> {
    const NAME: &str = "read_orchestration_name";
    let failed = |error| storage_error(NAME, error);
    if let Some(row) = provider.readers().query_opt(NAME, SELECT_NAME, &[&instance]).await? {
        let (name, version) = (row.try_get(0).map_err(failed)?, row.try_get(1).map_err(failed)?);
        return Ok(Some(OrchestrationName { name, version }));
    }
    let history = execution(provider, &ExecutionRead::latest(instance)).await?;
    Ok(history.into_iter().find_map(|event| match event.kind {
        EventKind::OrchestrationStarted { name, version, .. } => Some(OrchestrationName { name, version }),
        _ => None,
    }))
}

/// `read_stats`.
pub(crate) async fn stats(
    provider: &PostgresProvider,
    instance: &str,
) -> Result<Option<SystemStats>, ProviderError> {
    const NAME: &str = "read_stats";
    let Some(row) = provider.readers().query_opt(NAME, SELECT_STATS, &[&instance]).await? else {
        return Ok(None);
    };
    stored_stats(&row).map(Some).map_err(|error| storage_error(NAME, error))
}

fn stored_stats(row: &Row) -> Result<SystemStats, Error> {
    Ok(SystemStats {
        history_event_count: unsigned(row.try_get(0)?),
        history_size_bytes: unsigned(row.try_get(1)?),
        queue_pending_count: unsigned(row.try_get(2)?),
        kv_user_key_count: unsigned(row.try_get(3)?),
        kv_total_value_bytes: unsigned(row.try_get(4)?),
    })
}
