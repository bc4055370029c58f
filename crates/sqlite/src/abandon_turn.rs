//! `abandon_turn`: the lock is released, the messages are delivered again.

use everturn_provider::store::TurnAbandon;
use rusqlite::params;

use crate::clock_reading::ClockReading;
use crate::locks::{self, row_of, unknown_token};
use crate::operation::{BatchOrder, Scope, Verb, VerbFailure};
use crate::orchestrator_queue;
use crate::ready_instances::StoredHandler;

/// Releases an instance whose turn was not committed.
pub(crate) struct AbandonTurn {
    pub(crate) abandon: TurnAbandon,
    pub(crate) called: ClockReading,
}

const UNTAG: &str = "UPDATE everturn_orchestrator_queue SET tagged = 0, attempt_count = max(attempt_count - ?2, 0) \
     WHERE instance_key = ?1 AND visible_at_ms = 0 AND tagged = 1";
// The instance is ready if the lock has expired. Whether it stays so is computed anew.
const UNLOCK: &str = "UPDATE everturn_instances SET lock_token = NULL, locked_until_ms = NULL, lock_ms = NULL, ready_seq = NULL, \
     delayed_until_ms = ?2, missing_handler = ?3, missing_version = ?4 WHERE instance_key = ?1";

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
        let delay = delay.map(|delay| InstanceDelay {
            until_ms: scope.now.wall_after(delay),
            missing_handler: self.abandon.missing_handler.as_ref().map(StoredHandler::of),
        });
        release(scope, key, delay.as_ref(), self.abandon.ignore_attempt)?;
        scope.effects.released.push(token.clone());
        Ok(())
    }
}

/// How long an instance waits that is given back.
pub(crate) struct InstanceDelay {
    until_ms: i64,
    /// Fetches with this handler need not wait.
    missing_handler: Option<StoredHandler>,
}

/// Clears the lock of an instance; it can be fetched again, now or after the delay.
pub(crate) fn release(
    scope: &mut Scope<'_>,
    key: i64,
    delay: Option<&InstanceDelay>,
    ignore_attempt: bool,
) -> Result<(), VerbFailure> {
    let missing = delay.and_then(|delay| delay.missing_handler.as_ref());
    scope.conn.prepare_cached(UNTAG)?.execute(params![key, i64::from(ignore_attempt)])?;
    scope.conn.prepare_cached(UNLOCK)?.execute(params![
        key,
        delay.map(|delay| delay.until_ms),
        missing.map(|handler| &handler.name),
        missing.map(|handler| &handler.version)
    ])?;
    orchestrator_queue::refresh(scope, key)
}
