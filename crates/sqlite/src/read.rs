//! Reads: histories, statuses and statistics, without the writer.

use everturn_core::{Event, EventKind, OrchestrationStatus, SystemStats};
use everturn_provider::encoded::{self, stored_id, unsigned};
use everturn_provider::store::{CustomStatus, ExecutionRead, OrchestrationName, Stamp, StoredExecution};
use everturn_provider::{ProviderError, status_of};
use rusqlite::{Connection, ErrorCode, OptionalExtension, Row};

use crate::columns;
use crate::garbage;
use crate::provider::SqliteProvider;
use crate::watches;

/// Events after which a page ends: it is read and decoded in a few milliseconds, then other tasks run.
const PAGE_EVENTS: i64 = 512;
/// Bytes after which it ends earlier.
const PAGE_BYTES: usize = 1024 * 1024;
/// How often a history that becomes shorter while it is read is read again.
const REREADS: usize = 3;

const SELECT_KEY: &str = "SELECT instance_key FROM everturn_instances WHERE instance_id = ?1";
// Finds the events even if their execution's row is lost.
const SELECT_LATEST: &str = "SELECT i.instance_key, coalesce((SELECT max(e.execution_id) FROM everturn_executions AS e \
     WHERE e.instance_key = i.instance_key), i.current_execution_id) FROM everturn_instances AS i WHERE i.instance_id = ?1";
/// A count of an execution's events: those of the current one are counted in the row of its instance.
macro_rules! of_execution {
    ($count:literal) => {
        concat!(
            "CASE WHEN e.execution_id = i.current_execution_id THEN i.",
            $count,
            " ELSE e.",
            $count,
            " END"
        )
    };
}
pub(crate) use of_execution;

const SELECT_COUNT: &str = concat!(
    "SELECT ",
    of_execution!("event_count"),
    " FROM everturn_executions AS e JOIN everturn_instances AS i ON i.instance_key = e.instance_key \
     WHERE e.instance_key = ?1 AND e.execution_id = ?2"
);
// From the row on that holds the event behind `?3`, or would.
pub(crate) const SELECT_EVENTS: &str = "SELECT first_event_id, last_event_id, events FROM everturn_history \
     WHERE instance_key = ?1 AND execution_id = ?2 AND first_event_id >= coalesce((SELECT max(h.first_event_id) \
         FROM everturn_history AS h WHERE h.instance_key = ?1 AND h.execution_id = ?2 AND h.first_event_id <= ?3 + 1), 0) \
     ORDER BY first_event_id";
const SELECT_CUSTOM_STATUS: &str = "SELECT c.custom_status, coalesce(c.custom_status_version, 0) FROM everturn_instances AS i \
     LEFT JOIN everturn_custom_statuses AS c ON c.instance_key = i.instance_key WHERE i.instance_id = ?1";
// The rows with the start, the outcome and the last event.
pub(crate) const SELECT_STATUS_EVENTS: &str = "SELECT h.first_event_id, h.last_event_id, h.events \
     FROM everturn_executions AS e JOIN everturn_history AS h ON h.history_key IN ( \
     (SELECT s.history_key FROM everturn_history AS s WHERE s.instance_key = ?1 AND s.execution_id = ?2 \
         AND s.first_event_id <= e.start_event_id ORDER BY s.first_event_id DESC LIMIT 1), \
     (SELECT o.history_key FROM everturn_history AS o WHERE o.instance_key = ?1 AND o.execution_id = ?2 \
         AND o.first_event_id <= e.outcome_event_id ORDER BY o.first_event_id DESC LIMIT 1), \
     (SELECT l.history_key FROM everturn_history AS l WHERE l.instance_key = ?1 AND l.execution_id = ?2 \
         ORDER BY l.first_event_id DESC LIMIT 1)) \
     WHERE e.instance_key = ?1 AND e.execution_id = ?2 ORDER BY h.first_event_id";
const SELECT_ENDED: &str = "SELECT status IN ('Completed', 'Failed') FROM everturn_executions \
     WHERE instance_key = ?1 AND execution_id = ?2";
// The turn that made an execution the current one also inserted its row.
const SELECT_CURRENT: &str = "SELECT e.status, i.orchestration_name, i.orchestration_version, i.parent_instance_id, \
     e.output FROM everturn_instances AS i LEFT JOIN everturn_executions AS e \
     ON e.instance_key = i.instance_key AND e.execution_id = i.current_execution_id \
     WHERE i.instance_key = ?1 AND i.current_execution_id IS NOT NULL";
const SELECT_LOST: &str = concat!(
    "SELECT ",
    of_execution!("event_count"),
    " > 0 AND NOT EXISTS (SELECT 1 FROM everturn_history AS h \
     WHERE h.instance_key = e.instance_key AND h.execution_id = e.execution_id) \
     FROM everturn_executions AS e JOIN everturn_instances AS i ON i.instance_key = e.instance_key \
     WHERE e.instance_key = ?1 AND e.execution_id = ?2"
);
const SELECT_STATUS_OF: &str = "SELECT custom_status FROM everturn_custom_statuses WHERE instance_key = ?1";
const SELECT_NAME: &str = "SELECT orchestration_name, orchestration_version FROM everturn_instances \
     WHERE instance_id = ?1 AND created_at_ms IS NOT NULL";
const SELECT_STATS: &str = "SELECT i.instance_key, i.event_count, i.event_bytes, \
     coalesce(e.carried_count, 0) FROM everturn_instances AS i LEFT JOIN everturn_executions AS e \
     ON e.instance_key = i.instance_key AND e.execution_id = i.current_execution_id \
     WHERE i.instance_id = ?1 AND i.created_at_ms IS NOT NULL";
const SELECT_KV_STATS: &str = "SELECT count(*), coalesce(sum(bytes), 0) FROM ( \
     SELECT octet_length(value) AS bytes FROM everturn_kv_delta WHERE instance_key = ?1 AND value IS NOT NULL \
     UNION ALL SELECT octet_length(b.value) FROM everturn_kv_base AS b WHERE b.instance_key = ?1 AND NOT EXISTS \
         (SELECT 1 FROM everturn_kv_delta AS d WHERE d.instance_key = b.instance_key AND d.key = b.key))";

/// The newest execution of an instance, with the instance's key.
pub(crate) fn latest(conn: &Connection, instance_id: &str) -> rusqlite::Result<Option<(i64, i64)>> {
    let found = conn
        .prepare_cached(SELECT_LATEST)?
        .query_row([instance_id], |row| Ok((row.get(0)?, row.get::<_, Option<i64>>(1)?)))
        .optional()?;
    Ok(found.and_then(|(key, execution_id)| Some((key, execution_id?))))
}

/// Some rows of a history, and whether there may be more.
struct EventPage {
    rows: Vec<UndecodedEvents>,
    is_last: bool,
}

/// Consecutive events as they are stored, not decoded yet.
struct UndecodedEvents {
    first: i64,
    last: i64,
    json: Vec<u8>,
}

impl UndecodedEvents {
    /// Events from the first three columns.
    fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self { first: row.get(0)?, last: row.get(1)?, json: columns::bytes(row, 2)? })
    }

    fn decode(&self, execution_id: i64) -> Result<Vec<Event>, ProviderError> {
        encoded::decode(execution_id, self.first, self.last, &self.json)
    }
}

/// The rows behind an event, until they have so many events.
fn page(
    conn: &Connection,
    key: i64,
    execution_id: i64,
    after: i64,
    events_max: i64,
) -> rusqlite::Result<EventPage> {
    let mut select = conn.prepare_cached(SELECT_EVENTS)?;
    let mut found = select.query([key, execution_id, after])?;
    let mut page = EventPage { rows: Vec::new(), is_last: true };
    let (mut events, mut bytes) = (0_i64, 0);
    while let Some(row) = found.next()? {
        let row = UndecodedEvents::of(row)?;
        if row.last <= after {
            continue;
        }
        events = events.saturating_add(row.last.saturating_sub(row.first).max(0)).saturating_add(1);
        bytes += row.json.len();
        page.rows.push(row);
        if events >= events_max || bytes >= PAGE_BYTES {
            page.is_last = false;
            break;
        }
    }
    Ok(page)
}

/// The events of an execution, in order. A damaged or missing event is an error, never a shorter list.
pub(crate) async fn events(
    provider: &SqliteProvider,
    key: i64,
    execution_id: i64,
) -> Result<Vec<Event>, ProviderError> {
    let mut missing = 0;
    for _ in 0..=REREADS {
        let expected = provider
            .read_with("read_execution", move |conn| {
                if garbage::is_listed(conn, key, execution_id)? {
                    return Ok(None);
                }
                let count =
                    conn.prepare_cached(SELECT_COUNT)?.query_row([key, execution_id], |row| row.get(0));
                Ok(Some(count.optional()?.unwrap_or(0_i64)))
            })
            .await?;
        // It was deleted or pruned; its events are about to be removed.
        let Some(expected) = expected else { return Ok(Vec::new()) };
        let events = all_pages(provider, key, execution_id).await?;
        let expected = usize::try_from(expected).unwrap_or(0);
        if events.len() >= expected {
            return Ok(events);
        }
        // Events were deleted while they were read, or rows are lost.
        missing = expected - events.len();
    }
    Err(ProviderError::damaged(
        "read_execution",
        format!("{missing} events of execution {execution_id} are missing"),
    ))
}

async fn all_pages(
    provider: &SqliteProvider,
    key: i64,
    execution_id: i64,
) -> Result<Vec<Event>, ProviderError> {
    let mut events = Vec::new();
    let mut after = 0;
    loop {
        let read = move |conn: &Connection| page(conn, key, execution_id, after, PAGE_EVENTS);
        let page = provider.read_with("read_execution", read).await?;
        for row in &page.rows {
            after = row.last;
            events.extend(row.decode(execution_id)?);
        }
        if page.is_last {
            return Ok(events);
        }
        tokio::task::yield_now().await;
    }
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

/// The events of one execution, or of the newest.
///
/// Its pages are transactions of their own. If the instance is deleted meanwhile, another may take its key: then the history
/// is read again.
pub(crate) async fn execution(
    provider: &SqliteProvider,
    read: &ExecutionRead,
) -> Result<Vec<Event>, ProviderError> {
    let mut damage = String::new();
    for _ in 0..=REREADS {
        let events = execution_once(provider, read).await?;
        match misplaced(&read.instance, &events) {
            None => return Ok(events),
            Some(reason) => damage = reason,
        }
    }
    Err(ProviderError::damaged("read_execution", damage))
}

/// `read_execution`: an execution with the stamp of its instance. The history is read in slices: only if the stamp is the same before and after
/// them, it is that of all.
pub(crate) async fn stamped_execution(
    provider: &SqliteProvider,
    read: &ExecutionRead,
) -> Result<StoredExecution, ProviderError> {
    if !read.with_stamp {
        return execution(provider, read).await.map(StoredExecution::new);
    }
    let before = stamp(provider, &read.instance).await?;
    let events = execution(provider, read).await?;
    let after = stamp(provider, &read.instance).await?;
    Ok(StoredExecution::new(events).with_stamp(after.filter(|_| after == before)))
}

/// The stamp of an instance, if it has one that can be read.
async fn stamp(provider: &SqliteProvider, instance: &str) -> Result<Option<Stamp>, ProviderError> {
    let instance = instance.to_owned();
    let read = move |conn: &Connection| {
        let mut select = conn.prepare_cached(watches::SELECT_STAMP)?;
        select.query_row([instance], |row| columns::integer(row, 0)).optional()
    };
    let stored = provider.read_with("read_execution", read).await?;
    Ok(stored.flatten().map(|stamp| Stamp(stamp.cast_unsigned())))
}

async fn execution_once(
    provider: &SqliteProvider,
    read: &ExecutionRead,
) -> Result<Vec<Event>, ProviderError> {
    let (instance, wanted) = (read.instance.clone(), read.execution_id);
    let found = provider
        .read_with("read_execution", move |conn| match wanted {
            None => latest(conn, &instance),
            // An id that cannot be stored has no events.
            Some(id) => match stored_id("read_execution", "execution id", id) {
                Err(_) => Ok(None),
                Ok(execution_id) => conn
                    .prepare_cached(SELECT_KEY)?
                    .query_row([instance], |row| Ok((row.get(0)?, execution_id)))
                    .optional(),
            },
        })
        .await?;
    match found {
        Some((key, execution_id)) => events(provider, key, execution_id).await,
        None => Ok(Vec::new()),
    }
}

/// `read_custom_status`.
pub(crate) async fn custom_status(
    provider: &SqliteProvider,
    instance: &str,
    last_seen_version: u64,
) -> Result<Option<CustomStatus>, ProviderError> {
    let instance = instance.to_owned();
    let found = provider.read_with("read_custom_status", move |conn| stored_status(conn, &instance)).await?;
    Ok(found.filter(|status| status.version > last_seen_version))
}

fn stored_status(conn: &Connection, instance: &str) -> rusqlite::Result<Option<CustomStatus>> {
    conn.prepare_cached(SELECT_CUSTOM_STATUS)?
        .query_row([instance], |row| {
            Ok(CustomStatus { text: columns::nullable(row, 0)?, version: unsigned(row.get(1)?) })
        })
        .optional()
}

/// Whether stored data is damaged; otherwise the store failed for now.
fn is_damage(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error_code();
    code.is_none_or(|code| matches!(code, ErrorCode::DatabaseCorrupt | ErrorCode::TypeMismatch))
}

/// Fails if the row of an instance is damaged, or the row of its current execution is missing.
fn check_record(conn: &Connection, key: i64) -> rusqlite::Result<()> {
    let read = |row: &Row<'_>| {
        (0..3).try_for_each(|column| columns::name(row, column).map(drop))?;
        (3..5).try_for_each(|column| columns::nullable(row, column).map(drop))
    };
    conn.prepare_cached(SELECT_CURRENT)?.query_row([key], read).optional()?;
    Ok(())
}

/// Says whether the newest execution of an instance should have events and has none. Counting all would take too long.
pub(crate) fn lost_history(conn: &Connection, instance_id: &str) -> rusqlite::Result<Option<String>> {
    let Some((key, execution_id)) = latest(conn, instance_id)? else { return Ok(None) };
    let lost = conn
        .prepare_cached(SELECT_LOST)?
        .query_row([key, execution_id], |row| columns::flag(row, 0))
        .optional()?;
    Ok((lost == Some(true)).then(|| format!("the events of execution {execution_id} are missing")))
}

/// Fails if the custom status of an instance cannot be read.
pub(crate) fn check_custom_status(conn: &Connection, key: i64) -> rusqlite::Result<()> {
    conn.prepare_cached(SELECT_STATUS_OF)?.query_row([key], |row| columns::nullable(row, 0)).optional()?;
    Ok(())
}

/// `read_status`: from the start, the outcome and the last event of the newest execution.
pub(crate) async fn status(
    provider: &SqliteProvider,
    instance: &str,
) -> Result<OrchestrationStatus, ProviderError> {
    let id = instance.to_owned();
    let found = provider
        .read_with("read_status", move |conn| {
            let Some((key, execution_id)) = latest(conn, &id)? else { return Ok(None) };
            let events = conn
                .prepare_cached(SELECT_STATUS_EVENTS)?
                .query_map([key, execution_id], UndecodedEvents::of)?
                .collect::<rusqlite::Result<Vec<_>>>()?;
            let ended = conn
                .prepare_cached(SELECT_ENDED)?
                .query_row([key, execution_id], |row| columns::integer(row, 0))
                .optional()?
                .flatten()
                == Some(1);
            // Other damage does not hide the result of an ended instance.
            if !ended {
                check_record(conn, key)?;
            }
            let custom_status = match stored_status(conn, &id) {
                Ok(status) => status.unwrap_or_default(),
                Err(error) if ended && is_damage(&error) => CustomStatus::default(),
                Err(error) => return Err(error),
            };
            Ok(Some((execution_id, events, custom_status, ended)))
        })
        .await
        .map_err(|error| about(instance, error))?;
    let Some((execution_id, stored, custom_status, ended)) = found else {
        return Ok(OrchestrationStatus::NotFound);
    };
    let few = stored.iter().map(|row| row.decode(execution_id)).collect::<Result<Vec<_>, _>>()?;
    let mut few = few.concat();
    let decides = |Event { kind, .. }: &Event| {
        kind.ends_instance() || (!ended && matches!(kind, EventKind::OrchestrationStarted { .. }))
    };
    if !few.iter().any(decides) {
        // The execution's row names the wrong events, or there is no start yet: read all of them.
        few = execution(provider, &ExecutionRead::of(instance, unsigned(execution_id))).await?;
    }
    Ok(status_of(&few, custom_status.text, custom_status.version))
}

/// `read_orchestration_name`: from the instance's row, else from its start event.
pub(crate) async fn orchestration_name(
    provider: &SqliteProvider,
    instance: &str,
) -> Result<Option<OrchestrationName>, ProviderError> {
    let id = instance.to_owned();
    let found = provider
        .read_with("read_orchestration_name", move |conn| {
            conn.prepare_cached(SELECT_NAME)?
                .query_row([id], |row| {
                    Ok(OrchestrationName { name: columns::name(row, 0)?, version: columns::name(row, 1)? })
                })
                .optional()
        })
        .await?;
    if found.is_some() {
        return Ok(found);
    }
    let history = execution(provider, &ExecutionRead::latest(instance)).await?;
    Ok(history.into_iter().find_map(|event| match event.kind {
        EventKind::OrchestrationStarted { name, version, .. } => Some(OrchestrationName { name, version }),
        _ => None,
    }))
}

/// `read_stats`.
pub(crate) async fn stats(
    provider: &SqliteProvider,
    instance: &str,
) -> Result<Option<SystemStats>, ProviderError> {
    let instance = instance.to_owned();
    provider
        .read_with("read_stats", move |conn| {
            let found = conn
                .prepare_cached(SELECT_STATS)?
                .query_row([instance], |row| {
                    Ok((row.get::<_, i64>(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
                })
                .optional()?;
            let Some((key, event_count, event_bytes, carried)) = found else { return Ok(None) };
            let (keys, bytes): (i64, i64) = conn
                .prepare_cached(SELECT_KV_STATS)?
                .query_row([key], |row| Ok((row.get(0)?, row.get(1)?)))?;
            Ok(Some(SystemStats {
                history_event_count: unsigned(event_count),
                history_size_bytes: unsigned(event_bytes),
                queue_pending_count: unsigned(carried),
                kv_user_key_count: unsigned(keys),
                kv_total_value_bytes: unsigned(bytes),
            }))
        })
        .await
}

#[cfg(test)]
mod tests;
