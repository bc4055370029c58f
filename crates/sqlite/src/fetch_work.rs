//! `fetch_work`: the oldest activity that a worker may take.

use everturn_provider::encoded::{length_ms, stored_ms};
use std::time::Duration;

use everturn_core::WorkItem;
use everturn_provider::store::{FetchedWork, SessionPlace, WorkFetch};
use everturn_provider::{ProviderError, TagFilter};
use rusqlite::params;
use tokio::time::Instant;

use crate::clock_reading::ClockReading;
use crate::columns;
use crate::command_queue::Command;
use crate::damaged_activity;
use crate::locks::{self, new_token, row_of};
use crate::operation::{Scope, VerbFailure};
use crate::parked_fetches::ParkedWorkFetch;
use crate::payloads::activity_payload;
use crate::provider::SqliteProvider;
use crate::ready_work::ReadyWork;
use crate::return_unread::UnreadGuard;
use crate::sessions::{self, SessionLease};
use crate::unreadable::RowPlace;

/// An activity that was locked for a fetch.
pub(crate) struct AssignedWork {
    pub(crate) token: String,
    pub(crate) at: ClockReading,
    pub(crate) lock_ms: u64,
    pub(crate) lease: Option<SessionLease>,
    /// The place that was taken for its session.
    place: Option<SessionPlace>,
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

const SELECT_ACTIVITY: &str = concat!(
    "SELECT q.attempt_count, ",
    activity_payload!(),
    ", q.instance_id FROM everturn_worker_queue AS q WHERE q.seq = ?1"
);
const LOCK_ACTIVITY: &str = "UPDATE everturn_worker_queue SET lock_token = ?2, locked_until_ms = ?3, lock_ms = ?4, ready = 0, \
     visible_at_ms = 0, missing_handler = NULL, attempt_count = ?5, lock_owner = ?6 WHERE seq = ?1";

/// Locks the oldest activity that the fetch may take. A damaged row that cannot be locked is removed: it would block all
/// fetches.
pub(crate) fn assign(
    scope: &mut Scope<'_>,
    fetch: &ParkedWorkFetch,
    ready: &mut ReadyWork,
) -> Result<Option<AssignedWork>, VerbFailure> {
    loop {
        let now_ms = scope.now.wall_ms;
        let Some(oldest) = ready.oldest_for(scope.conn, scope.rows, fetch, now_ms)? else { return Ok(None) };
        let place = match (&oldest.session_id, &fetch.session_places) {
            (Some(session_id), Some(places)) => match places.reserve(session_id) {
                Some(place) => Some(place),
                // The last place was taken after the store asked for room.
                None => return Ok(None),
            },
            _ => None,
        };
        scope.rows.at(RowPlace::Activity(oldest.seq));
        match lock(scope, fetch, oldest.seq, oldest.session_id.clone()) {
            Err(VerbFailure::Refused(error)) => {
                let outcome = damaged_activity::remove(scope, oldest.seq, &error.message, true)?;
                outcome.log(&error.message);
                ready.forget();
            }
            Err(storage) => return Err(storage),
            Ok(locked) => {
                scope.rows.done();
                ready.taken(scope.conn, scope.rows, &oldest, fetch, now_ms)?;
                return Ok(Some(AssignedWork { place, ..locked }));
            }
        }
    }
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
        attempt_count,
        scope.owner
    ])?;
    let lease = match (&fetch.session, session_id) {
        (Some(session), Some(session_id)) => {
            Some(sessions::lease(scope, &session_id, &session.owner_id, session.lock_timeout)?)
        }
        _ => None,
    };
    scope.effects.held.push((token.clone(), scope.now, lock_ms));
    let attempt_count = u32::try_from(attempt_count).unwrap_or(u32::MAX);
    Ok(AssignedWork {
        token,
        at: scope.now,
        lock_ms,
        lease,
        place: None,
        instance_id,
        work_item,
        attempt_count,
    })
}

/// Parks a fetch in the writer, then decodes what it was assigned.
pub(crate) async fn fetch(
    provider: &SqliteProvider,
    fetch: &WorkFetch,
) -> Result<Vec<FetchedWork>, ProviderError> {
    if fetch.tags == TagFilter::None {
        tokio::time::sleep(fetch.poll_timeout).await;
        return Ok(Vec::new());
    }
    let began = Instant::now();
    loop {
        let left = fetch.poll_timeout.saturating_sub(began.elapsed());
        let answer = provider
            .park::<ParkedWorkFetch>(left, |id, once, reply| {
                Command::FetchWork(ParkedWorkFetch::new(id, once, fetch, reply))
            })
            .await?;
        let Some(answer) = answer else { return Ok(Vec::new()) };
        if let Some(work) = decode(provider, answer, fetch.lock_timeout).await? {
            return Ok(vec![work]);
        }
    }
}

/// Decodes an assigned activity. A damaged one is removed.
pub(crate) async fn decode(
    provider: &SqliteProvider,
    answer: WorkAnswer,
    lock_timeout: Duration,
) -> Result<Option<FetchedWork>, ProviderError> {
    let WorkAnswer { work, mut guard } = answer;
    match serde_json::from_slice(&work.work_item) {
        Ok(item @ WorkItem::ActivityExecute { .. }) => {
            // If row and item name two instances, the outcome must not go to the wrong one.
            let mut is_sound = item.instance().as_bytes() == work.instance_id;
            if !is_sound {
                let instance = item.instance().to_owned();
                let reason = format!("it says that it is for {instance}");
                let token = work.token.clone();
                is_sound = damaged_activity::remove_fetched(provider, token, reason, Some(instance)).await?;
            }
            if is_sound {
                guard.disarm();
                let lock_left = locks::left(work.at, provider.now(), lock_timeout);
                let mut fetched = FetchedWork::new(item, work.token, lock_left, work.attempt_count);
                fetched.session_place = work.place;
                return Ok(Some(fetched));
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
    Ok(None)
}

/// Whether an assigned activity still exists and is locked with this token.
pub(crate) fn is_held(scope: &Scope<'_>, token: &str) -> Result<bool, VerbFailure> {
    let Some(seq) = row_of(token) else { return Ok(false) };
    Ok(locks::work_lock(scope, seq)?.is_some_and(|(lock, _session)| lock.token.as_deref() == Some(token)))
}
