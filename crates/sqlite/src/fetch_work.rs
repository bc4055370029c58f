//! `fetch_work`: the oldest activity that a worker may take.

use everturn_core::WorkItem;
use everturn_provider::store::{FetchedWork, WorkFetch};
use everturn_provider::{ProviderError, SessionFetchConfig, TagFilter};
use rusqlite::{Connection, OptionalExtension, params};
use tokio::time::Instant;

use crate::clock_reading::{ClockReading, length_ms, stored_ms};
use crate::columns;
use crate::command_queue::Command;
use crate::damaged_activity;
use crate::locks::{self, new_token, row_of};
use crate::operation::{Scope, VerbFailure};
use crate::parked_fetches::ParkedWorkFetch;
use crate::provider::SqliteProvider;
use crate::return_unread::UnreadGuard;
use crate::sessions::{self, SessionLease};

/// An activity that was locked for a fetch.
pub(crate) struct AssignedWork {
    pub(crate) token: String,
    pub(crate) at: ClockReading,
    pub(crate) lock_ms: u64,
    pub(crate) lease: Option<SessionLease>,
    /// The instance that the row names; a sound item names it too.
    instance_id: Vec<u8>,
    work_item: Vec<u8>,
    attempt_count: u32,
}

/// What the writer answers. If it is dropped unread, the activity returns to the queue.
pub(crate) struct WorkAnswer {
    pub(crate) work: AssignedWork,
    pub(crate) guard: UnreadGuard,
}

const OLDEST_UNTAGGED: &str = "SELECT seq FROM worker_queue INDEXED BY worker_queue_ready \
     WHERE ready = 1 AND session_id IS NULL AND tag IS NULL ORDER BY seq LIMIT 1";
const OLDEST_TAGGED: &str = "SELECT seq FROM worker_queue INDEXED BY worker_queue_ready \
     WHERE ready = 1 AND session_id IS NULL AND tag = ?1 ORDER BY seq LIMIT 1";
const OLDEST_OF_ALL: &str = "SELECT seq FROM worker_queue NOT INDEXED \
     WHERE ready = 1 AND session_id IS NULL ORDER BY seq LIMIT 1";
// Rows of sessions that another worker owns are skipped.
const SESSION_ROWS: &str = "SELECT w.seq, w.session_id, w.tag FROM worker_queue AS w \
     INDEXED BY worker_queue_session_ready LEFT JOIN sessions AS s ON s.session_id = w.session_id \
     WHERE w.ready = 1 AND w.session_id IS NOT NULL \
     AND (s.session_id IS NULL OR typeof(s.lease_until_ms) <> 'integer' \
     OR s.lease_until_ms <= ?1 OR s.owner_id = ?2) ORDER BY w.seq";
const SESSION_WORK_READY: &str = "SELECT 1 FROM worker_queue INDEXED BY worker_queue_session_ready \
     WHERE ready = 1 AND session_id IS NOT NULL LIMIT 1";
const SELECT_ACTIVITY: &str = "SELECT attempt_count, work_item, instance_id FROM worker_queue WHERE seq = ?1";
const LOCK_ACTIVITY: &str = "UPDATE worker_queue SET lock_token = ?2, locked_until_ms = ?3, lock_ms = ?4, ready = 0, \
     attempt_count = ?5 WHERE seq = ?1";

/// Whether any activity that is bound to a session is ready.
pub(crate) fn session_work_is_ready(conn: &Connection) -> rusqlite::Result<bool> {
    conn.prepare_cached(SESSION_WORK_READY)?.exists([])
}

/// Locks the oldest activity that the fetch may take. A damaged row that cannot be locked is removed: it would block all
/// fetches.
pub(crate) fn assign(
    scope: &mut Scope<'_>,
    fetch: &ParkedWorkFetch,
) -> Result<Option<AssignedWork>, VerbFailure> {
    loop {
        let Some((seq, session_id)) = oldest(scope, fetch)? else { return Ok(None) };
        match lock(scope, fetch, seq, session_id) {
            Err(VerbFailure::Refused(error)) => {
                let outcome = damaged_activity::remove(scope, seq, &error.message, true)?;
                outcome.log(&error.message);
            }
            locked => return locked.map(Some),
        }
    }
}

/// The oldest activity that the fetch may take, and the session it is bound to.
fn oldest(scope: &Scope<'_>, fetch: &ParkedWorkFetch) -> Result<Option<(i64, Option<String>)>, VerbFailure> {
    let plain = oldest_plain(scope, &fetch.tags)?;
    let bound = match &fetch.session {
        Some(session) => oldest_bound(scope, session, &fetch.tags)?,
        None => None,
    };
    Ok(match (plain, bound) {
        (None, None) => None,
        (Some(plain), Some((seq, session_id))) if seq < plain => Some((seq, Some(session_id))),
        (None, Some((seq, session_id))) => Some((seq, Some(session_id))),
        (Some(plain), _) => Some((plain, None)),
    })
}

fn lock(
    scope: &mut Scope<'_>,
    fetch: &ParkedWorkFetch,
    seq: i64,
    session_id: Option<String>,
) -> Result<AssignedWork, VerbFailure> {
    let (attempts_before, work_item, instance_id): (i64, Vec<u8>, Vec<u8>) =
        scope.conn.prepare_cached(SELECT_ACTIVITY)?.query_row([seq], |row| {
            Ok((columns::integer(row, 0)?.unwrap_or(0), columns::bytes(row, 1)?, columns::bytes(row, 2)?))
        })?;
    let attempt_count = attempts_before.clamp(0, i64::from(u32::MAX) - 1) + 1;
    let token = new_token(scope.clock, seq);
    let lock_ms = length_ms(fetch.lock_timeout);
    let until_ms = scope.now.wall_after(fetch.lock_timeout);
    scope.conn.prepare_cached(LOCK_ACTIVITY)?.execute(params![
        seq,
        token,
        until_ms,
        stored_ms(lock_ms),
        attempt_count
    ])?;
    let lease = match (&fetch.session, session_id) {
        (Some(session), Some(session_id)) => {
            Some(sessions::lease(scope, &session_id, &session.owner_id, session.lock_timeout)?)
        }
        _ => None,
    };
    scope.effects.held.push((token.clone(), scope.now, lock_ms));
    let attempt_count = u32::try_from(attempt_count).unwrap_or(u32::MAX);
    Ok(AssignedWork { token, at: scope.now, lock_ms, lease, instance_id, work_item, attempt_count })
}

fn oldest_plain(scope: &Scope<'_>, tags: &TagFilter) -> Result<Option<i64>, VerbFailure> {
    let conn = scope.conn;
    let untagged =
        || conn.prepare_cached(OLDEST_UNTAGGED)?.query_row([], |row| row.get::<_, i64>(0)).optional();
    let tagged = |tag: &String| {
        conn.prepare_cached(OLDEST_TAGGED)?.query_row([tag], |row| row.get::<_, i64>(0)).optional()
    };
    let mut oldest: Option<i64> = None;
    match tags {
        TagFilter::None => {}
        TagFilter::Any => {
            oldest = conn.prepare_cached(OLDEST_OF_ALL)?.query_row([], |row| row.get(0)).optional()?;
        }
        TagFilter::DefaultOnly => oldest = untagged()?,
        TagFilter::Tags(names) => {
            for name in names {
                oldest = earlier(oldest, tagged(name)?);
            }
        }
        TagFilter::DefaultAnd(names) => {
            oldest = untagged()?;
            for name in names {
                oldest = earlier(oldest, tagged(name)?);
            }
        }
    }
    Ok(oldest)
}

fn earlier(one: Option<i64>, other: Option<i64>) -> Option<i64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

fn oldest_bound(
    scope: &Scope<'_>,
    session: &SessionFetchConfig,
    tags: &TagFilter,
) -> Result<Option<(i64, String)>, VerbFailure> {
    let mut select = scope.conn.prepare_cached(SESSION_ROWS)?;
    let mut rows = select.query(params![scope.now.wall_ms, session.owner_id])?;
    while let Some(row) = rows.next()? {
        let tag = columns::text(row, 2)?;
        if tags.matches(tag.as_deref()) {
            return Ok(Some((row.get(0)?, columns::text(row, 1)?.unwrap_or_default())));
        }
    }
    Ok(None)
}

/// Parks a fetch in the writer, then decodes what it was assigned.
pub(crate) async fn fetch(
    provider: &SqliteProvider,
    fetch: &WorkFetch,
) -> Result<Vec<FetchedWork>, ProviderError> {
    let lock_timeout = fetch.lock_timeout;
    if fetch.tags == TagFilter::None {
        tokio::time::sleep(fetch.poll_timeout).await;
        return Ok(Vec::new());
    }
    let began = Instant::now();
    loop {
        let left = fetch.poll_timeout.saturating_sub(began.elapsed());
        let (session, tags) = (fetch.session.clone(), fetch.tags.clone());
        let answer = provider
            .park::<ParkedWorkFetch>(left, |id, once, reply| {
                Command::FetchWork(ParkedWorkFetch { id, once, lock_timeout, session, tags, reply })
            })
            .await?;
        let Some(WorkAnswer { work, mut guard }) = answer else { return Ok(Vec::new()) };
        match serde_json::from_slice(&work.work_item) {
            Ok(item @ WorkItem::ActivityExecute { .. }) => {
                // If row and item name two instances, the outcome must not go to the wrong one.
                let mut is_sound = item.instance().as_bytes() == work.instance_id;
                if !is_sound {
                    let instance = item.instance().to_owned();
                    let reason = format!("it says that it is for {instance}");
                    let token = work.token.clone();
                    is_sound =
                        damaged_activity::remove_fetched(provider, token, reason, Some(instance)).await?;
                }
                if is_sound {
                    guard.disarm();
                    let lock_left = locks::left(work.at, provider.now(), lock_timeout);
                    return Ok(vec![FetchedWork::new(item, work.token, lock_left, work.attempt_count)]);
                }
            }
            Ok(other) => {
                let reason = format!("it holds a {}", everturn_core::kind_of(&other));
                damaged_activity::remove_fetched(provider, work.token, reason, None).await?;
            }
            Err(error) => {
                damaged_activity::remove_fetched(provider, work.token, error.to_string(), None).await?;
            }
        }
    }
}

/// Whether an assigned activity still exists and is locked with this token.
pub(crate) fn is_held(scope: &Scope<'_>, token: &str) -> Result<bool, VerbFailure> {
    let Some(seq) = row_of(token) else { return Ok(false) };
    Ok(locks::work_lock(scope, seq)?.is_some_and(|(lock, _session)| lock.token.as_deref() == Some(token)))
}
