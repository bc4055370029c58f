//! `fetch_turns`: the writer locks an instance and tags its messages; the fetch then reads the history and decodes.

use everturn_provider::encoded::{length_ms, stored_ms, unsigned};
use std::pin::pin;
use std::time::Duration;

use everturn_core::{Event, EventKind};
use everturn_provider::store::{FetchedTurn, LentInstance, LockKind, LockRenewal, Renewal, Stamp, TurnFetch};
use everturn_provider::{OrchestrationItem, ProviderError};
use rusqlite::{Connection, params};

use crate::clock_reading::ClockReading;
use crate::columns;
use crate::command_queue::Command;
use crate::due_timers::SHOW_MESSAGE;
use crate::fetched_messages::{DecodedMessages, UndecodedMessage, decode_messages, name_in_messages};
use crate::kv;
use crate::locks::{self, new_token, row_of};
use crate::operation::{Scope, VerbFailure};
use crate::orchestrator_queue;
use crate::parked_fetches::ParkedTurnFetch;
use crate::payloads::message_payload;
use crate::provider::SqliteProvider;
use crate::read;
use crate::ready_instances::{Candidate, NameOrigin};
use crate::renew::Renew;
use crate::return_unread::UnreadGuard;
use crate::unreadable;

/// An instance that was locked for a fetch.
pub(crate) struct AssignedTurn {
    pub(crate) token: String,
    pub(crate) at: ClockReading,
    pub(crate) lock_ms: u64,
    pub(crate) lent: Option<LentInstance>,
    key: i64,
    pub(crate) instance_id: String,
    origin: NameOrigin,
    stamp: Option<Stamp>,
    damage: Option<String>,
    messages: Vec<UndecodedMessage>,
    attempt_count: u32,
}

impl AssignedTurn {
    /// Whether its fetch may take others too: it has no history to read, and was never fetched before, so that a turn that
    /// ends its process costs the others no second attempt.
    pub(crate) fn may_have_others(&self) -> bool {
        let is_in_memory = self.lent.is_some() && matches!(self.origin, NameOrigin::Row { .. });
        self.attempt_count <= 1 && (self.origin.is_start() || is_in_memory)
    }
}

/// What the writer answers. If it is dropped unread, the instance returns to the queue.
pub(crate) struct TurnAnswer {
    pub(crate) turn: AssignedTurn,
    pub(crate) guard: UnreadGuard,
}

const SELECT_MESSAGES: &str = concat!(
    "SELECT q.seq, ",
    message_payload!(),
    ", q.notes, q.attempt_count, q.arrived_at_ms, q.visible_at_ms \
     FROM everturn_orchestrator_queue AS q WHERE q.instance_key = ?1 AND q.visible_at_ms <= ?2"
);
const TAG_MESSAGES: &str = "UPDATE everturn_orchestrator_queue SET tagged = 1, attempt_count = min(attempt_count, 4294967294) + 1 \
     WHERE instance_key = ?1 AND visible_at_ms = 0";
const LOCK_INSTANCE: &str = "UPDATE everturn_instances SET lock_token = ?2, locked_until_ms = ?3, lock_ms = ?4, lock_owner = ?5, \
     ready_seq = NULL, delayed_until_ms = NULL, missing_handler = NULL, missing_version = NULL WHERE instance_key = ?1";

/// Locks an instance for a fetch and tags its visible messages. `None` if there are none, or if the fetch has others already
/// and this one must come alone.
pub(crate) fn assign(
    scope: &mut Scope<'_>,
    candidate: &Candidate,
    fetch: &ParkedTurnFetch,
    has_others: bool,
) -> Result<Option<AssignedTurn>, VerbFailure> {
    let key = candidate.key;
    if !candidate.is_named {
        return Err(ProviderError::damaged("", format!("instance row {key} names no instance")).into());
    }
    let VisibleMessages { messages, attempt_count } = visible_messages(scope, key)?;
    if messages.is_empty() {
        orchestrator_queue::refresh(scope, key)?;
        return Ok(None);
    }
    if has_others && attempt_count > 1 {
        return Ok(None);
    }
    let warm = match (&fetch.warm, candidate.stamp, &candidate.pin) {
        (Some(warm), Some(stamp), Ok(_)) => Some((warm, stamp)),
        _ => None,
    };
    let (instance_id, execution_id) = (&candidate.instance_id, unsigned(candidate.origin.execution_id()));
    let is_warm = || warm.is_some_and(|(warm, stamp)| warm.holds(instance_id, execution_id, stamp));
    if has_others && !candidate.origin.is_start() && !is_warm() {
        return Ok(None);
    }
    let token = new_token(scope.clock, key);
    let lock_ms = length_ms(fetch.lock_timeout);
    scope.conn.prepare_cached(LOCK_INSTANCE)?.execute(params![
        key,
        token,
        scope.now.wall_after(fetch.lock_timeout),
        stored_ms(lock_ms),
        scope.owner
    ])?;
    scope.conn.prepare_cached(TAG_MESSAGES)?.execute([key])?;
    scope.effects.held.push((token.clone(), scope.now, lock_ms));
    let lent = warm.and_then(|(warm, stamp)| warm.lend(instance_id, execution_id, stamp));
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

/// The visible messages of an instance.
struct VisibleMessages {
    /// In the order of their arrival.
    messages: Vec<UndecodedMessage>,
    /// How often the most fetched of them is fetched with this fetch.
    attempt_count: i64,
}

fn visible_messages(scope: &Scope<'_>, key: i64) -> Result<VisibleMessages, VerbFailure> {
    let mut select = scope.conn.prepare_cached(SELECT_MESSAGES)?;
    let mut rows = select.query([key, scope.now.wall_ms])?;
    let (mut found, mut became_visible, mut attempt_count) = (Vec::new(), Vec::new(), 0_i64);
    while let Some(row) = rows.next()? {
        let seq: i64 = row.get(0)?;
        let attempts_before = columns::integer(row, 3)?.unwrap_or(0);
        attempt_count = attempt_count.max(attempts_before.saturating_add(1));
        if columns::integer(row, 5)? != Some(0) {
            became_visible.push(seq);
        }
        found.push((columns::integer(row, 4)?.unwrap_or(0), seq, UndecodedMessage::of(row)?));
    }
    for seq in became_visible {
        scope.conn.prepare_cached(SHOW_MESSAGE)?.execute([seq])?;
    }
    found.sort_unstable_by_key(|(arrived_at_ms, seq, _)| (*arrived_at_ms, *seq));
    let messages = found.into_iter().map(|(.., message)| message).collect();
    Ok(VisibleMessages { messages, attempt_count })
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
    let (lock_timeout, turns_max) = (fetch.lock_timeout, fetch.turns_max);
    let (warm, handlers) = (fetch.warm.clone(), fetch.handlers.clone());
    let answer = provider
        .park::<ParkedTurnFetch>(fetch.poll_timeout, |id, once, reply| {
            let parked = ParkedTurnFetch { id, once, turns_max, lock_timeout, range, warm, handlers, reply };
            Command::FetchTurn(parked)
        })
        .await?;
    // If one of them cannot be read, all return to the queue.
    // Those in memory are returned to the runtime before the guards tell the writer.
    let (mut guards, mut completed) = (Vec::new(), Vec::new());
    let answer = answer.unwrap_or_default();
    let mut locks = AnswerLocks::of(answer.iter().map(|answer| answer.turn.token.clone()), lock_timeout);
    for TurnAnswer { turn, guard } in answer {
        guards.push(guard);
        let locked_at = turn.at;
        completed.push((complete_within_locks(provider, turn, &mut locks).await?, locked_at));
    }
    guards.iter_mut().for_each(UnreadGuard::disarm);
    let now = provider.now();
    let fetched = completed.into_iter().map(|(mut fetched, locked_at)| {
        fetched.lock_left = locks::left(locks.renewed_at.unwrap_or(locked_at), now, lock_timeout);
        fetched
    });
    Ok(fetched.collect())
}

/// The shortest pause between two renewals, however short the lock is.
const RENEWAL_MIN: Duration = Duration::from_millis(10);

/// The locks of the instances of one answer, which are renewed together: one of them may take long to be read.
struct AnswerLocks {
    tokens: Vec<String>,
    lock_timeout: Duration,
    /// When they were last renewed. If a renewal is refused, the commit of the turn will be too.
    renewed_at: Option<ClockReading>,
}

impl AnswerLocks {
    fn of(tokens: impl Iterator<Item = String>, lock_timeout: Duration) -> Self {
        Self { tokens: tokens.collect(), lock_timeout, renewed_at: None }
    }

    async fn renew(&mut self, provider: &SqliteProvider) {
        let now = provider.now();
        self.renewed_at = Some(now);
        let lock = |token: &String| LockRenewal {
            kind: LockKind::Orchestration,
            token: token.clone(),
            extend_for: self.lock_timeout,
        };
        let renewal = Renewal::of_locks(self.tokens.iter().map(lock).collect());
        drop(provider.call(Renew { renewal, called: now }).await);
    }

    /// Renews the locks while a long history is read.
    async fn keep<T>(
        &mut self,
        provider: &SqliteProvider,
        read: impl Future<Output = Result<T, ProviderError>>,
    ) -> Result<T, ProviderError> {
        let began = provider.now();
        let mut read = pin!(read);
        loop {
            tokio::select! {
                biased;
                outcome = &mut read => {
                    let counted_from = self.renewed_at.unwrap_or(began);
                    if locks::has_aged(counted_from, provider.now(), length_ms(self.lock_timeout)) {
                        self.renew(provider).await;
                    }
                    return outcome;
                }
                () = tokio::time::sleep((self.lock_timeout / 3).max(RENEWAL_MIN)) => self.renew(provider).await,
            }
        }
    }
}

/// Reads and decodes what was assigned, and renews the locks meanwhile.
async fn complete_within_locks(
    provider: &SqliteProvider,
    turn: AssignedTurn,
    locks: &mut AnswerLocks,
) -> Result<FetchedTurn, ProviderError> {
    let (key, instance) = (turn.key, turn.instance_id.clone());
    locks.keep(provider, complete(provider, turn)).await.map_err(|error| {
        if !unreadable::is_cause_of(&error) {
            return error;
        }
        // Before the guard returns the instance to the queue: it would be the next one again.
        let reason = error.message.clone();
        provider.send_even_if_closed(Command::PassOver { key, instance: instance.clone(), reason });
        let message = format!("instance {instance} cannot be read now: {}", error.message);
        ProviderError::retryable("fetch_turns", message).with_source(error)
    })
}

/// Decodes the messages; reads a cold instance's history and key-value store, which cannot change under the lock.
async fn complete(provider: &SqliteProvider, turn: AssignedTurn) -> Result<FetchedTurn, ProviderError> {
    let AssignedTurn { token, lent, key, instance_id, origin, stamp, damage, attempt_count, .. } = turn;
    let execution_id = origin.execution_id();
    let DecodedMessages { messages, notes, damage: damaged_message } = decode_messages(&turn.messages);
    let mut history_error = damage.or(damaged_message);
    let warm = lent.filter(|_| history_error.is_none());
    let mut history = Vec::new();
    let mut kv_snapshot = std::collections::HashMap::new();
    if warm.is_none() && !origin.is_start() {
        if !matches!(origin, NameOrigin::Message { .. }) {
            match read::events(provider, key, execution_id).await {
                Ok(events) => {
                    let damage = read::misplaced(&instance_id, &events);
                    history_error = history_error.or(damage);
                    history = events;
                }
                Err(error) if is_damaged(&error) => {
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
            Err(error) if is_damaged(&error) => {
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
                    Err(error) if is_damaged(&error) => None,
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
    (fetched.notes, fetched.warm, fetched.stamp) = (notes, warm, stamp);
    Ok(fetched)
}

/// Whether what was read is damaged. What could not be read may be sound.
fn is_damaged(error: &ProviderError) -> bool {
    error.is_damaged() && !unreadable::is_cause_of(error)
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

/// Whether an assigned instance still exists and is locked with this token.
pub(crate) fn is_held(scope: &Scope<'_>, token: &str) -> Result<bool, VerbFailure> {
    let Some(key) = row_of(token) else { return Ok(false) };
    Ok(locks::instance_lock(scope, key)?.is_some_and(|lock| lock.token.as_deref() == Some(token)))
}

#[cfg(test)]
mod tests;
