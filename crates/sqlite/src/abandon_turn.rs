//! `abandon_turn`: the lock is released, the messages are delivered again.

use everturn_provider::store::TurnAbandon;
use rusqlite::params;

use crate::clock_reading::ClockReading;
use crate::locks::{self, row_of, unknown_token};
use crate::operation::{BatchOrder, Scope, Verb, VerbFailure};
use crate::orchestrator_queue;

/// Releases an instance whose turn was not committed.
pub(crate) struct AbandonTurn {
    pub(crate) abandon: TurnAbandon,
    pub(crate) called: ClockReading,
}

const UNTAG: &str = "UPDATE orchestrator_queue SET tagged = 0, visible_at_ms = ?2, \
     attempt_count = max(attempt_count - ?3, 0) WHERE instance_key = ?1 AND visible_at_ms = 0 AND tagged = 1";
const UNLOCK: &str = "UPDATE instances SET lock_token = NULL, locked_until_ms = NULL, lock_ms = NULL \
     WHERE instance_key = ?1";

impl Verb for AbandonTurn {
    type Answer = ();
    const NAME: &'static str = "abandon_turn";
    const ORDER: BatchOrder = BatchOrder::LockHolder;

    fn run(&self, scope: &mut Scope<'_>) -> Result<(), VerbFailure> {
        let token = &self.abandon.lock_token;
        let key = row_of(token).ok_or_else(|| unknown_token(token))?;
        let stored = locks::instance_lock(scope, key)?.ok_or_else(|| unknown_token(token))?;
        locks::check(scope, &stored, token, self.called)?;
        let delay = self.abandon.delay.filter(|delay| !delay.is_zero());
        let visible_at_ms = delay.map_or(0, |delay| scope.now.wall_after(delay));
        release(scope, key, visible_at_ms, self.abandon.ignore_attempt)?;
        scope.effects.released.push(token.clone());
        Ok(())
    }
}

/// Clears the lock of an instance; its messages become visible again.
pub(crate) fn release(
    scope: &mut Scope<'_>,
    key: i64,
    visible_at_ms: i64,
    ignore_attempt: bool,
) -> Result<(), VerbFailure> {
    scope.conn.prepare_cached(UNTAG)?.execute(params![key, visible_at_ms, i64::from(ignore_attempt)])?;
    scope.conn.prepare_cached(UNLOCK)?.execute([key])?;
    orchestrator_queue::refresh(scope, key)
}
