//! `settle_work`: a fetched activity ends, or returns to the queue.

use everturn_provider::encoded::StoredMessage;
use std::time::Duration;

use everturn_core::WorkItem;
use everturn_provider::ProviderError;
use everturn_provider::store::{Settlement, SettlementKind};
use rusqlite::{OptionalExtension, params};

use crate::clock_reading::ClockReading;
use crate::columns;
use crate::locks::{self, row_of, unknown_token};
use crate::operation::{BatchOrder, Scope, Verb, VerbFailure};
use crate::orchestrator_queue;
use crate::sessions;

// Most activities have no session, and a deletion that returns something costs twice as much.
const DELETE_LOCKED: &str =
    "DELETE FROM everturn_worker_queue WHERE seq = ?1 AND lock_token = ?2 AND session_id IS NULL";
const DELETE_LOCKED_OF_SESSION: &str =
    "DELETE FROM everturn_worker_queue WHERE seq = ?1 AND lock_token = ?2 RETURNING session_id";
const UNLOCK: &str = "UPDATE everturn_worker_queue SET lock_token = NULL, locked_until_ms = NULL, lock_ms = NULL, \
     visible_at_ms = ?2, missing_handler = ?3, ready = ?2 = 0 OR ?3 IS NOT NULL, \
     attempt_count = max(attempt_count - ?4, 0) WHERE seq = ?1";

/// Ends the lock of a fetched activity.
pub(crate) struct SettleWork {
    token: String,
    kind: StoredSettlement,
    called: ClockReading,
}

enum StoredSettlement {
    /// The activity is deleted; its completion becomes visible after the delay.
    End { completion: Option<(StoredMessage, Option<Duration>)> },
    /// The activity becomes visible again after the delay, to workers with the missing handler at once.
    Abandon { delay: Option<Duration>, ignore_attempt: bool, missing_handler: Option<String> },
}

impl SettleWork {
    /// Encodes the completion; refuses any other item.
    pub(crate) fn encode(settlement: &Settlement, called: ClockReading) -> Result<Self, ProviderError> {
        let kind = match &settlement.kind {
            SettlementKind::End { completion: None } => StoredSettlement::End { completion: None },
            SettlementKind::End { completion: Some(message) } => {
                let (WorkItem::ActivityCompleted { .. } | WorkItem::ActivityFailed { .. }) = &message.item
                else {
                    let kind = everturn_core::kind_of(&message.item);
                    return Err(ProviderError::permanent(
                        Self::NAME,
                        format!("a {kind} is not the completion of an activity"),
                    ));
                };
                let stored = StoredMessage::encode(Self::NAME, message)?;
                StoredSettlement::End { completion: Some((stored, message.delay)) }
            }
            SettlementKind::Abandon { delay, ignore_attempt, missing_handler } => StoredSettlement::Abandon {
                delay: *delay,
                ignore_attempt: *ignore_attempt,
                missing_handler: missing_handler.as_ref().map(|handler| handler.name.clone()),
            },
            other => {
                return Err(ProviderError::unsupported(
                    Self::NAME,
                    format!("this store cannot do {other:?}"),
                ));
            }
        };
        Ok(Self { token: settlement.lock_token.clone(), kind, called })
    }
}

impl Verb for SettleWork {
    type Answer = ();
    const NAME: &'static str = "settle_work";
    const ORDER: BatchOrder = BatchOrder::LockHolder;

    fn payload_bytes(&self) -> usize {
        match &self.kind {
            StoredSettlement::End { completion: Some((completion, _)) } => completion.work_item.len(),
            StoredSettlement::End { completion: None } | StoredSettlement::Abandon { .. } => 0,
        }
    }

    fn run(&self, scope: &mut Scope<'_>) -> Result<(), VerbFailure> {
        let token = &self.token;
        let seq = row_of(token).ok_or_else(|| unknown_token(token))?;
        // A lock that this process took and that has not ended is checked by the deletion itself.
        let is_checked = matches!(self.kind, StoredSettlement::End { .. })
            && locks::own_clock_says(scope, token, self.called) == Some(true);
        if !is_checked {
            let (stored, _session) = locks::work_lock(scope, seq)?.ok_or_else(|| unknown_token(token))?;
            locks::check(scope, &stored, token, self.called)?;
        }
        match &self.kind {
            StoredSettlement::End { completion } => {
                let session = delete_locked(scope, seq, token)?.ok_or_else(|| unknown_token(token))?;
                if let Some((completion, delay)) = completion {
                    let visible_at_ms = delay.map(|delay| scope.now.wall_after(delay));
                    orchestrator_queue::insert(scope, completion, visible_at_ms)?;
                }
                sessions::note_activity(scope, session.as_deref())?;
            }
            StoredSettlement::Abandon { delay, ignore_attempt, missing_handler } => {
                let delay = delay.filter(|delay| !delay.is_zero());
                let visible_at_ms = delay.map_or(0, |delay| scope.now.wall_after(delay));
                let missing_handler = missing_handler.as_deref().filter(|_| visible_at_ms > 0);
                release(scope, seq, visible_at_ms, missing_handler, *ignore_attempt)?;
            }
        }
        scope.effects.released.push(token.clone());
        Ok(())
    }
}

/// Removes an activity that has ended, if it is locked by this token. Returns its session.
pub(crate) fn delete_locked(
    scope: &Scope<'_>,
    seq: i64,
    token: &str,
) -> Result<Option<Option<String>>, VerbFailure> {
    if scope.conn.prepare_cached(DELETE_LOCKED)?.execute(params![seq, token])? == 1 {
        return Ok(Some(None));
    }
    let mut delete = scope.conn.prepare_cached(DELETE_LOCKED_OF_SESSION)?;
    Ok(delete.query_row(params![seq, token], |row| columns::text(row, 0)).optional()?)
}

/// Clears the lock of an activity, which becomes visible again: at once to workers with the missing handler.
pub(crate) fn release(
    scope: &mut Scope<'_>,
    seq: i64,
    visible_at_ms: i64,
    missing_handler: Option<&str>,
    ignore_attempt: bool,
) -> Result<(), VerbFailure> {
    scope.conn.prepare_cached(UNLOCK)?.execute(params![
        seq,
        visible_at_ms,
        missing_handler,
        i64::from(ignore_attempt)
    ])?;
    scope.effects.work |= visible_at_ms == 0 || missing_handler.is_some();
    Ok(())
}
