//! Waiting for an instance to become something.

use std::time::Duration;

use everturn_provider::InstanceWatch;
use tokio::time::{Instant, timeout_at};

use super::{Client, ClientError};

/// The first look is given this long even if the caller is not: a short wait is a question too.
const FIRST_LOOK_MIN: Duration = Duration::from_secs(1);

/// When to look again, beside every change the store tells of.
#[derive(Debug, Clone, Copy)]
pub(super) enum LookAgain {
    /// As the watch sees fit.
    AsWatched,
    /// At the caller's pace.
    Every(Duration),
}

impl LookAgain {
    async fn wait(self, watch: &mut InstanceWatch) {
        match self {
            Self::AsWatched => watch.changed(Duration::MAX).await,
            Self::Every(interval) => watch.changed_or_after(interval).await,
        }
    }
}

impl Client {
    /// Looks until `look` finds something, after every change of the instance and when `look_again` says so.
    ///
    /// There is one look whatever the timeout. After it neither waiting nor looking goes beyond the deadline.
    pub(super) async fn wait_for<T, Look>(
        &self,
        instance: &str,
        timeout: Duration,
        look_again: LookAgain,
        look: impl Fn() -> Look,
    ) -> Result<T, ClientError>
    where
        Look: Future<Output = Result<Option<T>, ClientError>>,
    {
        let began = Instant::now();
        // A timeout beyond the end of time is none.
        let deadline = began.checked_add(timeout);
        // Made before the first look, so that no change falls in between.
        let mut watch = self.store.watch_instance(instance);
        let first_look = began.checked_add(timeout.max(FIRST_LOOK_MIN));
        if let Some(found) = by(first_look, look()).await? {
            return Ok(found);
        }
        by(deadline, async {
            loop {
                look_again.wait(&mut watch).await;
                if let Some(found) = look().await? {
                    return Ok(found);
                }
            }
        })
        .await
    }
}

/// Ends a look with [`ClientError::Timeout`] at its deadline, if it has one.
async fn by<T>(
    deadline: Option<Instant>,
    looking: impl Future<Output = Result<T, ClientError>>,
) -> Result<T, ClientError> {
    match deadline {
        Some(deadline) => timeout_at(deadline, looking).await.unwrap_or(Err(ClientError::Timeout)),
        None => looking.await,
    }
}
