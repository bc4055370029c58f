//! Committing a turn: again and again while the lock is held, or not at all.

use everturn_provider::{Provider, ProviderError, TurnCommit};

use super::super::lock_keeper::LockGuard;
use super::super::retrying::Backoff;

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

/// Commits, retrying what may pass as long as the lock is held.
pub(crate) async fn commit_while_locked(
    store: &dyn Provider,
    commit: &TurnCommit,
    lock: &LockGuard,
) -> Committed {
    let mut backoff = Backoff::new();
    loop {
        let error = match store.commit_turn(commit).await {
            Ok(()) => return Committed::Yes,
            Err(error) if error.is_lock_lost() || error.is_history_moved() => {
                return Committed::GivenUp(error);
            }
            Err(error) if !error.is_retryable() => return Committed::Refused(error),
            Err(error) => error,
        };
        let wait = backoff.next_wait();
        tracing::warn!(target: "everturn::runtime", %error, retry_in_ms = wait.as_millis() as u64,
            "committing a turn failed for now");
        tokio::select! {
            biased;
            () = lock.lost() => return Committed::GivenUp(error),
            () = tokio::time::sleep(wait) => {}
        }
    }
}
