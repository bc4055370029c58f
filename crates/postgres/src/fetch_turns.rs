//! `fetch_turns`: the fetch lane locks instances and tags their messages; the fetch then reads the histories and decodes.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use everturn_core::{Event, EventKind, WorkItem};
use everturn_provider::encoded::{length_ms, stored_ms, unsigned};
use everturn_provider::store::{
    FetchedTurn, HandlerKey, LentInstance, MessageNotes, Stamp, TurnFetch, WarmView,
};
use everturn_provider::{Clock, OrchestrationItem, ProviderError};
use semver::Version;
use tokio_postgres::{Error, Row};

use crate::callbacks::guarded;
use crate::commit_queue::CommitQueue;
use crate::engine_version::{OWN_ENGINE, order_of};
use crate::kv;
use crate::locks::token;
use crate::parked_fetches::{ParkedTurnFetch, may_take};
use crate::provider::PostgresProvider;
use crate::read;
use crate::return_unread::{UnreadGuard, UnreadWork};
use crate::session::{Parameter, ServerSession};

/// How many candidates one look reads at most.
const CANDIDATES: i64 = 64;
/// How many looks one round takes at most: the next one goes on from there.
const PAGES: usize = 16;

macro_rules! candidate_columns {
    () => {
        "SELECT i.instance_key, i.ready_seq, i.instance_id, i.orchestration_name, i.orchestration_version, \
         i.current_execution_id, i.turn_stamp, i.startable, \
         (SELECT e.pinned_engine_version FROM {schema}.everturn_executions AS e WHERE e.instance_key = i.instance_key \
             AND e.execution_id = coalesce(i.current_execution_id, 1)), i.missing_handler, i.missing_version, \
         (SELECT max(q.attempt_count) FROM {schema}.everturn_orchestrator_queue AS q \
             WHERE q.instance_key = i.instance_key AND q.visible_at_ms <= {schema}.everturn_now_ms($1)) \
         FROM {schema}.everturn_instances AS i "
    };
}
/// What the engine of this process can run, and one of the fetches can replay.
macro_rules! can_be_run {
    () => {
        "i.needs_engine <= $3 AND coalesce((SELECT EXISTS (SELECT 1 FROM unnest($5::bigint[], $6::bigint[]) AS r (low, high) \
             WHERE e.pinned_order BETWEEN r.low AND r.high) FROM {schema}.everturn_executions AS e \
             WHERE e.instance_key = i.instance_key AND e.execution_id = coalesce(i.current_execution_id, 1) \
             AND e.pinned_order IS NOT NULL), true) "
    };
}
const READY: &str = concat!(
    candidate_columns!(),
    "WHERE i.ready_seq IS NOT NULL AND i.delayed_until_ms IS NULL AND i.ready_seq > $2 AND ",
    can_be_run!(),
    "ORDER BY i.ready_seq LIMIT $4 FOR UPDATE OF i SKIP LOCKED"
);
const READY_FOR_HANDLER: &str = concat!(
    candidate_columns!(),
    "WHERE i.ready_seq IS NOT NULL AND i.delayed_until_ms IS NOT NULL AND i.missing_handler = $7 AND i.missing_version = $8 \
     AND i.ready_seq > $2 AND ",
    can_be_run!(),
    "ORDER BY i.ready_seq LIMIT $4 FOR UPDATE OF i SKIP LOCKED"
);
/// One look for each handler, however many instances wait for it.
const MISSING_HANDLERS: &str = "WITH RECURSIVE waited (handler, version) AS ( \
     (SELECT i.missing_handler, i.missing_version FROM {schema}.everturn_instances AS i \
         WHERE i.ready_seq IS NOT NULL AND i.delayed_until_ms IS NOT NULL ORDER BY 1, 2 LIMIT 1) \
     UNION ALL SELECT n.missing_handler, n.missing_version FROM waited AS w, \
     LATERAL (SELECT i.missing_handler, i.missing_version FROM {schema}.everturn_instances AS i \
         WHERE i.ready_seq IS NOT NULL AND i.delayed_until_ms IS NOT NULL \
         AND (i.missing_handler, i.missing_version) > (w.handler, w.version) ORDER BY 1, 2 LIMIT 1) AS n) \
     SELECT handler, version FROM waited";
const LOCK: &str = "UPDATE {schema}.everturn_instances AS i SET lock_token = n.token, \
     locked_until_ms = {schema}.everturn_now_ms($1) + n.lock_ms, lock_ms = n.lock_ms, lock_owner = $5, ready_seq = NULL, \
     delayed_until_ms = NULL, missing_handler = NULL, missing_version = NULL \
     FROM unnest($2::bigint[], $3::text[], $4::bigint[]) AS n (instance_key, token, lock_ms) \
     WHERE i.instance_key = n.instance_key";
const TAG: &str = "UPDATE {schema}.everturn_orchestrator_queue AS q SET tagged = true, visible_at_ms = 0, \
     attempt_count = least(q.attempt_count, 4294967294) + 1 \
     WHERE q.instance_key = ANY($2) AND q.visible_at_ms <= {schema}.everturn_now_ms($1) \
     RETURNING q.instance_key, q.arrived_at_ms, q.seq, q.work_item, q.notes, q.attempt_count";
const SELECT_ORPHANED: &str = "SELECT instance_key FROM {schema}.everturn_instances \
     WHERE orphaned AND NOT startable AND lock_token IS NULL ORDER BY instance_key LIMIT 64";

/// All statements of a round.
pub(crate) const STATEMENTS: &[&str] =
    &[READY, READY_FOR_HANDLER, MISSING_HANDLERS, LOCK, TAG, SELECT_ORPHANED];

/// Where the name of an instance's orchestration is.
#[derive(Debug, Clone)]
enum NameSource {
    /// In its row.
    Row { name: String, version: String, execution_id: i64 },
    /// In its history.
    History,
    /// In a message; whether nothing of it was ever committed.
    Message { fresh: bool },
}

/// An instance that may be fetched.
struct TurnCandidate {
    key: i64,
    ready_seq: i64,
    instance_id: String,
    origin: NameSource,
    stamp: Option<Stamp>,
    /// The version that its execution is pinned to, or why that is not known.
    pin: Result<Option<Version>, String>,
    missing: Option<HandlerKey>,
    was_fetched: bool,
}

impl TurnCandidate {
    fn of(row: &Row) -> Result<Self, Error> {
        let (execution_id, startable): (Option<i64>, bool) = (row.try_get(5)?, row.try_get(7)?);
        let stamp: Option<i64> = row.try_get(6)?;
        let origin = match (execution_id, startable) {
            (Some(execution_id), _) => NameSource::Row {
                name: row.try_get::<_, Option<String>>(3)?.unwrap_or_default(),
                version: row.try_get::<_, Option<String>>(4)?.unwrap_or_default(),
                execution_id,
            },
            (None, true) => NameSource::History,
            (None, false) => NameSource::Message { fresh: stamp.is_none() },
        };
        let pin: Option<String> = row.try_get(8)?;
        let pin = pin
            .map(|text| Version::parse(&text).map_err(|error| format!("pinned version {text:?}: {error}")));
        let missing: Option<String> = row.try_get(9)?;
        let version: Option<String> = row.try_get(10)?;
        let missing = missing.map(|name| {
            HandlerKey::orchestration(
                name,
                version.and_then(|version| version.strip_prefix('=').map(str::to_owned)),
            )
        });
        // An instance without a history has no stamp to compare.
        let stamp = stamp.filter(|_| !matches!(origin, NameSource::Message { .. }));
        Ok(Self {
            key: row.try_get(0)?,
            ready_seq: row.try_get::<_, Option<i64>>(1)?.unwrap_or(0),
            instance_id: row.try_get(2)?,
            origin,
            stamp: stamp.map(|stamp| Stamp(stamp.cast_unsigned())),
            pin: pin.transpose(),
            missing,
            was_fetched: row.try_get::<_, Option<i64>>(11)?.is_some_and(|attempts| attempts > 0),
        })
    }

    fn execution_id(&self) -> i64 {
        match self.origin {
            NameSource::Row { execution_id, .. } => execution_id,
            NameSource::History | NameSource::Message { .. } => 1,
        }
    }

    fn is_start(&self) -> bool {
        matches!(self.origin, NameSource::Message { fresh: true })
    }

    /// Whether a fetch may take it.
    fn fits(&self, fetch: &TurnFetch) -> bool {
        let is_compatible = match (&fetch.filter, &self.pin) {
            (Some(filter), Ok(Some(pin))) => filter.is_compatible(pin),
            _ => true,
        };
        is_compatible
            && may_take(fetch.handlers.as_ref(), self.missing.as_ref())
            && !fetch.warm.as_ref().is_some_and(|warm| warm.is_stepping(&self.instance_id))
    }

    fn is_warm_for(&self, fetch: &TurnFetch) -> bool {
        let (Some(warm), Some(stamp)) = (&fetch.warm, self.stamp) else { return false };
        warm.holds(&self.instance_id, unsigned(self.execution_id()), stamp)
    }
}

/// An instance that was locked for a fetch.
pub(crate) struct AssignedTurn {
    pub(crate) token: String,
    /// When the lock was taken, by the monotonic clock of this process.
    pub(crate) locked_at: Duration,
    key: i64,
    instance_id: String,
    origin: NameSource,
    stamp: Option<Stamp>,
    damage: Option<String>,
    lent: Option<LentInstance>,
    messages: Vec<StoredRow>,
    attempt_count: u32,
}

/// A message as it is stored.
struct StoredRow {
    arrived_at_ms: i64,
    seq: i64,
    work_item: String,
    notes: Option<String>,
}

/// What the lane answers. If it is dropped unread, the instance returns to the queue.
pub(crate) struct TurnAnswer {
    pub(crate) turn: AssignedTurn,
    pub(crate) guard: UnreadGuard,
}

/// The assignments of one round.
#[derive(Default)]
pub(crate) struct TurnRound {
    /// For each fetch that gets something: its place among the parked ones, and what it gets.
    pub(crate) assigned: Vec<(usize, Vec<TurnAnswer>)>,
    /// There may be more instances than were looked at.
    pub(crate) has_more: bool,
    /// It took as many looks as a round may take, and a fetch still waits.
    pub(crate) is_cut: bool,
    /// Instances were locked for the transaction that the fetches could have taken, but did not.
    pub(crate) left_some: bool,
}

/// How far rounds have got that found too many instances which no fetch may take now. It begins anew at the end, and whenever
/// all fetches are served.
#[derive(Debug)]
pub(crate) struct TurnWalk {
    after: i64,
}

impl Default for TurnWalk {
    fn default() -> Self {
        Self { after: i64::MIN }
    }
}

/// The pinned versions that one of the fetches can replay, as ranges of their numbers.
fn pinned_ranges(fetches: &[ParkedTurnFetch]) -> (Vec<i64>, Vec<i64>) {
    let range = |parked: &ParkedTurnFetch| match &parked.fetch.filter {
        None => Some((i64::MIN, i64::MAX)),
        Some(filter) => {
            filter.supported_engine_versions.first().map(|range| (order_of(&range.min), order_of(&range.max)))
        }
    };
    fetches.iter().filter_map(range).collect::<BTreeSet<_>>().into_iter().unzip()
}

/// Locks instances for these fetches, in a transaction of its own.
pub(crate) async fn assign(
    session: &ServerSession,
    fetches: &[ParkedTurnFetch],
    clock: &dyn Clock,
    test_now_ms: Option<i64>,
    owner: i64,
    commits: &Arc<CommitQueue>,
    walk: &mut TurnWalk,
) -> Result<TurnRound, Error> {
    let (lows, highs) = pinned_ranges(fetches);
    let mut round = TurnRound::default();
    let mut taken: Vec<(usize, TurnCandidate)> = Vec::new();
    let began = clock.monotonic();
    let mut after = walk.after;
    session.run("BEGIN").await?;
    let handlers = missing_handlers(session, fetches).await?;
    let (wanted, mut candidates) = (demand(fetches), Vec::new());
    for handler in &handlers {
        let version =
            handler.version.as_ref().map_or_else(|| "*".to_owned(), |version| format!("={version}"));
        let rows = session
            .query(
                READY_FOR_HANDLER,
                &[&test_now_ms, &i64::MIN, &OWN_ENGINE, &wanted, &lows, &highs, &handler.name, &version],
            )
            .await?;
        candidates.extend(rows.iter().map(TurnCandidate::of).collect::<Result<Vec<_>, _>>()?);
    }
    for page in 0.. {
        // Many that no fetch may take can be in the way of those that one may.
        let limit = if page == 0 { wanted } else { CANDIDATES };
        let parameters: [Parameter<'_>; 6] = [&test_now_ms, &after, &OWN_ENGINE, &limit, &lows, &highs];
        let rows = session.query(READY, &parameters).await?;
        let is_last = i64::try_from(rows.len()).is_ok_and(|found| found < limit);
        let found = rows.iter().map(TurnCandidate::of).collect::<Result<Vec<_>, _>>()?;
        after = found.last().map_or(after, |last| last.ready_seq.max(after));
        candidates.extend(found);
        candidates.sort_by_key(|candidate| candidate.ready_seq);
        round.left_some |= distribute(fetches, std::mem::take(&mut candidates), &mut taken);
        let is_served = taken.iter().map(|(fetch, _)| *fetch).collect::<HashSet<_>>().len() == fetches.len();
        if is_last || is_served {
            round.has_more = !is_last;
            *walk = TurnWalk::default();
            break;
        }
        if page >= PAGES {
            (round.has_more, round.is_cut) = (true, true);
            walk.after = after;
            break;
        }
    }
    if taken.is_empty() {
        session.run("COMMIT").await?;
        // Nothing has changed: other processes would find what they have found before.
        round.left_some = false;
        return Ok(round);
    }
    let keys: Vec<i64> = taken.iter().map(|(_, candidate)| candidate.key).collect();
    let tokens: Vec<String> = keys.iter().map(|key| token(*key, clock.random_u128())).collect();
    let lock_ms =
        |fetch: usize| fetches.get(fetch).map_or(0, |fetch| stored_ms(length_ms(fetch.fetch.lock_timeout)));
    let lengths: Vec<i64> = taken.iter().map(|(fetch, _)| lock_ms(*fetch)).collect();
    let lock_parameters: [Parameter<'_>; 5] = [&test_now_ms, &keys, &tokens, &lengths, &owner];
    let tag_parameters: [Parameter<'_>; 2] = [&test_now_ms, &keys];
    // If the answer to the commit is lost, the instances return.
    let unread = |token: &String| UnreadWork::Turn { token: token.clone() };
    let guards: Vec<UnreadGuard> =
        tokens.iter().map(|token| UnreadGuard::new(Arc::clone(commits), unread(token))).collect();
    let (_, rows, ()) = tokio::try_join!(
        biased;
        session.execute(LOCK, &lock_parameters),
        session.query(TAG, &tag_parameters),
        session.run("COMMIT")
    )?;
    for (((fetch, candidate), token), guard) in taken.into_iter().zip(tokens).zip(guards) {
        let warm = fetches.get(fetch).and_then(|parked| parked.fetch.warm.as_ref());
        let turn = assigned_turn(candidate, token, began, &rows, warm)?;
        let turn = TurnAnswer { turn, guard };
        match round.assigned.iter_mut().find(|(known, _)| *known == fetch) {
            Some((_, turns)) => turns.push(turn),
            None => round.assigned.push((fetch, vec![turn])),
        }
    }
    Ok(round)
}

/// A locked instance with its messages, those of `rows` that are its own.
fn assigned_turn(
    candidate: TurnCandidate,
    token: String,
    locked_at: Duration,
    rows: &[Row],
    warm: Option<&Arc<dyn WarmView>>,
) -> Result<AssignedTurn, Error> {
    let (mut messages, mut attempt_count) = (Vec::new(), 0_i64);
    for row in rows {
        if row.try_get::<_, i64>(0)? == candidate.key {
            attempt_count = attempt_count.max(row.try_get(5)?);
            messages.push(StoredRow {
                arrived_at_ms: row.try_get(1)?,
                seq: row.try_get(2)?,
                work_item: row.try_get(3)?,
                notes: row.try_get(4)?,
            });
        }
    }
    messages.sort_unstable_by_key(|message| (message.arrived_at_ms, message.seq));
    let execution_id = unsigned(candidate.execution_id());
    let lent = match (warm, candidate.stamp, &candidate.pin) {
        (Some(warm), Some(stamp), Ok(_)) => {
            let lend = || warm.lend(&candidate.instance_id, execution_id, stamp);
            // It is locked: without its copy in memory its history is read.
            guarded("lending an instance from memory", lend).flatten()
        }
        _ => None,
    };
    Ok(AssignedTurn {
        token,
        locked_at,
        key: candidate.key,
        instance_id: candidate.instance_id,
        origin: candidate.origin,
        stamp: candidate.stamp,
        damage: candidate.pin.err(),
        lent,
        messages,
        attempt_count: u32::try_from(attempt_count).unwrap_or(u32::MAX),
    })
}

/// The handlers that instances wait for and one of the fetches has.
async fn missing_handlers(
    session: &ServerSession,
    fetches: &[ParkedTurnFetch],
) -> Result<Vec<HandlerKey>, Error> {
    let mut handlers = Vec::new();
    for row in session.query(MISSING_HANDLERS, &[]).await? {
        let (name, version): (String, String) = (row.try_get(0)?, row.try_get(1)?);
        let handler = HandlerKey::orchestration(name, version.strip_prefix('=').map(str::to_owned));
        if fetches.iter().any(|parked| may_take(parked.fetch.handlers.as_ref(), Some(&handler))) {
            handlers.push(handler);
        }
    }
    Ok(handlers)
}

/// How many instances the fetches take at most: what is locked beyond that is hidden from the other processes for nothing.
fn demand(fetches: &[ParkedTurnFetch]) -> i64 {
    let open = fetches.iter().filter(|parked| !parked.reply.is_closed());
    let wanted = open.fold(0_usize, |sum, parked| sum.saturating_add(parked.fetch.turns_max));
    i64::try_from(wanted).unwrap_or(CANDIDATES).clamp(1, CANDIDATES)
}

/// Gives candidates to fetches, the oldest to the fetch that waits longest. Starts come with other starts, instances in memory
/// with others in memory; an instance that was fetched before, or whose history must be read, comes alone. Returns whether one is left that a fetch could
/// have taken if it had not others.
fn distribute(
    fetches: &[ParkedTurnFetch],
    candidates: Vec<TurnCandidate>,
    taken: &mut Vec<(usize, TurnCandidate)>,
) -> bool {
    let mut left_some = false;
    // Fetches that take no more: what comes next must come alone.
    let mut full = HashSet::new();
    for candidate in candidates {
        if taken.iter().any(|(_, known)| known.key == candidate.key) {
            continue;
        }
        let mut candidate = Some(candidate);
        for (nth, parked) in fetches.iter().enumerate() {
            let fetch = &parked.fetch;
            let Some(fitting) = candidate.as_ref().filter(|candidate| candidate.fits(fetch)) else {
                continue;
            };
            if full.contains(&nth) || parked.reply.is_closed() {
                continue;
            }
            let mut own = taken.iter().filter(|(of, _)| *of == nth).map(|(_, known)| known).peekable();
            let goes_with_others =
                |turn: &TurnCandidate| !turn.was_fetched && (turn.is_start() || turn.is_warm_for(fetch));
            let is_taken = match own.peek() {
                None => fetch.turns_max > 0,
                Some(first) => {
                    goes_with_others(first) && goes_with_others(fitting) && own.count() < fetch.turns_max
                }
            };
            if is_taken {
                taken.extend(candidate.take().map(|candidate| (nth, candidate)));
                break;
            }
            full.insert(nth);
        }
        left_some |= candidate.is_some_and(|left| fetches.iter().any(|parked| left.fits(&parked.fetch)));
    }
    left_some
}

/// The instances whose messages are orphans.
pub(crate) async fn orphaned(session: &ServerSession) -> Result<Vec<i64>, Error> {
    session.query(SELECT_ORPHANED, &[]).await?.iter().map(|row| row.try_get(0)).collect()
}

/// Parks a fetch in the lane, then reads and decodes what it was assigned.
pub(crate) async fn fetch(
    provider: &PostgresProvider,
    fetch: &TurnFetch,
) -> Result<Vec<FetchedTurn>, ProviderError> {
    if fetch.filter.as_ref().is_some_and(|filter| filter.supported_engine_versions.is_empty()) {
        // No version is supported: no instance fits.
        tokio::time::sleep(fetch.poll_timeout).await;
        return Ok(Vec::new());
    }
    let once = fetch.poll_timeout.is_zero();
    let answers = provider
        .park("fetch_turns", fetch.poll_timeout, |reply| {
            crate::fetch_lane::FetchCommand::Turns(ParkedTurnFetch { fetch: fetch.clone(), once, reply })
        })
        .await?;
    let (mut guards, mut completed) = (Vec::new(), Vec::new());
    for TurnAnswer { turn, guard } in answers {
        guards.push(guard);
        let locked_at = turn.locked_at;
        completed.push((complete(provider, turn).await?, locked_at));
    }
    guards.iter_mut().for_each(UnreadGuard::disarm);
    let now = provider.clock().monotonic();
    let fetched = completed.into_iter().map(|(mut turn, locked_at)| {
        turn.lock_left = fetch.lock_timeout.saturating_sub(now.saturating_sub(locked_at));
        turn
    });
    Ok(fetched.collect())
}

/// Decodes the messages; reads a cold instance's history and key-value store, which cannot change under the lock.
async fn complete(provider: &PostgresProvider, turn: AssignedTurn) -> Result<FetchedTurn, ProviderError> {
    let AssignedTurn {
        token,
        key,
        instance_id,
        origin,
        stamp,
        damage,
        lent,
        messages: rows,
        attempt_count,
        ..
    } = turn;
    let (mut messages, mut notes, mut history_error) = (Vec::new(), Vec::new(), damage);
    for row in &rows {
        match decode_message(row) {
            Ok((message, note)) => {
                messages.push(message);
                notes.push(note);
            }
            Err(reason) => drop(history_error.get_or_insert(reason)),
        }
    }
    let warm = lent.filter(|_| history_error.is_none());
    let execution_id = match origin {
        NameSource::Row { execution_id, .. } => execution_id,
        NameSource::History | NameSource::Message { .. } => 1,
    };
    let mut history = Vec::new();
    let mut kv_snapshot = std::collections::HashMap::new();
    let is_start = matches!(origin, NameSource::Message { fresh: true });
    if warm.is_none() && !is_start {
        if !matches!(origin, NameSource::Message { .. }) {
            match read::events(provider, key, execution_id).await {
                Ok(events) => {
                    history_error = history_error.or_else(|| read::misplaced(&instance_id, &events));
                    history = events;
                }
                Err(error) if error.is_damaged() => drop(history_error.get_or_insert(error.message)),
                Err(error) => return Err(error),
            }
        }
        kv_snapshot = kv::snapshot(provider, key).await?;
    }
    let name_in_warm_history = warm.is_some() && matches!(origin, NameSource::History);
    let (orchestration_name, version) = match origin {
        NameSource::Row { name, version, .. } => (name, version),
        NameSource::History => {
            let read;
            let events = if name_in_warm_history {
                // Rare: no turn has named it yet. The warm copy has its history, but the answer must have its name.
                read = read::events(provider, key, execution_id).await.unwrap_or_default();
                &read
            } else {
                &history
            };
            name_in_history(events).or_else(|| name_in_messages(&messages)).unwrap_or_else(unknown)
        }
        NameSource::Message { .. } => name_in_messages(&messages).unwrap_or_else(unknown),
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

fn decode_message(row: &StoredRow) -> Result<(WorkItem, MessageNotes), String> {
    let damaged = |error: serde_json::Error| format!("message {} cannot be read: {error}", row.seq);
    let message = serde_json::from_str(&row.work_item).map_err(damaged)?;
    let notes = row.notes.as_deref().map_or(Ok(MessageNotes::default()), serde_json::from_str);
    Ok((message, notes.map_err(damaged)?))
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
