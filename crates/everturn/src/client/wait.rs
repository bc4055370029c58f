//! Waiting for a change of an instance.

use std::time::Duration;

use everturn_provider::InstanceWatch;
use tokio::time::{Instant, timeout_at};

use super::{Client, ClientError};

/// The first read may take this long even if the caller's timeout is shorter: a short timeout asks for the current state.
const FIRST_READ_MIN: Duration = Duration::from_secs(1);

/// When to read again if the store's watch does not fire but polls.
#[derive(Debug, Clone, Copy)]
pub(super) enum ReadAgain {
    /// When the watch says.
    OnChange,
    /// At this interval.
    Every(Duration),
}

impl ReadAgain {
    /// Returns when the instance may have changed.
    async fn wait(self, watch: &mut InstanceWatch) {
        loop {
            let may_have_changed = match self {
                Self::OnChange => watch.changed(Duration::MAX).await,
                Self::Every(interval) => watch.changed_or_after(interval).await,
            };
            if may_have_changed {
                return;
            }
        }
    }
}

impl Client {
    /// Repeats `read` until it returns something: after every change of the instance.
    ///
    /// Reads at least once, whatever the timeout. After that, neither waiting nor reading exceeds the deadline.
    pub(super) async fn wait_for<T, Read>(
        &self,
        instance: &str,
        timeout: Duration,
        read_again: ReadAgain,
        read: impl Fn() -> Read,
    ) -> Result<T, ClientError>
    where
        Read: Future<Output = Result<Option<T>, ClientError>>,
    {
        let began = Instant::now();
        // A timeout that overflows the clock never passes.
        let deadline = began.checked_add(timeout);
        // Created before the first read, so that no change is missed in between.
        let mut watch = self.store.watch(instance);
        let first_deadline = began.checked_add(timeout.max(FIRST_READ_MIN));
        if let Some(found) = by_deadline(first_deadline, read()).await? {
            return Ok(found);
        }
        by_deadline(deadline, async {
            loop {
                read_again.wait(&mut watch).await;
                if let Some(found) = read().await? {
                    return Ok(found);
                }
            }
        })
        .await
    }
}

/// Fails with [`ClientError::Timeout`] at the deadline, if there is one.
async fn by_deadline<T>(
    deadline: Option<Instant>,
    reading: impl Future<Output = Result<T, ClientError>>,
) -> Result<T, ClientError> {
    match deadline {
        Some(deadline) => timeout_at(deadline, reading).await.unwrap_or(Err(ClientError::Timeout)),
        None => reading.await,
    }
}
