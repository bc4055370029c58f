//! `abandon_orchestration_item`: the lock is released, the messages are delivered again.

use std::time::Duration;

use rusqlite::params;

use crate::clock_reading::ClockReading;
use crate::locks::{self, row_of, unknown_token};
use crate::operation::{BatchOrder, Scope, Verb, VerbFailure};
use crate::orchestrator_queue;

/// Releases an instance whose turn was not committed.
pub(crate) struct AbandonTurn {
    pub(crate) lock_token: String,
    pub(crate) delay: Option<Duration>,
    pub(crate) ignore_attempt: bool,
    pub(crate) called: ClockReading,
}

const UNTAG: &str = "UPDATE orchestrator_queue SET tagged = 0, visible_at_ms = ?2, \
     attempt_count = max(attempt_count - ?3, 0) WHERE instance_key = ?1 AND visible_at_ms = 0 AND tagged = 1";
const UNLOCK: &str = "UPDATE instances SET lock_token = NULL, locked_until_ms = NULL, lock_ms = NULL \
     WHERE instance_key = ?1";

impl Verb for AbandonTurn {
    type Answer = ();
    const NAME: &'static str = "abandon_orchestration_item";
    const ORDER: BatchOrder = BatchOrder::LockHolder;

    fn run(&self, scope: &mut Scope<'_>) -> Result<(), VerbFailure> {
        let token = &self.lock_token;
        let key = row_of(token).ok_or_else(|| unknown_token(token))?;
        let stored = locks::instance_lock(scope, key)?.ok_or_else(|| unknown_token(token))?;
        locks::check(scope, &stored, token, self.called)?;
        let visible_at_ms =
            self.delay.filter(|delay| !delay.is_zero()).map_or(0, |d| scope.now.wall_after(d));
        release(scope, key, visible_at_ms, self.ignore_attempt)?;
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
