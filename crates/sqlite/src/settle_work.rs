//! `ack_work_item` and `abandon_work_item`: an activity ends, or returns to the queue.

use std::time::Duration;

use everturn_core::WorkItem;
use everturn_provider::ProviderError;
use rusqlite::params;

use crate::clock_reading::ClockReading;
use crate::locks::{self, row_of, unknown_token};
use crate::operation::{BatchOrder, Scope, Verb, VerbFailure};
use crate::orchestrator_queue::{self, StoredMessage};
use crate::sessions;

const DELETE_ACTIVITY: &str = "DELETE FROM worker_queue WHERE seq = ?1";
const UNLOCK: &str = "UPDATE worker_queue SET lock_token = NULL, locked_until_ms = NULL, lock_ms = NULL, \
     visible_at_ms = ?2, ready = ?2 = 0, attempt_count = max(attempt_count - ?3, 0) WHERE seq = ?1";

/// Deletes an activity and enqueues its completion.
pub(crate) struct EndWork {
    token: String,
    completion: Option<StoredMessage>,
    called: ClockReading,
}

impl EndWork {
    /// Encodes the completion; refuses any other item.
    pub(crate) fn encode(
        token: &str,
        completion: Option<&WorkItem>,
        called: ClockReading,
    ) -> Result<Self, ProviderError> {
        let completion = match completion {
            None => None,
            Some(item @ (WorkItem::ActivityCompleted { .. } | WorkItem::ActivityFailed { .. })) => {
                Some(StoredMessage::encode(Self::NAME, item)?)
            }
            Some(other) => {
                return Err(ProviderError::permanent(
                    Self::NAME,
                    format!("a {} is not the completion of an activity", everturn_core::kind_of(other)),
                ));
            }
        };
        Ok(Self { token: token.to_owned(), completion, called })
    }
}

impl Verb for EndWork {
    type Answer = ();
    const NAME: &'static str = "ack_work_item";
    const ORDER: BatchOrder = BatchOrder::LockHolder;

    fn payload_bytes(&self) -> usize {
        self.completion.as_ref().map_or(0, |completion| completion.work_item.len())
    }

    fn run(&self, scope: &mut Scope<'_>) -> Result<(), VerbFailure> {
        let token = &self.token;
        let seq = row_of(token).ok_or_else(|| unknown_token(token))?;
        let (stored, session) = locks::work_lock(scope, seq)?.ok_or_else(|| unknown_token(token))?;
        locks::check(scope, &stored, token, self.called)?;
        scope.conn.prepare_cached(DELETE_ACTIVITY)?.execute([seq])?;
        if let Some(completion) = &self.completion {
            orchestrator_queue::insert(scope, completion, None)?;
        }
        sessions::note_activity(scope, session.as_deref())?;
        scope.effects.released.push(token.clone());
        Ok(())
    }
}

/// Returns a fetched activity to the queue.
pub(crate) struct ReturnWork {
    pub(crate) token: String,
    pub(crate) delay: Option<Duration>,
    pub(crate) ignore_attempt: bool,
    pub(crate) called: ClockReading,
}

impl Verb for ReturnWork {
    type Answer = ();
    const NAME: &'static str = "abandon_work_item";
    const ORDER: BatchOrder = BatchOrder::LockHolder;

    fn run(&self, scope: &mut Scope<'_>) -> Result<(), VerbFailure> {
        let token = &self.token;
        let seq = row_of(token).ok_or_else(|| unknown_token(token))?;
        let (stored, _session) = locks::work_lock(scope, seq)?.ok_or_else(|| unknown_token(token))?;
        locks::check(scope, &stored, token, self.called)?;
        let visible_at_ms =
            self.delay.filter(|delay| !delay.is_zero()).map_or(0, |d| scope.now.wall_after(d));
        release(scope, seq, visible_at_ms, self.ignore_attempt)?;
        scope.effects.released.push(token.clone());
        Ok(())
    }
}

/// Clears the lock of an activity, which becomes visible again.
pub(crate) fn release(
    scope: &mut Scope<'_>,
    seq: i64,
    visible_at_ms: i64,
    ignore_attempt: bool,
) -> Result<(), VerbFailure> {
    scope.conn.prepare_cached(UNLOCK)?.execute(params![seq, visible_at_ms, i64::from(ignore_attempt)])?;
    scope.effects.work |= visible_at_ms == 0;
    Ok(())
}
