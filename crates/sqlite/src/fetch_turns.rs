//! `fetch_turns`: the writer locks an instance and tags its messages; the fetch then reads the history and decodes.

use std::pin::pin;
use std::time::Duration;

use everturn_core::{Event, EventKind, WorkItem};
use everturn_provider::store::{FetchedTurn, LentInstance, LockKind, LockRenewal, Renewal, Stamp, TurnFetch};
use everturn_provider::{OrchestrationItem, ProviderError};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row, params};
use semver::Version;

use crate::clock_reading::{ClockReading, length_ms, stored_ms, unsigned};
use crate::columns;
use crate::command_queue::Command;
use crate::kv;
use crate::locks::{self, new_token, row_of};
use crate::operation::{Scope, VerbFailure};
use crate::orchestrator_queue;
use crate::parked_fetches::ParkedTurnFetch;
use crate::provider::SqliteProvider;
use crate::read;
use crate::renew::Renew;
use crate::return_unread::UnreadGuard;

/// A ready instance.
pub(crate) struct Candidate {
    pub(crate) key: i64,
    pub(crate) ready_seq: i64,
    pub(crate) instance_id: String,
    /// Whether its row has an instance id.
    is_named: bool,
    origin: NameOrigin,
    stamp: Option<Stamp>,
    /// The pinned version of its execution, or why it cannot be read.
    pin: Result<Option<Version>, String>,
}

impl Candidate {
    /// The pinned version, if it has a readable one.
    pub(crate) fn pin(&self) -> Option<&Version> {
        self.pin.as_ref().ok().and_then(Option::as_ref)
    }
}

/// Where the name of an instance's orchestration is found.
#[derive(Debug, Clone)]
enum NameOrigin {
    /// In its row.
    Row { name: String, version: String, execution_id: i64 },
    /// In the start event of its first execution.
    History,
    /// In the message that starts it; `fresh` if no turn was ever committed.
    Message { fresh: bool },
}

impl NameOrigin {
    fn execution_id(&self) -> i64 {
        match self {
            Self::Row { execution_id, .. } => *execution_id,
            Self::History | Self::Message { .. } => 1,
        }
    }
}

/// Says why a history that is stored for this instance belongs to another one.
fn misplaced(instance_id: &str, history: &[Event]) -> Option<String> {
    let foreign = history.first().filter(|event| event.instance_id != instance_id)?;
    Some(format!("instance {instance_id:?} has the history of instance {:?}", foreign.instance_id))
}

/// An instance that was locked for a fetch.
pub(crate) struct AssignedTurn {
    pub(crate) token: String,
    pub(crate) at: ClockReading,
    pub(crate) lock_ms: u64,
    pub(crate) lent: Option<LentInstance>,
    key: i64,
    instance_id: String,
    origin: NameOrigin,
    stamp: Option<Stamp>,
    damage: Option<String>,
    messages: Vec<(i64, Vec<u8>)>,
    attempt_count: u32,
}

/// What the writer answers. If it is dropped unread, the instance returns to the queue.
pub(crate) struct TurnAnswer {
    pub(crate) turn: AssignedTurn,
    pub(crate) guard: UnreadGuard,
}

const SELECT_CANDIDATES: &str = "SELECT i.instance_key, i.ready_seq, i.instance_id, i.orchestration_name, \
     i.orchestration_version, i.current_execution_id, i.turn_stamp, i.startable, e.pinned_engine_version, \
     e.execution_id IS NULL FROM instances AS i LEFT JOIN executions AS e \
         ON e.instance_key = i.instance_key AND e.execution_id = coalesce(i.current_execution_id, 1) \
     WHERE i.ready_seq > ?1 ORDER BY i.ready_seq LIMIT ?2";
const SELECT_MESSAGES: &str = "SELECT seq, attempt_count, work_item FROM orchestrator_queue \
     WHERE instance_key = ?1 AND visible_at_ms = 0 ORDER BY seq";
const TAG_MESSAGES: &str = "UPDATE orchestrator_queue SET tagged = 1, attempt_count = min(attempt_count, 4294967294) + 1 \
     WHERE instance_key = ?1 AND visible_at_ms = 0";
const LOCK_INSTANCE: &str = "UPDATE instances SET lock_token = ?2, locked_until_ms = ?3, lock_ms = ?4, ready_seq = NULL \
     WHERE instance_key = ?1";

/// The next instances that are ready, the one with the oldest message first.
pub(crate) fn candidates(conn: &Connection, after: i64, limit: i64) -> rusqlite::Result<Vec<Candidate>> {
    conn.prepare_cached(SELECT_CANDIDATES)?.query_map([after, limit], candidate)?.collect()
}

/// Reads a candidate whatever its columns hold: a damaged instance is fetched as such.
fn candidate(row: &Row<'_>) -> rusqlite::Result<Candidate> {
    let created = row.get_ref(5)? != ValueRef::Null;
    let (execution_id, startable) = (columns::integer(row, 5)?, columns::flag(row, 7)?);
    let origin = match (execution_id, startable) {
        (Some(execution_id), _) => {
            let name = columns::text(row, 3)?.unwrap_or_default();
            NameOrigin::Row { name, version: columns::text(row, 4)?.unwrap_or_default(), execution_id }
        }
        (None, true) => NameOrigin::History,
        (None, false) => NameOrigin::Message { fresh: row.get_ref(6)? == ValueRef::Null },
    };
    let pin = match columns::text(row, 8)? {
        _ if created && execution_id.is_none() => Err("current execution is damaged".to_owned()),
        // The turn that made it the current execution also inserted its row.
        _ if created && columns::flag(row, 9)? => Err("the current execution is missing".to_owned()),
        None => Ok(None),
        Some(text) => {
            Version::parse(&text).map(Some).map_err(|error| format!("pinned version {text:?}: {error}"))
        }
    };
    // An instance without a history has no stamp to compare.
    let stamp = columns::integer(row, 6)?.filter(|_| !matches!(origin, NameOrigin::Message { .. }));
    Ok(Candidate {
        key: row.get(0)?,
        // A damaged number comes last.
        ready_seq: columns::integer(row, 1)?.unwrap_or(i64::MAX),
        is_named: row.get_ref(2)? != ValueRef::Null,
        instance_id: columns::text(row, 2)?.unwrap_or_default(),
        stamp: stamp.map(|stamp| Stamp(stamp.cast_unsigned())),
        origin,
        pin,
    })
}

/// Locks an instance for a fetch and tags its visible messages.
pub(crate) fn assign(
    scope: &mut Scope<'_>,
    candidate: &Candidate,
    fetch: &ParkedTurnFetch,
) -> Result<Option<AssignedTurn>, VerbFailure> {
    let key = candidate.key;
    if !candidate.is_named {
        return Err(ProviderError::damaged("", format!("instance row {key} names no instance")).into());
    }
    let mut messages = Vec::new();
    let mut attempt_count = 0_i64;
    {
        let mut select = scope.conn.prepare_cached(SELECT_MESSAGES)?;
        let mut rows = select.query([key])?;
        while let Some(row) = rows.next()? {
            let attempts_before = columns::integer(row, 1)?.unwrap_or(0);
            attempt_count = attempt_count.max(attempts_before.saturating_add(1));
            messages.push((row.get(0)?, columns::bytes(row, 2)?));
        }
    }
    if messages.is_empty() {
        orchestrator_queue::refresh(scope, key)?;
        return Ok(None);
    }
    let token = new_token(scope.clock, key);
    let lock_ms = length_ms(fetch.lock_timeout);
    scope.conn.prepare_cached(LOCK_INSTANCE)?.execute(params![
        key,
        token,
        scope.now.wall_after(fetch.lock_timeout),
        stored_ms(lock_ms)
    ])?;
    scope.conn.prepare_cached(TAG_MESSAGES)?.execute([key])?;
    scope.effects.held.push((token.clone(), scope.now, lock_ms));
    let lent = match (&fetch.warm, candidate.stamp, &candidate.pin) {
        (Some(warm), Some(stamp), Ok(_)) => {
            warm.lend(&candidate.instance_id, unsigned(candidate.origin.execution_id()), stamp)
        }
        _ => None,
    };
    Ok(Some(AssignedTurn {
        token,
        at: scope.now,
        lock_ms,
        lent,
        key,
        instance_id: candidate.instance_id.clone(),
        origin: candidate.origin.clone(),
        stamp: candidate.stamp,
        damage: candidate.pin.as_ref().err().cloned(),
        messages,
        attempt_count: u32::try_from(attempt_count).unwrap_or(u32::MAX),
    }))
}

/// Parks a fetch in the writer, then reads and decodes what it was assigned.
pub(crate) async fn fetch(
    provider: &SqliteProvider,
    fetch: &TurnFetch,
) -> Result<Vec<FetchedTurn>, ProviderError> {
    let range = match &fetch.filter {
        None => None,
        Some(filter) => match filter.supported_engine_versions.first() {
            Some(range) => Some(range.clone()),
            None => {
                // No version is supported: no instance fits.
                tokio::time::sleep(fetch.poll_timeout).await;
                return Ok(Vec::new());
            }
        },
    };
    let (lock_timeout, warm) = (fetch.lock_timeout, fetch.warm.clone());
    let answer = provider
        .park::<ParkedTurnFetch>(fetch.poll_timeout, |id, once, reply| {
            Command::FetchTurn(ParkedTurnFetch { id, once, lock_timeout, range, warm, reply })
        })
        .await?;
    let Some(TurnAnswer { turn, mut guard }) = answer else { return Ok(Vec::new()) };
    let (token, locked_at) = (turn.token.clone(), turn.at);
    let completing = complete(provider, turn);
    let (mut fetched, renewed_at) = within_lock(provider, &token, lock_timeout, completing).await?;
    fetched.lock_left = locks::left(renewed_at.unwrap_or(locked_at), provider.now(), lock_timeout);
    guard.disarm();
    Ok(vec![fetched])
}

/// The shortest pause between two renewals, however short the lock is.
const RENEWAL_MIN: Duration = Duration::from_millis(10);

/// Renews the lock while a long history is read, and returns when that was last done. If a renewal is refused, the commit
/// of the turn will be too.
async fn within_lock<T>(
    provider: &SqliteProvider,
    token: &str,
    lock_timeout: Duration,
    read: impl Future<Output = Result<T, ProviderError>>,
) -> Result<(T, Option<ClockReading>), ProviderError> {
    let renew = || {
        let token = token.to_owned();
        let lock = LockRenewal { kind: LockKind::Orchestration, token, extend_for: lock_timeout };
        provider.call(Renew { renewal: Renewal::of_locks(vec![lock]), called: provider.now() })
    };
    let began = provider.now();
    let mut renewed_at = None;
    let mut read = pin!(read);
    loop {
        tokio::select! {
            biased;
            outcome = &mut read => {
                let now = provider.now();
                if locks::has_aged(renewed_at.unwrap_or(began), now, length_ms(lock_timeout)) {
                    renewed_at = Some(now);
                    drop(renew().await);
                }
                return outcome.map(|outcome| (outcome, renewed_at));
            }
            () = tokio::time::sleep((lock_timeout / 3).max(RENEWAL_MIN)) => {
                renewed_at = Some(provider.now());
                drop(renew().await);
            }
        }
    }
}

/// Decodes the messages; reads a cold instance's history and key-value store, which cannot change under the lock.
async fn complete(provider: &SqliteProvider, turn: AssignedTurn) -> Result<FetchedTurn, ProviderError> {
    let AssignedTurn { token, lent, key, instance_id, origin, stamp, damage, attempt_count, .. } = turn;
    let execution_id = origin.execution_id();
    let (messages, damaged_message) = decode_messages(&turn.messages);
    let mut history_error = damage.or(damaged_message);
    let warm = lent.filter(|_| history_error.is_none());
    let mut history = Vec::new();
    let mut kv_snapshot = std::collections::HashMap::new();
    if warm.is_none() && !matches!(origin, NameOrigin::Message { fresh: true }) {
        if !matches!(origin, NameOrigin::Message { .. }) {
            match read::events(provider, key, execution_id).await {
                Ok(events) => {
                    let damage = misplaced(&instance_id, &events);
                    history_error = history_error.or(damage);
                    history = events;
                }
                Err(error) if error.is_damaged() => {
                    history_error.get_or_insert(error.message);
                }
                Err(error) => return Err(error),
            }
        }
        let read = move |conn: &Connection| {
            read::check_custom_status(conn, key)?;
            kv::snapshot(conn, key)
        };
        match provider.read_with("fetch_turns", read).await {
            Ok(snapshot) => kv_snapshot = snapshot,
            Err(error) if error.is_damaged() => {
                let message =
                    || format!("the custom status or the key-value store is damaged: {}", error.message);
                history_error.get_or_insert_with(message);
            }
            Err(error) => return Err(error),
        }
    }
    let (orchestration_name, version) = match origin {
        NameOrigin::Row { name, version, .. } => (name, version),
        NameOrigin::History => {
            let named = if warm.is_some() {
                // Rare: no turn has named it yet. The warm copy has its history, but the answer must have its name.
                match read::events(provider, key, execution_id).await {
                    Ok(events) => name_in_history(&events),
                    // The warm copy is sound; only the name is not found.
                    Err(error) if error.is_damaged() => None,
                    Err(error) => return Err(error),
                }
            } else {
                name_in_history(&history)
            };
            named.or_else(|| name_in_messages(&messages)).unwrap_or_else(unknown)
        }
        NameOrigin::Message { .. } => name_in_messages(&messages).unwrap_or_else(unknown),
    };
    if history_error.is_some() {
        history.clear();
    }
    let item = OrchestrationItem {
        instance: instance_id,
        orchestration_name,
        execution_id: unsigned(execution_id),
        version,
        history,
        messages,
        history_error,
        kv_snapshot,
    };
    // How much of the lock is left is known when the answer is given.
    let mut fetched = FetchedTurn::new(item, token, Duration::ZERO, attempt_count);
    (fetched.warm, fetched.stamp) = (warm, stamp);
    Ok(fetched)
}

fn decode_messages(stored: &[(i64, Vec<u8>)]) -> (Vec<WorkItem>, Option<String>) {
    let mut messages = Vec::with_capacity(stored.len());
    let mut damage = None;
    for (seq, bytes) in stored {
        match serde_json::from_slice(bytes) {
            Ok(message) => messages.push(message),
            Err(error) => {
                damage.get_or_insert_with(|| format!("orchestrator queue row {seq} is damaged: {error}"));
            }
        }
    }
    (messages, damage)
}

fn unknown() -> (String, String) {
    ("unknown".to_owned(), "unknown".to_owned())
}

fn name_in_history(history: &[Event]) -> Option<(String, String)> {
    history.iter().find_map(|event| match &event.kind {
        EventKind::OrchestrationStarted { name, version, .. } => Some((name.clone(), version.clone())),
        _ => None,
    })
}

fn name_in_messages(messages: &[WorkItem]) -> Option<(String, String)> {
    messages.iter().find_map(|message| match message {
        WorkItem::StartOrchestration { orchestration, version, .. }
        | WorkItem::ContinueAsNew { orchestration, version, .. } => {
            Some((orchestration.clone(), version.clone().unwrap_or_else(|| "unknown".to_owned())))
        }
        _ => None,
    })
}

/// Whether an assigned instance still exists and is locked with this token.
pub(crate) fn is_held(scope: &Scope<'_>, token: &str) -> Result<bool, VerbFailure> {
    let Some(key) = row_of(token) else { return Ok(false) };
    Ok(locks::instance_lock(scope, key)?.is_some_and(|lock| lock.token.as_deref() == Some(token)))
}

#[cfg(test)]
mod tests;
