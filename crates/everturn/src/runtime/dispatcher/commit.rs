//! Committing a turn: again and again while the lock is held, or not at all.

use everturn_core::{Bug, planted};
use everturn_provider::{Provider, ProviderError, TurnCommit};

use super::super::lock_keeper::LockGuard;
use super::super::retrying::Backoff;
use super::after_commit::AfterCommit;

/// What became of a commit.
#[derive(Debug)]
pub(crate) enum Committed {
    /// It is durable.
    Yes,
    /// It is not ours to make any more; the messages come again.
    GivenUp(ProviderError),
    /// The store will not take it, ever.
    Refused(ProviderError),
}

impl Committed {
    fn not_for_good(error: ProviderError) -> Self {
        if error.is_lock_lost() || error.is_history_moved() {
            Self::GivenUp(error)
        } else {
            Self::Refused(error)
        }
    }
}

/// Commits, retrying what may pass as long as the lock is held.
///
/// An error is not the promise that nothing was written. A commit that was tried before and is refused now may be the
/// reason of its own refusal, so the store is asked whether it has it.
pub(crate) async fn commit_while_locked(
    store: &dyn Provider,
    commit: &TurnCommit,
    after: &AfterCommit,
    lock: &LockGuard,
) -> Committed {
    let mut backoff = Backoff::new();
    let mut in_doubt = false;
    loop {
        let error = match store.commit_turn(commit).await {
            Ok(()) => return Committed::Yes,
            Err(_) if after.is_durable() => return Committed::Yes,
            Err(error) => error,
        };
        if !error.is_retryable() || planted(Bug::StorageErrorFails) {
            let stored = in_doubt && is_stored(store, commit).await;
            return if stored { Committed::Yes } else { Committed::not_for_good(error) };
        }
        in_doubt = true;
        let wait = backoff.next_wait();
        tracing::warn!(target: "everturn::runtime", %error, retry_in_ms = wait.as_millis() as u64,
            "committing a turn failed for now");
        tokio::select! {
            biased;
            () = lock.lost() => {
                let stored = after.is_durable() || is_stored(store, commit).await;
                return if stored { Committed::Yes } else { Committed::GivenUp(error) };
            }
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Whether the store has this turn: its last event is there, as this turn made it. A turn without events cannot be told
/// from one that never was, and nobody needs to.
async fn is_stored(store: &dyn Provider, commit: &TurnCommit) -> bool {
    let Some(last) = commit.history_delta.last() else { return false };
    let stored = store.read_with_execution(&last.instance_id, commit.execution_id).await;
    stored.is_ok_and(|history| history.iter().rev().any(|event| event == last))
}
