//! Locks of work that was aborted in the middle: they are abandoned when the runtime stops, and the attempts taken back.
//!
//! Shutdown aborts work that does not end within its grace period. That is not the work's fault, so it must not count as an
//! attempt, and the next runtime should not have to wait until the locks expire.

use std::future::{Future as _, poll_fn};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use everturn_core::turn::panic_text;
use everturn_provider::store::{LockKind, Settlement, Store, TurnAbandon};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::catch_panic::catch_panic;
use super::deadline::after;
use super::retrying::retrying;

/// How long shutdown waits for the store to take the locks back.
const ABANDON_MAX: Duration = Duration::from_secs(1);

/// The locks of aborted work; cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct UnfinishedWork(Arc<Mutex<Vec<UnfinishedLock>>>);

struct UnfinishedLock {
    kind: LockKind,
    token: String,
    /// When the lock has expired by itself: it is not renewed any more.
    ends_at: Instant,
}

/// Work under way. If it is dropped before [`finished`](Self::finished), its lock is abandoned when the runtime stops.
pub(crate) struct WorkUnderWay {
    kind: LockKind,
    /// `None` once the work is finished.
    token: Option<String>,
    lock_timeout: Duration,
    unfinished: UnfinishedWork,
}

impl WorkUnderWay {
    /// The store knows what became of the work, or could not be reached.
    pub(crate) fn finished(mut self) {
        self.token = None;
    }
}

impl Drop for WorkUnderWay {
    fn drop(&mut self) {
        let Some(token) = self.token.take() else { return };
        let (now, mut locks) = (Instant::now(), self.unfinished.locks());
        // Locks of slots that panicked earlier.
        locks.retain(|other| now < other.ends_at);
        locks.push(UnfinishedLock { kind: self.kind, token, ends_at: after(now, self.lock_timeout) });
    }
}

impl UnfinishedWork {
    /// Begins work under a lock that lasts `lock_timeout` after each renewal.
    pub(crate) fn begin(&self, kind: LockKind, token: &str, lock_timeout: Duration) -> WorkUnderWay {
        WorkUnderWay { kind, token: Some(token.to_owned()), lock_timeout, unfinished: self.clone() }
    }

    /// Waits for `stop`, then abandons the locks of aborted work. Every slot has ended by then, so none of it still runs.
    pub(crate) async fn abandon_after(self, stop: CancellationToken, store: Arc<dyn Store>) {
        stop.cancelled().await;
        let locks = std::mem::take(&mut *self.locks());
        let mut calls: Vec<_> = locks.iter().map(|lock| Box::pin(abandon(&*store, lock))).collect();
        let all = poll_fn(|cx| {
            calls.retain_mut(|call| call.as_mut().poll(cx).is_pending());
            if calls.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        });
        if timeout(ABANDON_MAX, all).await.is_err() {
            tracing::warn!(target: "everturn::runtime", locks = locks.len(),
                "the store did not take back all locks of aborted work; that work waits until they expire");
        }
    }

    fn locks(&self) -> MutexGuard<'_, Vec<UnfinishedLock>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn abandon(store: &dyn Store, lock: &UnfinishedLock) {
    let token = lock.token.as_str();
    let call = || async move {
        match lock.kind {
            LockKind::Orchestration => {
                store.abandon_turn(&TurnAbandon::new(token).with_ignored_attempt(true)).await
            }
            LockKind::WorkItem => store.settle_work(&Settlement::abandon(token, None, true)).await,
        }
    };
    match catch_panic(retrying(ABANDON_MAX, call)).await {
        Ok(Ok(())) => {}
        // It was committed or settled in the moment of the abort.
        Ok(Err(error)) if error.is_lock_lost() => {}
        Ok(Err(error)) => {
            tracing::warn!(target: "everturn::runtime", lock_token = %token, %error,
                "abandoning the lock of aborted work failed; the work waits until the lock expires");
        }
        Err(payload) => {
            tracing::error!(target: "everturn::runtime", lock_token = %token,
                panic = panic_text(payload.as_ref()).unwrap_or("?"),
                "the store panicked while a lock was abandoned; the work waits until the lock expires");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn finished_work_leaves_no_lock_behind_and_aborted_work_does_until_it_expires() {
        let unfinished = UnfinishedWork::default();
        let tokens = || unfinished.locks().iter().map(|lock| lock.token.clone()).collect::<Vec<_>>();
        let begin = |token| unfinished.begin(LockKind::WorkItem, token, Duration::from_secs(30));
        begin("finished").finished();
        drop(begin("panicked"));
        assert_eq!(tokens(), ["panicked"]);
        tokio::time::advance(Duration::from_secs(30)).await;
        drop(begin("aborted"));
        assert_eq!(tokens(), ["aborted"], "the other lock has expired");
    }
}
