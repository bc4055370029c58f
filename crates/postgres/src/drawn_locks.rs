//! What a step has locked for its workers, found by the random parts of the tokens, which its caller drew.
//!
//! The caller of a step may never hear what it has locked: the answer of the server was lost, the call took too long, or the
//! caller left. A repeated call finds it; what no caller has in the end returns to the queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use everturn_provider::ProviderError;
use everturn_provider::encoded::{length_ms, stored_ms};

use crate::commit_queue::CommitQueue;
use crate::commit_step::CommitStep;
use crate::error::storage_error;
use crate::fetch_work::{AssignedWork, WorkLock};
use crate::needs::Needs;
use crate::operation::{BatchOrder, Run, Verb};
use crate::provider::PostgresProvider;
use crate::settle_work;
use crate::unit_of_work::UnitOfWork;

/// Among the rows that are not ready, of which there are as many as there are workers, by their index.
macro_rules! drawn {
    () => {
        "FROM {schema}.everturn_worker_queue AS q WHERE q.check_at_ms > 0 AND NOT q.ready AND q.lock_owner = $1 \
         AND right(q.lock_token, 32) = ANY($2) "
    };
}
pub(crate) const LOCK_DRAWN: &str = concat!(
    "SELECT q.seq, q.lock_token, q.locked_until_ms, q.lock_ms, q.session_id ",
    drawn!(),
    "ORDER BY q.seq FOR UPDATE"
);
const FIND_DRAWN: &str = concat!(
    "SELECT q.lock_token, q.instance_id, q.work_item, q.attempt_count, \
     q.locked_until_ms - {schema}.everturn_now_ms($3) ",
    drawn!(),
    "AND q.locked_until_ms > {schema}.everturn_now_ms($3)"
);

/// The random part of a token, as the token has it.
pub(crate) fn shown_random(random: u128) -> String {
    format!("{random:032x}")
}

/// The locks that a step may have taken. Its caller and the lane share them: when both are done and no worker has the activities,
/// they return to the queue.
pub(crate) struct DrawnLocks {
    commits: Arc<CommitQueue>,
    randoms: Vec<String>,
    are_owed: AtomicBool,
}

impl DrawnLocks {
    pub(crate) fn new(commits: Arc<CommitQueue>, randoms: Vec<String>) -> Self {
        Self { commits, randoms, are_owed: AtomicBool::new(true) }
    }

    /// No lock was taken, or each has a guard of its own.
    pub(crate) fn settle(&self) {
        self.are_owed.store(false, Ordering::SeqCst);
    }
}

impl Drop for DrawnLocks {
    fn drop(&mut self) {
        if *self.are_owed.get_mut() && !self.randoms.is_empty() {
            self.commits.send_owed(ReturnDrawn(std::mem::take(&mut self.randoms)));
        }
    }
}

/// Clears the locks with these random parts, and takes their attempts back.
struct ReturnDrawn(Vec<String>);

impl Verb for ReturnDrawn {
    type Answer = ();
    const NAME: &'static str = "return_unread";
    const ORDER: BatchOrder = BatchOrder::LockHolder;

    fn needs(&self, needs: &mut Needs) {
        needs.drawn.extend(self.0.iter().cloned());
    }

    fn run(&self, unit: &mut UnitOfWork, _run: Run) -> Result<(), ProviderError> {
        let is_own = |token: &str| self.0.iter().any(|random| token.ends_with(random.as_str()));
        let held =
            unit.activities.iter().filter(|(_, activity)| activity.lock.token.as_deref().is_some_and(is_own));
        let seqs: Vec<i64> = held.map(|(seq, _)| *seq).collect();
        for seq in seqs {
            settle_work::release(unit, seq, 0, None, true);
        }
        Ok(())
    }
}

/// What an earlier call of a step has locked for its workers, one place for each.
pub(crate) async fn locked_before(
    provider: &PostgresProvider,
    next: &[Option<WorkLock>],
) -> Result<Vec<Option<AssignedWork>>, ProviderError> {
    let randoms: Vec<String> = next.iter().flatten().map(|lock| shown_random(lock.random)).collect();
    let mut places: Vec<Option<AssignedWork>> = next.iter().map(|_| None).collect();
    if randoms.is_empty() {
        return Ok(places);
    }
    let asked = provider.clock().monotonic();
    let (owner, test_now_ms) = (provider.owner(), provider.test_now_ms());
    let rows =
        provider.readers().query(CommitStep::NAME, FIND_DRAWN, &[&owner, &randoms, &test_now_ms]).await?;
    for row in &rows {
        let failed = |error| storage_error(CommitStep::NAME, error);
        let token: String = row.try_get(0).map_err(failed)?;
        let is_for = |lock: &&Option<WorkLock>| {
            lock.as_ref().is_some_and(|lock| token.ends_with(&shown_random(lock.random)))
        };
        let place = next.iter().zip(&mut places).find(|(lock, _)| is_for(lock));
        let Some((Some(lock), place)) = place else { continue };
        let left_ms: i64 = row.try_get(4).map_err(failed)?;
        let spent_ms = stored_ms(length_ms(lock.lock_timeout)).saturating_sub(left_ms);
        let spent = std::time::Duration::from_millis(u64::try_from(spent_ms).unwrap_or(0));
        let attempts: i64 = row.try_get(3).map_err(failed)?;
        *place = Some(AssignedWork::locked(
            token,
            row.try_get(1).map_err(failed)?,
            row.try_get(2).map_err(failed)?,
            u32::try_from(attempts).unwrap_or(u32::MAX),
            asked.saturating_sub(spent),
        ));
    }
    Ok(places)
}
