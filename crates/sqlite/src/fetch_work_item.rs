//! `fetch_work_item`: the oldest activity a worker may take.

use std::time::Duration;

use everturn_core::{ErrorDetails, WorkItem};
use everturn_provider::{ProviderError, SessionFetchConfig, TagFilter};
use rusqlite::{Connection, OptionalExtension, params};
use tokio::time::Instant;

use crate::columns;
use crate::hand_back::HandBackGuard;
use crate::inbox::{self, Message};
use crate::locks::{self, new_token, row_of};
use crate::moment::{Moment, length_ms, stored_ms, unsigned};
use crate::operation::{Failure, Order, Scope, Verb};
use crate::provider::SqliteProvider;
use crate::sessions::{self, Claim};
use crate::waiters::WorkWaiter;
use crate::writer::Letter;

/// An activity as it was locked for a waiter.
pub(crate) struct AssignedWork {
    pub(crate) token: String,
    pub(crate) at: Moment,
    pub(crate) lock_ms: u64,
    pub(crate) claim: Option<Claim>,
    /// The instance that the row names; the item names it too.
    instance_id: Vec<u8>,
    work_item: Vec<u8>,
    attempt_count: u32,
}

/// What the writer answers: dropped unread, the activity is handed back.
pub(crate) struct WorkAnswer {
    pub(crate) work: AssignedWork,
    pub(crate) guard: HandBackGuard,
}

const OLDEST_UNTAGGED: &str = "SELECT seq FROM worker_queue INDEXED BY worker_queue_ready \
     WHERE ready = 1 AND session_id IS NULL AND tag IS NULL ORDER BY seq LIMIT 1";
const OLDEST_TAGGED: &str = "SELECT seq FROM worker_queue INDEXED BY worker_queue_ready \
     WHERE ready = 1 AND session_id IS NULL AND tag = ?1 ORDER BY seq LIMIT 1";
const OLDEST_OF_ALL: &str = "SELECT seq FROM worker_queue NOT INDEXED \
     WHERE ready = 1 AND session_id IS NULL ORDER BY seq LIMIT 1";
// Rows of sessions that somebody else owns are passed over.
const SESSION_ROWS: &str = "SELECT w.seq, w.session_id, w.tag FROM worker_queue AS w \
     INDEXED BY worker_queue_session_ready LEFT JOIN sessions AS s ON s.session_id = w.session_id \
     WHERE w.ready = 1 AND w.session_id IS NOT NULL \
     AND (s.session_id IS NULL OR typeof(s.lease_until_ms) <> 'integer' \
     OR s.lease_until_ms <= ?1 OR s.owner_id = ?2) ORDER BY w.seq";
const SESSIONS_WAIT: &str = "SELECT 1 FROM worker_queue INDEXED BY worker_queue_session_ready \
     WHERE ready = 1 AND session_id IS NOT NULL LIMIT 1";
const SELECT_ACTIVITY: &str = "SELECT attempt_count, work_item, instance_id FROM worker_queue WHERE seq = ?1";
const LOCK_ACTIVITY: &str = "UPDATE worker_queue SET lock_token = ?2, locked_until_ms = ?3, lock_ms = ?4, ready = 0, \
     attempt_count = ?5 WHERE seq = ?1";

/// Whether any activity that is bound to a session is ready.
pub(crate) fn sessions_wait(conn: &Connection) -> rusqlite::Result<bool> {
    conn.prepare_cached(SESSIONS_WAIT)?.exists([])
}

/// Locks the oldest activity that the waiter may take. A row that cannot even be locked is taken out: it would stand in
/// everybody's way.
pub(crate) fn assign(scope: &mut Scope<'_>, waiter: &WorkWaiter) -> Result<Option<AssignedWork>, Failure> {
    loop {
        let Some((seq, session_id)) = oldest(scope, waiter)? else { return Ok(None) };
        match lock(scope, waiter, seq, session_id) {
            Err(Failure::Refused(error)) => {
                let spoiled = spoil(scope, seq, &error.message, true)?;
                spoiled.report(&error.message);
            }
            locked => return locked.map(Some),
        }
    }
}

/// The oldest activity that the waiter may take, and the session it is bound to.
fn oldest(scope: &Scope<'_>, waiter: &WorkWaiter) -> Result<Option<(i64, Option<String>)>, Failure> {
    let plain = oldest_plain(scope, &waiter.tags)?;
    let bound = match &waiter.session {
        Some(session) => oldest_bound(scope, session, &waiter.tags)?,
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
    waiter: &WorkWaiter,
    seq: i64,
    session_id: Option<String>,
) -> Result<AssignedWork, Failure> {
    let (attempts_before, work_item, instance_id): (i64, Vec<u8>, Vec<u8>) =
        scope.conn.prepare_cached(SELECT_ACTIVITY)?.query_row([seq], |row| {
            Ok((columns::integer(row, 0)?.unwrap_or(0), columns::bytes(row, 1)?, columns::bytes(row, 2)?))
        })?;
    let attempt_count = attempts_before.clamp(0, i64::from(u32::MAX) - 1) + 1;
    let token = new_token(scope.clock, seq);
    let lock_ms = length_ms(waiter.lock_timeout);
    let until_ms = scope.now.wall_after(waiter.lock_timeout);
    scope.conn.prepare_cached(LOCK_ACTIVITY)?.execute(params![
        seq,
        token,
        until_ms,
        stored_ms(lock_ms),
        attempt_count
    ])?;
    let claim = match (&waiter.session, session_id) {
        (Some(session), Some(session_id)) => {
            Some(sessions::claim(scope, &session_id, &session.owner_id, session.lock_timeout)?)
        }
        _ => None,
    };
    scope.effects.held.push((token.clone(), scope.now, lock_ms));
    let attempt_count = u32::try_from(attempt_count).unwrap_or(u32::MAX);
    Ok(AssignedWork { token, at: scope.now, lock_ms, claim, instance_id, work_item, attempt_count })
}

fn oldest_plain(scope: &Scope<'_>, tags: &TagFilter) -> Result<Option<i64>, Failure> {
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
) -> Result<Option<(i64, String)>, Failure> {
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

/// The whole verb, from the caller's side.
pub(crate) async fn fetch(
    provider: &SqliteProvider,
    lock_timeout: Duration,
    poll_timeout: Duration,
    session: Option<&SessionFetchConfig>,
    tags: &TagFilter,
) -> Result<Option<(WorkItem, String, u32)>, ProviderError> {
    if *tags == TagFilter::None {
        tokio::time::sleep(poll_timeout).await;
        return Ok(None);
    }
    let began = Instant::now();
    loop {
        let left = poll_timeout.saturating_sub(began.elapsed());
        let answer = provider
            .wait_for(left, |id, once, reply| {
                let session = session.cloned();
                Letter::FetchWork(WorkWaiter { id, once, lock_timeout, session, tags: tags.clone(), reply })
            })
            .await?;
        let Some(WorkAnswer { work, mut guard }) = answer else { return Ok(None) };
        match serde_json::from_slice(&work.work_item) {
            Ok(item @ WorkItem::ActivityExecute { .. }) => {
                let names_agree = item.instance().as_bytes() == work.instance_id;
                if names_agree || !take_out_if_misnamed(provider, &work.token, item.instance()).await? {
                    guard.disarm();
                    return Ok(Some((item, work.token, work.attempt_count)));
                }
            }
            Ok(other) => {
                let reason = format!("it holds a {}", everturn_core::kind_of(&other));
                take_out(provider, work.token, reason, None).await?;
            }
            Err(error) => {
                take_out(provider, work.token, error.to_string(), None).await?;
            }
        }
    }
}

/// Takes a row out; tells whether it stays, because nothing is wrong with its item.
async fn take_out(
    provider: &SqliteProvider,
    token: String,
    reason: String,
    claimed: Option<String>,
) -> Result<bool, ProviderError> {
    let spoiled = provider.call(SpoiledWorkItem { token, reason: reason.clone(), claimed }).await?;
    spoiled.report(&reason);
    Ok(matches!(spoiled, Spoiled::Sound))
}

/// A row and its item name two instances: the outcome of the activity must not go to the wrong one.
async fn take_out_if_misnamed(
    provider: &SqliteProvider,
    token: &str,
    claimed: &str,
) -> Result<bool, ProviderError> {
    let reason = format!("it says that it is for {claimed}");
    let stays = take_out(provider, token.to_owned(), reason, Some(claimed.to_owned())).await?;
    Ok(!stays)
}

/// What became of a row that cannot be decoded.
enum Spoiled {
    /// Somebody else has it now, and will find the same.
    Gone,
    /// The item is what it was; the row's own copy of a name is not.
    Sound,
    Told {
        instance: String,
    },
    SetAside,
}

impl Spoiled {
    fn report(&self, reason: &str) {
        match self {
            Self::Gone | Self::Sound => {}
            Self::Told { instance } => {
                tracing::error!(target: "everturn::providers::sqlite", instance, reason, "an activity cannot be read");
            }
            Self::SetAside => {
                tracing::error!(
                    target: "everturn::providers::sqlite",
                    reason,
                    "a worker queue row that names no instance, or two, was set aside"
                );
                metrics::counter!("everturn_sqlite_rows_set_aside_total").increment(1);
            }
        }
    }
}

/// Takes out a row that cannot be decoded. Its instance is told that the activity failed; if even that is not known,
/// the row is set aside.
struct SpoiledWorkItem {
    token: String,
    reason: String,
    /// The instance that its item names, where the row names another.
    claimed: Option<String>,
}

const SELECT_IDENTITY: &str =
    "SELECT instance_id, execution_id, activity_id FROM worker_queue WHERE seq = ?1";
const DELETE_ACTIVITY: &str = "DELETE FROM worker_queue WHERE seq = ?1";
const SET_ASIDE: &str = "INSERT INTO set_aside (set_aside_at_ms, reason, instance_id, execution_id, activity_id, work_item) \
     SELECT ?2, ?3, CAST(instance_id AS TEXT), iif(typeof(execution_id) = 'integer', execution_id, NULL), \
     iif(typeof(activity_id) = 'integer', activity_id, NULL), CAST(work_item AS TEXT) FROM worker_queue WHERE seq = ?1";

impl Verb for SpoiledWorkItem {
    type Answer = Spoiled;
    const NAME: &'static str = "fetch_work_item";
    const ORDER: Order = Order::Holder;
    const WRITES_BEFORE_REFUSAL: bool = true;

    fn run(&self, scope: &mut Scope<'_>) -> Result<Spoiled, Failure> {
        let Some(seq) = row_of(&self.token) else { return Ok(Spoiled::Gone) };
        if !is_held(scope, &self.token)? {
            return Ok(Spoiled::Gone);
        }
        let spoiled = match &self.claimed {
            None => spoil(scope, seq, &self.reason, true)?,
            Some(claimed) => match (exists(scope, claimed)?, names_existing(scope, seq)?) {
                (true, false) => return Ok(Spoiled::Sound),
                // Of two that exist, one would be told of an activity that it never asked for.
                (claimed_exists, _) => spoil(scope, seq, &self.reason, !claimed_exists)?,
            },
        };
        scope.effects.released.push(self.token.clone());
        Ok(spoiled)
    }
}

const EXISTS: &str = "SELECT EXISTS (SELECT 1 FROM instances WHERE instance_id = ?1)";
const NAMES_EXISTING: &str =
    "SELECT EXISTS (SELECT 1 FROM worker_queue JOIN instances USING (instance_id) WHERE seq = ?1)";

fn exists(scope: &Scope<'_>, instance: &str) -> Result<bool, Failure> {
    Ok(scope.conn.prepare_cached(EXISTS)?.query_row([instance], |row| row.get(0))?)
}

fn names_existing(scope: &Scope<'_>, seq: i64) -> Result<bool, Failure> {
    Ok(scope.conn.prepare_cached(NAMES_EXISTING)?.query_row([seq], |row| row.get(0))?)
}

/// The instance that the row names is told, if it is known which that is.
fn spoil(scope: &mut Scope<'_>, seq: i64, reason: &str, is_known: bool) -> Result<Spoiled, Failure> {
    let (instance, execution_id, activity_id) =
        scope.conn.prepare_cached(SELECT_IDENTITY)?.query_row([seq], |row| {
            let id = String::from_utf8(columns::bytes(row, 0)?).unwrap_or_default();
            let number = |column| Ok::<_, rusqlite::Error>(columns::integer(row, column)?.unwrap_or(0));
            Ok((id, number(1)?, number(2)?))
        })?;
    let reason = format!("worker queue row {seq} is damaged: {reason}");
    let spoiled = if !is_known || instance.is_empty() || execution_id < 1 || activity_id < 1 {
        scope.conn.prepare_cached(SET_ASIDE)?.execute(params![seq, scope.now.wall_ms, reason])?;
        Spoiled::SetAside
    } else {
        let operation = SpoiledWorkItem::NAME;
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
        inbox::insert(scope, &Message::encode(operation, &failed)?, None)?;
        Spoiled::Told { instance }
    };
    scope.conn.prepare_cached(DELETE_ACTIVITY)?.execute([seq])?;
    Ok(spoiled)
}

/// Whether an assigned activity is still there and still locked with this token.
pub(crate) fn is_held(scope: &Scope<'_>, token: &str) -> Result<bool, Failure> {
    let Some(seq) = row_of(token) else { return Ok(false) };
    Ok(locks::work_lock(scope, seq)?.is_some_and(|(lock, _session)| lock.token.as_deref() == Some(token)))
}
