//! `abandon_work_item`: the activity comes again.

use std::time::Duration;

use rusqlite::params;

use crate::locks::{self, row_of, unknown_token};
use crate::moment::Moment;
use crate::operation::{Failure, Order, Scope, Verb};

/// Gives a fetched activity back.
pub(crate) struct AbandonWorkItem {
    pub(crate) token: String,
    pub(crate) delay: Option<Duration>,
    pub(crate) ignore_attempt: bool,
    pub(crate) called: Moment,
}

const UNLOCK: &str = "UPDATE worker_queue SET lock_token = NULL, locked_until_ms = NULL, lock_ms = NULL, \
     visible_at_ms = ?2, ready = ?2 = 0, attempt_count = max(attempt_count - ?3, 0) WHERE seq = ?1";

impl Verb for AbandonWorkItem {
    type Answer = ();
    const NAME: &'static str = "abandon_work_item";
    const ORDER: Order = Order::Holder;

    fn run(&self, scope: &mut Scope<'_>) -> Result<(), Failure> {
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

/// Clears the lock of an activity.
pub(crate) fn release(
    scope: &mut Scope<'_>,
    seq: i64,
    visible_at_ms: i64,
    ignore_attempt: bool,
) -> Result<(), Failure> {
    scope.conn.prepare_cached(UNLOCK)?.execute(params![seq, visible_at_ms, i64::from(ignore_attempt)])?;
    scope.effects.work |= visible_at_ms == 0;
    Ok(())
}
